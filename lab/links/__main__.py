"""`python -m lab.links`: responses streamed and refined over slow links, against one payload.

Responsible for running service and device in this process with a simulated link between them and for
measuring, per held-out prompt, the times to the first token, to the first token that is not retracted and to
the final text, the payload bytes and the retractions. Not responsible for the link (see `link`).

One payload after 25% of the steps is compared with a stream of payloads after 10, 15 and 25%. Both must end
with the same text.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.http.background import background_service
from cloud_anchor.serve.settings import Limits
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from edge_runtime.client.client import Client
from edge_runtime.decode.forced import Token
from edge_runtime.decode.refine import Retract
from edge_runtime.online import ServiceOptions, ServiceRequest
from edge_runtime.runtime import EdgeRuntime
from lab.links.link import LINKS, link_to
from lab.options import add_pair, add_questions, questions

STREAM = (0.1, 0.15, 0.25)
TIMEOUT = 60.0


@dataclass(frozen=True)
class LinkResult:
    """One response.

    ids:     final token ids.
    first, first_standing, final: seconds from the request to the first token, to the first token that is not
             retracted, and to the last.
    bytes, payloads: received. cuts: retractions. taken_back: tokens retracted.
    """

    ids: list[int]
    first: float
    first_standing: float
    final: float
    bytes: int
    payloads: int
    cuts: int
    taken_back: int


def measure(url: str, edge: EdgeRuntime, prompt: str, stream: bool) -> LinkResult:
    """One response with the service at `url`."""
    _ = edge.engine  # loaded before the clock starts, as on a device in use
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
    return LinkResult(ids, first or final, standing, final, sum(sizes), len(sizes), cuts, taken)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.links",
        description="Measure streamed and single payloads over simulated slow links.",
        epilog="example:\n  python -m lab.links --prompts 20 --links satellite,LTE",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_pair(parser)
    add_questions(parser, 20)
    parser.add_argument("--links", default=",".join(LINKS), help=f"default: {','.join(LINKS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write one line of JSON per response")
    args = parser.parse_args(argv)
    names = args.links.split(",")
    if unknown := [name for name in names if name not in LINKS]:
        parser.error(f"--links: expected some of {', '.join(LINKS)}, found {', '.join(unknown)}")
    return run_command("links", lambda: _run(args, names))


def _run(args: argparse.Namespace, names: Sequence[str]) -> int:
    problems, place = questions(args), bundle_of(args.model, args.edge)
    pipeline = Pipeline.open(args.model, edge=place)
    edge = EdgeRuntime.open(place)
    limits = Limits(batch=4, queue=4, deadline=TIMEOUT, body_seconds=30, header_seconds=30)
    backend = LocalBackend(pipeline, pipeline.plan(), limits)
    lines, differ = [], 0
    print("| link | way | first token | first that stands | final | bytes | payloads | cuts | taken back |")
    print("|---|---|---|---|---|---|---|---|---|")
    with background_service(backend, limits) as served:
        for name in names:
            both: dict[bool, list[LinkResult]] = {False: [], True: []}
            for index, problem in enumerate(problems):
                for stream in both:
                    with link_to(served, LINKS[name], index) as port:
                        found = measure(f"http://127.0.0.1:{port}", edge, problem.prompt, stream)
                    both[stream].append(found)
                    lines.append(json.dumps({"link": name, "stream": stream, **asdict(found)}) + "\n")
                differ += both[True][-1].ids != both[False][-1].ids
            for stream, found_all in both.items():
                print(_row(name, "stream" if stream else "wait for 25%", found_all), flush=True)
    if args.json:
        args.json.write_text("".join(lines))
    print(f"\n{differ} of {len(problems) * len(names)} answers end differently")
    return int(differ > 0)


def _row(link: str, way: str, answers: Sequence[LinkResult]) -> str:
    def mean(name: str) -> float:
        return statistics.fmean(getattr(each, name) for each in answers)

    seconds = " | ".join(f"{mean(name):.2f} s" for name in ("first", "first_standing", "final"))
    counts = " | ".join(f"{mean(name):.1f}" for name in ("bytes", "payloads", "cuts", "taken_back"))
    return f"| {link} | {way} | {seconds} | {counts} |"


if __name__ == "__main__":
    sys.exit(main())
