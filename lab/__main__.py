"""`python -m lab`: the paper's experiments with controls, and a report.

Responsible for the command line. Not responsible for measuring (see `runner`) or the report (see `report`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cloud_anchor.errors import RequestError
from cloud_anchor.shipped import PAIRS
from common.cli import run_command
from lab import compare, publish
from lab.experiments.paper import PHASES, About
from lab.loading import Wanted, about_models, fingerprint, open_lab
from lab.options import add_data, sources, world_of
from lab.protocol import DEFAULT_SUBSET, OWN, PAPER, PAPER_STEPS, PROTOCOLS, protocol
from lab.published import published_files as published
from lab.published import recorded_tables, traces
from lab.report import build, to_html, to_json, to_markdown
from lab.run import RUNS, measure
from lab.store import TABLES, Store
from payload import PayloadError

EPILOG = f"""phases: {", ".join(PHASES)}

examples:
  python -m lab --model tiny --edge tiny-qwen -o results/
  python -m lab --phases fill,ablation --subset 20 --seed 1 -o results-seed1/
  python -m lab --model Dream-org/Dream-v0-Instruct-7B \\
      --edge bundles/qwen2.5-0.5b bundles/qwen2.5-1.5b \\
      --thinker Qwen/Qwen2.5-32B-Instruct --four-bit --canvas 256 --total-steps 128 \\
      --data gsm8k=gsm8k.jsonl mmlu=mmlu.jsonl arc humaneval -o results/
  python -m lab --protocol paper --subset 5 -o results-paper/   # 5 prompts per source
  python -m lab traces traces.jsonl         # published runs, no weights
  python -m lab traces traces.jsonl --edge bundles/smollm2 -o results-real/
  python -m lab published inverse-speculation-dlm/results       # the published result files
  python -m lab compare results/ results-seed1/

exit codes: 0 ok, 1 failed, 2 usage, 4 bad or missing model, 130 interrupted (run again to continue)
"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run_command(
        "suite",
        lambda: _dispatch(arguments),
        interrupted="interrupted; the same command continues from here",
        exit_codes={PayloadError: 4},  # models with different vocabularies
    )


def _dispatch(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["traces"]:
        about = "Figures of published runs: by themselves, or filled by a real edge model (--edge)."
        parser = _formatted("traces", about, traces.EPILOG)
        traces.add_arguments(parser)
        recorded_tables.add_arguments(parser)
        args = parser.parse_args(arguments[1:])
        return recorded_tables.run(args, _measure) if args.edge else traces.run(args)
    if arguments[:1] == ["published"]:
        about = "Tables of the published repository's result files, as they are."
        parser = _formatted("published", about, published.EPILOG)
        published.add_arguments(parser)
        return published.run(parser.parse_args(arguments[1:]))
    if arguments[:1] == ["publish"]:
        return publish.main(arguments[1:])
    if arguments[:1] == ["compare"]:
        parser = _formatted("compare", "Compare the means of two runs by their intervals.", "")
        compare.add_arguments(parser)
        return compare.run(parser.parse_args(arguments[1:]))
    return _run(_parser().parse_args(arguments))


def _formatted(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"python -m lab {name}".strip(),
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _formatted("", "Every table and figure of the paper, with controls, and a report.", EPILOG)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="results folder; run again to continue"
    )
    parser.add_argument(
        "--model", default="tiny", help="diffusion model: tiny, testbed, a folder, a hub name (default: tiny)"
    )
    parser.add_argument(
        "--edge",
        nargs="+",
        metavar="MODEL",
        help="edge models, the main one first: names or folders of bundles, or checkpoints, which are "
        "converted (default: the shipped pair's; alone it is joined by the pair's larger autoregressive one)",
    )
    parser.add_argument(
        "--thinker",
        metavar="CHECKPOINT",
        help="autoregressive checkpoint for the bridge, the Thinker and specdiff; the first two decide "
        "nothing where it is right no more often than the edge model alone (default: the shipped pair's own, "
        "or testbed-causal beside the model's folder)",
    )
    parser.add_argument(
        "--four-bit", action="store_true", help="load the Thinker with 4-bit weights (CUDA, bitsandbytes)"
    )
    add_data(parser)
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default=OWN,
        help="which prompts each phase measures: the suite's own, or the paper's nested sets of 310 (commit "
        f"curves), 190 (fills) and 50 (ablation), and its {PAPER_STEPS} steps (default: {OWN})",
    )
    parser.add_argument(
        "--subset",
        type=int,
        metavar="N",
        help=f"prompts in all (default {DEFAULT_SUBSET}); with --protocol {PAPER} prompts per source "
        "(default: the paper's numbers)",
    )
    parser.add_argument("--phases", default="", help="only these, separated by commas (default: all)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the choice of prompts, the sampler and the controls"
    )
    parser.add_argument("--canvas", type=int, help="response positions (default: the model's, or 256)")
    parser.add_argument("--total-steps", type=int, help="steps of a full run (default: the model's, or 128)")
    parser.add_argument("--device", help="cuda, cpu (default: cuda where there is one)")
    parser.add_argument(
        "--threads", type=int, help="threads of the edge model (default: the processor's fast cores)"
    )
    return parser


