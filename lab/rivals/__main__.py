"""`python -m lab.rivals`: what a sceptic would do instead, over links.

Every method on the same questions with one pair of models, its conversations simulated over LTE, 3G, a
satellite, NB-IoT by satellite and SBD, each without and with loss; a table in Markdown and JSON, and a plot.
Resumable. Responsible for the command line. Not responsible for methods (see `methods`) or networks (see
`links.networks`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.guide import Span
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from common.files import write_whole
from common.progress import Bars
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.decode.speculate import chunk_costs
from edge_runtime.runtime import EdgeRuntime
from lab.experiments.passes import rule_config
from lab.links.conversation import Speeds
from lab.links.networks import LOSSES, NETWORKS
from lab.loading import parameters
from lab.options import add_pair, add_questions, questions, sources
from lab.questions.items import Item
from lab.rivals.methods import Exchange, MethodBench, MethodOptions, shot
from lab.rivals.report import markdown, plot_race, without_curves
from lab.rivals.standings import Race, compared, race
from lab.store import Record, Store

PHASE = "rivals"
ASSUMED = Speeds(cloud=0.042, edge=0.018, device=0.02, token=0.002)
"""Dream-7B on an A100, 42 ms a pass, and Qwen2.5-0.5B there, 18 ms (section 4.8 of the paper); 0.5B in 4 bits
on a phone, 50 tokens a second, 2 ms for a further known token."""
MEASURED, STATED = "measured", "assumed"

EPILOG = f"""links: {", ".join(NETWORKS)}

examples:
  python -m lab.rivals -o results/rivals --subset 40
  python -m lab.rivals -o results/rivals --speeds measured     # the same runs, timed here
  python -m lab.rivals -o results/rivals --cloud-ms 20 --device-ms 80 --links "LTE,NB-IoT NTN"

exit codes: 0 ok, 1 failed, 2 usage, 4 bad or missing model, 130 interrupted (run again to continue)
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.rivals",
        description="Ours against its rivals: right answers, bytes, round trips and time over links.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = MethodOptions()
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="results, resumable"
    )
    add_pair(parser)
    add_questions(parser, 40, ("--subset", "--prompts"))
    parser.add_argument("--links", default=",".join(NETWORKS), help="these only, separated by commas")
    parser.add_argument(
        "--losses", nargs="+", type=float, default=list(LOSSES), metavar="SHARE", help="(0 0.05 0.1)"
    )
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="losses drawn per question (5)")
    parser.add_argument(
        "--plot-loss", type=float, metavar="SHARE", help="loss of the plot, one of --losses (the second)"
    )
    parser.add_argument(
        "--finish", default=defaults.finish, metavar="RULE", help="commit rule of a finished answer (0.9)"
    )
    parser.add_argument(
        "--shots",
        nargs="+",
        type=int,
        default=list(defaults.shots),
        metavar="PASSES",
        help="passes after which ours sends (1 2 12); an answer that is complete before is sent then. "
        "The last is what all are compared with.",
    )
    parser.add_argument(
        "--speeds",
        choices=(STATED, MEASURED),
        default=STATED,
        help="assumed: Dream-7B on an A100 and 0.5B on a phone; measured: this pair on this machine",
    )
    parser.add_argument("--cloud-ms", type=float, help="milliseconds of a pass of the diffusion model")
    parser.add_argument("--edge-ms", type=float, help="of a pass of the edge model in the cloud")
    parser.add_argument("--device-ms", type=float, help="of a pass, or token, on the device")
    parser.add_argument("--device-token-ms", type=float, help="of a further known token in a pass there")
    parser.add_argument("--threads", type=int, help="of the edge model")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    args = parser.parse_args(argv)
    return run_command(
        "rivals", lambda: _run(args), interrupted="interrupted; the same command continues from here"
    )


