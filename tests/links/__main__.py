"""python -m tests.links: an answer refined while it is written, over slow links, against waiting for 25%.

The service and the device run here, with a simulated link between them. For each held-out prompt: the first
token, the first one that is not taken back later, the final text, payload bytes and corrections. Both ways
must end with the same text.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.tiny.pair import FULL_RUN
from cloud_anchor.tiny.tasks import held_out_problems
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.client.client import Client
from edge_runtime.decode.forced import Token
from edge_runtime.decode.refine import Retract
from edge_runtime.online import ServiceOptions, ServiceRequest
from edge_runtime.runtime import EdgeRuntime
from tests.cloud_anchor.serve.service_runner import LIMITS, local, served
from tests.links.link import LINKS, behind

STREAM = (0.1, 0.15, 0.25)
TIMEOUT = 60.0


@dataclass(frozen=True)
class Answer:
    """Seconds from asking to the first token, to the first that stands, and to the last; what it took."""

    ids: list[int]
    first: float
    first_standing: float
    final: float
    bytes: int
    payloads: int
    cuts: int
    taken_back: int


def answer(url: str, edge: EdgeRuntime, prompt: str, stream: bool) -> Answer:
    """One answer with the service behind an address."""
    _ = edge.engine  # a device that is in use has its model loaded
    options = ServiceOptions(STREAM if stream else STREAM[-1:], stream, fallback=False)
    started = time.perf_counter()
    request = ServiceRequest(Client(url, timeout=TIMEOUT), edge, prompt, options).start()
    items = request.answer(edge.options(score_anchors=False, speculate="off"))
    text: list[tuple[Token, float]] = []
    first = None
    cuts = taken = 0
    for item in items:
        now = time.perf_counter() - started
        if isinstance(item, Retract):
            cuts, taken = cuts + 1, taken + len(text) - item.position
            del text[item.position :]
            continue
        first = now if first is None else first
        text.append((item, now))
    final = time.perf_counter() - started
    standing = text[0][1] if text else final
    sizes = request.report.payload_bytes
    ids = [token.id for token, _ in text]
    return Answer(ids, first or final, standing, final, sum(sizes), len(sizes), cuts, taken)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.links",
        description=__doc__,
        epilog="example:\n  python -m tests.links --prompts 20 --links satellite,LTE",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--prompts", type=int, default=20, help="held-out prompts (20)")
    parser.add_argument("--links", default=",".join(LINKS), help=f"default: {','.join(LINKS)}")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--edge", type=Path, default=SHIPPED)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every answer as a line of JSON")
    args = parser.parse_args(argv)
    names = args.links.split(",")
    if unknown := [name for name in names if name not in LINKS]:
        parser.error(f"--links: expected some of {', '.join(LINKS)}, found {', '.join(unknown)}")
    pipeline = Pipeline.open(args.model, edge=args.edge)
    edge = EdgeRuntime.open(args.edge)
    problems = held_out_problems(args.prompts)
    limits = replace(LIMITS, deadline=TIMEOUT, body_seconds=30, header_seconds=30)
    lines, differ = [], 0
    print("| link | way | first token | first that stands | final | bytes | payloads | cuts | taken back |")
    print("|---|---|---|---|---|---|---|---|---|")
    with served(local(pipeline, limits, FULL_RUN), limits) as client:
        for name in names:
            both: dict[bool, list[Answer]] = {False: [], True: []}
            for index, problem in enumerate(problems):
                for stream in both:
                    with behind(client.port, LINKS[name], index) as port:
                        found = answer(f"http://127.0.0.1:{port}", edge, problem.prompt, stream)
                    both[stream].append(found)
                    lines.append(json.dumps({"link": name, "stream": stream, **asdict(found)}) + "\n")
                differ += both[True][-1].ids != both[False][-1].ids
            for stream, found_all in both.items():
                print(_row(name, "stream" if stream else "wait for 25%", found_all), flush=True)
    if args.json:
        args.json.write_text("".join(lines))
    print(f"\n{differ} of {len(problems) * len(names)} answers end differently")
    return int(differ > 0)


def _row(link: str, way: str, answers: Sequence[Answer]) -> str:
    def mean(name: str) -> float:
        return statistics.fmean(getattr(each, name) for each in answers)

    seconds = " | ".join(f"{mean(name):.2f} s" for name in ("first", "first_standing", "final"))
    counts = " | ".join(f"{mean(name):.1f}" for name in ("bytes", "payloads", "cuts", "taken_back"))
    return f"| {link} | {way} | {seconds} | {counts} |"


if __name__ == "__main__":
    sys.exit(main())
