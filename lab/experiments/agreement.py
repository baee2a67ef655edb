"""Agreement of the device's text with the intended one: `python -m lab.experiments.agreement`.

The cloud verifies an answer with one variant of the edge model and the device fills with another, on another
processor; where the two differ at an unsent token, the answers differ from there on. For every guard and
every variant of a bundle: the share of prompts whose filled text is the intended one, and the cost of the
guard in tokens and bytes.

Responsible for the measurement. Not responsible for the selection (see `edge_aware`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cloud_anchor.errors import CloudError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, commit_in_parallel, steps_for
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import EDGE_AWARE, Selection, select
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.engine.ort_engine import OrtEngine
from lab.options import add_fraction, add_pair, add_questions, questions
from payload import Shared, encode

GUARDS = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0)
BATCH = 20


@dataclass(frozen=True)
class AgreementRow:
    """One guard: means over the prompts, and by variant the share whose text is the intended one.

    passes: of the edge model in the cloud, per answer. sent: tokens. bytes: with the prompt known.
    """

    guard: float
    passes: float
    sent: float
    bytes: float
    equal: dict[str, float]


def measure(
    pipeline: Pipeline, bundle: Bundle, prompts: Sequence[str], config: DenoiseConfig, threshold: float
) -> list[AgreementRow]:
    """Every guard on every prompt, filled with every variant of the bundle."""
    if pipeline.scorer is None:
        raise CloudError("expected an edge bundle (--edge), found none")
    contract = pipeline.form.contract
    runs = denoise(pipeline.model, [pipeline.form.ids(prompt) for prompt in prompts], config, BATCH)
    engines = {name: OrtEngine.open(Bundle.open(bundle.path, name)) for name in bundle.manifest.variants}
    quiet = FillOptions(score_anchors=False)
    rows = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("fills", total=len(GUARDS) * len(runs))
        for guard in GUARDS:
            selection = Selection(EDGE_AWARE, EdgeAwareConfig(threshold=threshold, guard=guard))
            equal = dict.fromkeys(engines, 0)
            passes = sent = size = 0
            for run, selected in zip(runs, select(runs, contract, selection, pipeline.scorer), strict=True):
                assert selected.walk is not None  # it is edge-aware
                anchors = selected.anchors
                passes += selected.walk.passes
                sent += len(anchors)
                size += len(encode(anchors, Shared(contract, run.prompt_ids), extras=run.extras()))
                for name, engine in engines.items():
                    filled = [token.id for token in fill(engine, list(run.prompt_ids), anchors, quiet)]
                    equal[name] += filled == selected.walk.text
                progress.advance(bar)
            n = len(runs)
            shares = {name: count / n for name, count in equal.items()}
            rows.append(AgreementRow(guard, passes / n, sent / n, size / n, shares))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.experiments.agreement",
        description="How often the device writes what the cloud meant, by guard and variant of the bundle.",
        epilog="example: python -m lab.experiments.agreement --prompts 200 --threshold 0.5",
    )
    add_pair(parser)
    add_questions(parser, 200)
    add_fraction(parser)
    parser.add_argument(
        "--threshold", type=float, default=0.0, metavar="P", help="probability from which a prediction binds"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    return run_command("agreement", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    prompts = [item.prompt for item in questions(args)]
    bundle = Bundle.open(bundle_of(args.model, args.edge))
    pipeline = Pipeline.open(args.model, edge=bundle.path)
    pipeline.require_one_vocabulary("agreement")
    plan = pipeline.plan()
    steps = steps_for(args.fraction, plan.total_steps)
    config = commit_in_parallel(replace(plan, steps=steps))
    rows = measure(pipeline, bundle, prompts, config, args.threshold)
    if args.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    table = Table(title=f"Text as intended after {steps} of {plan.total_steps} steps, {args.prompts} prompts")
    for column in ("guard", "cloud passes", "tokens sent", "bytes", *rows[0].equal):
        table.add_column(column, justify="right")
    for row in rows:
        shares = (f"{share:.1%}" for share in row.equal.values())
        table.add_row(f"{row.guard:g}", f"{row.passes:.2f}", f"{row.sent:.1f}", f"{row.bytes:.1f}", *shares)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