def _run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    names = [name.strip() for name in args.links.split(",")]
    _check(args, names)
    shots = tuple(sorted(set(args.shots)))
    options = MethodOptions(finish=args.finish, shots=shots, refine=shots)
    data, items = sources(args), questions(args)
    folder = bundle_of(args.model, args.edge)
    edge = EdgeRuntime.open(find_bundles("", str(folder))[0], threads=args.threads)
    pipeline = Pipeline.open(args.model, edge=edge)
    pipeline.require_one_vocabulary("rivals")
    bench = MethodBench(pipeline, edge, options)
    if shots[-1] > bench.plan.total_steps:
        raise RequestError(f"--shots: expected at most {bench.plan.total_steps} passes, found {shots[-1]}")
    ranking = edge.bundle.manifest.fingerprint(edge.bundle.variant_name).hex()
    settings = {"model": args.model, "data": data, "seed": args.seed, "options": asdict(options)}
    store = Store(args.output, settings | {"ranking": ranking})
    left = sum(item.id not in store.records(PHASE) for item in items)
    for _ in track(_measure(bench, items, store), "questions", left, console=Console(stderr=True)):
        pass
    kept = store.records(PHASE)
    exchanges = {item.id: [Exchange.from_json(each) for each in kept[item.id]["exchanges"]] for item in items}
    sizes = (
        sum(weight.numel() for weight in pipeline.model.net.parameters()),
        parameters(edge.bundle.manifest.model),
    )
    networks = [NETWORKS[name] for name in names]
    speeds = _speeds(args, pipeline, edge, items)
    setting = Race(networks, sorted(args.losses), args.repeats, speeds, sizes, args.seed)
    cells = len(items) * len(networks) * len(setting.losses)
    with Bars("rivals", passing=True).stage("conversations", cells) as step:
        rows = race(exchanges, setting, lambda: step(1))
    reference = shot(shots[-1])
    report: dict[str, Any] = {
        "model": args.model,
        "edge": str(args.edge or folder.name),
        "data": data,
        "questions": len(items),
        "seed": args.seed,
        "options": asdict(options),
        "parameters": sizes,
        "speeds": {"kind": args.speeds, **asdict(speeds)},
        "losses": setting.losses,
        "repeats": args.repeats,
        "reference": reference,
        "rows": compared(rows, reference),
    }
    loss = args.plot_loss if args.plot_loss is not None else setting.losses[min(1, len(setting.losses) - 1)]
    store.write("rivals.json", json.dumps(report) + "\n")
    text = _about(report) + markdown(report)
    store.write("rivals.md", text)
    write_whole(args.output / "rivals.png", plot_race(report, loss))
    if args.json:
        print(json.dumps(without_curves(report)))
    else:
        print(text)
        print(f"{args.output / 'rivals.png'}; {time.monotonic() - started:.0f} s")
    return 0


def _check(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Raises RequestError for what the parser cannot know, before a model is loaded."""
    if unknown := [name for name in names if name not in NETWORKS]:
        raise RequestError(f"--links: expected some of {', '.join(NETWORKS)}, found {', '.join(unknown)}")
    if min(args.repeats, *args.shots) < 1:
        raise RequestError("--repeats, --shots: expected at least 1, found less")
    if not all(0 <= loss < 1 for loss in args.losses):
        raise RequestError(f"--losses: expected shares from 0, below 1, found {args.losses}")
    if args.plot_loss is not None and args.plot_loss not in args.losses:
        raise RequestError(f"--plot-loss: expected one of --losses, found {args.plot_loss}")
    given = (args.cloud_ms, args.edge_ms, args.device_ms, args.device_token_ms)
    if any(value is not None and not 0 <= value < 1e6 for value in given):
        raise RequestError("milliseconds: expected 0 to 1,000,000, found another number")
    rule_config(args.finish, DenoiseConfig())


def _measure(bench: MethodBench, items: Sequence[Item], store: Store) -> Iterator[None]:
    """Runs what the store does not have yet; yields after each question."""
    for item in items:
        if item.id not in store.records(PHASE):
            record: Record = {"id": item.id, "exchanges": [each.to_json() for each in bench.exchanges(item)]}
            store.add(PHASE, record)
            yield


def _speeds(args: argparse.Namespace, pipeline: Pipeline, edge: EdgeRuntime, items: Sequence[Item]) -> Speeds:
    """The speeds asked for; a figure given in milliseconds stands before all others."""
    found = _measured(pipeline, edge, items[0]) if args.speeds == MEASURED else ASSUMED
    given = (args.cloud_ms, args.edge_ms, args.device_ms, args.device_token_ms)
    kept = (found.cloud, found.edge, found.device, found.token)
    return Speeds(*(old if new is None else new / 1000 for new, old in zip(given, kept, strict=True)))


def _measured(pipeline: Pipeline, edge: EdgeRuntime, item: Item) -> Speeds:
    """Seconds on this machine, the best of five: a pass over prompt and canvas, a pass of the edge model over
    an answer of 48 tokens, and of the device over one token and over 33.
    """
    ids, canvas = pipeline.form.ids(item.prompt), pipeline.plan().canvas
    model, scorer = pipeline.model, pipeline.scorer
    assert scorer is not None  # an edge model was given
    import torch

    batch = model.batch([ids], canvas)
    masks = torch.full((1, canvas), model.mask_id, device=model.device)

    def pass_() -> None:
        model.logits(batch, masks, masks == model.mask_id).sum().item()

    def scored() -> None:
        edge.engine.rewind(0)
        scorer.score([Span(ids, ids[:1] * 48)])

    costs = chunk_costs(edge.engine, sizes=(1, 33))
    return Speeds(_best(pass_), _best(scored), costs[1], max(0.0, costs[33] - costs[1]) / 32)


def _best(work: Any) -> float:
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def _about(report: dict[str, Any]) -> str:
    speeds = report["speeds"]
    ms = ", ".join(
        f"{1000 * speeds[key]:.1f} ms {says}"
        for key, says in (
            ("cloud", "a pass of the diffusion model"),
            ("edge", "of the edge model in the cloud"),
            ("device", "a token on the device"),
            ("token", "a further known token there"),
        )
    )
    return (
        f"{report['model']} and {report['edge']}, {report['questions']} questions of "
        f"{' '.join(report['data'])}, {report['repeats']} draws of losses each. Speeds, {speeds['kind']}: "
        f"{ms}. Reference: {report['reference']}. Intervals: 95%, by question, paired where they are "
        "differences.\n\n"
    )


if __name__ == "__main__":
    sys.exit(main())