def _run(args: argparse.Namespace) -> int:
    phases = [name.strip() for name in args.phases.split(",") if name.strip()] or list(PHASES)
    unknown = [name for name in phases if name not in PHASES]
    if unknown:
        raise RequestError(f"--phases: expected some of {', '.join(PHASES)}, found {', '.join(unknown)}")
    if args.subset is not None and args.subset < 1:
        raise RequestError(f"--subset: expected at least 1, found {args.subset}")
    pair = world_of(args.model)  # of another model than a shipped one: tiny
    args.data = sources(args)
    args.edge = args.edge or [PAIRS[pair].bundle.name]
    sets = protocol(args.protocol, args.data, args.subset, args.seed)
    items = sets.items
    wanted = Wanted(
        args.model,
        args.edge,
        args.thinker,
        args.four_bit,
        args.canvas,
        args.total_steps or (PAPER_STEPS if sets.name == PAPER else None),
        args.seed,
        args.device,
        args.threads,
    )
    lab = open_lab(wanted, args.output / "bundles")
    about = About.from_json(about_models(lab, wanted))
    settings: dict[str, Any] = {
        "data": args.data,
        "protocol": sets.name,
        "seed": args.seed,
        "canvas": lab.base.canvas,
        "total_steps": lab.base.total_steps,
        "weights": fingerprint(lab, wanted),
    }
    store = Store(args.output, settings)
    skipped = {name: why for name in phases if (why := PHASES[name].needs(lab)) is not None}
    _measure(items, measure(lab, items, phases, store, limits=sets.limits))
    records = {}
    for name in (RUNS, *PHASES):
        # An earlier run into this folder may have had another subset.
        chosen = {item.id for item in items[: sets.limits.get(name)]}
        records[name] = [record for id_, record in store.records(name).items() if id_ in chosen]
    report = build(about, settings, records, skipped)
    store.write(TABLES, to_json(report))
    store.write("report.md", to_markdown(report))
    store.write("report.html", to_html(report))
    print(
        json.dumps(
            {"items": report.items, "claims": len(report.claims), "report": str(args.output / "report.html")}
        )
    )
    return 0


def _measure(items: Sequence[object], work: Any) -> None:
    """Run the work, with a progress bar on a terminal, else with a line from time to time."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("items"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("items", total=len(items))
            for _ in work:
                progress.advance(bar)
        return
    started = time.monotonic()
    for done, _ in enumerate(work, 1):
        if done % 5 == 0 or done == len(items):
            spent = time.monotonic() - started
            left = spent / done * (len(items) - done)
            print(
                f"{done} of {len(items)} items, {spent:.0f} s, about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
