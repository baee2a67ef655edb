"""Does the device write what the cloud meant? `python -m cloud_anchor.suite.agreement`.

The cloud walks an answer with one variant of the edge model and the device fills with another, on another
processor; where the two disagree at an unsent token, the answers part. For every guard and every variant of a
bundle: the share of prompts whose filled text is the intended one, and what the guard costs in tokens and
bytes. Knows how to measure this; what a guard is, `edge_aware` says.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cloud_anchor.errors import CloudError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, commit_in_parallel, steps_for
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, edge_aware, verify_drafts
from cloud_anchor.tiny.pair import FULL_RUN
from cloud_anchor.tiny.tasks import held_out_problems
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.decode.forced import FillOptions, fill
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import EdgeError
from payload import Shared, encode

GUARDS = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0)
BATCH = 20


@dataclass(frozen=True)
class AgreementRow:
    """One guard: means over the prompts, and by variant the share whose text is the intended one.

    passes: of the edge model in the cloud, over an answer. sent: tokens. bytes: with the prompt known.
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
        raise CloudError("expected a bundle to walk with, found none. Use --edge.")
    contract = pipeline.form.contract
    runs = denoise(pipeline.model, [pipeline.form.ids(prompt) for prompt in prompts], config, BATCH)
    engines = {name: OrtEngine.open(Bundle.open(bundle.path, name)) for name in bundle.manifest.variants}
    quiet = FillOptions(score_anchors=False)
    rows = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("fills", total=len(GUARDS) * len(runs))
        for guard in GUARDS:
            found = verify_drafts(
                pipeline.scorer, runs, contract, EdgeAwareConfig(threshold=threshold, guard=guard)
            )
            equal = dict.fromkeys(engines, 0)
            sent = size = 0
            for run, walked in zip(runs, found, strict=True):
                anchors = edge_aware(run, walked, contract)
                sent += len(anchors)
                size += len(encode(anchors, Shared(contract, run.prompt_ids), extras=run.extras()))
                for name, engine in engines.items():
                    written = [token.id for token in fill(engine, list(run.prompt_ids), anchors, quiet)]
                    equal[name] += written == walked.text
                progress.advance(bar)
            n = len(runs)
            passes = sum(walked.passes for walked in found) / n
            rows.append(AgreementRow(guard, passes, sent / n, size / n, {k: v / n for k, v in equal.items()}))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.suite.agreement",
        description="How often the device writes what the cloud meant, by guard and variant of the bundle.",
        epilog="example: python -m cloud_anchor.suite.agreement --prompts 200 --threshold 0.5",
    )
    parser.add_argument("--prompts", type=int, default=200, help="held-out problems (default 200)")
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the steps (default 0.1)")
    parser.add_argument("--threshold", type=float, default=0.0, help="probability that binds (default 0)")
    parser.add_argument("--edge", type=Path, default=SHIPPED, help="bundle (default: the shipped one)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        pipeline = Pipeline.open("tiny", edge=args.edge)
        steps = steps_for(args.fraction, FULL_RUN.total_steps)
        config = replace(commit_in_parallel(FULL_RUN), steps=steps)
        prompts = [problem.prompt for problem in held_out_problems(args.prompts)]
        rows = measure(pipeline, Bundle.open(args.edge), prompts, config, args.threshold)
    except (CloudError, EdgeError) as error:
        print(f"agreement: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    if args.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    table = Table(
        title=f"Text as intended after {steps} of {FULL_RUN.total_steps} steps, {args.prompts} prompts"
    )
    for column in ("guard", "cloud passes", "tokens sent", "bytes", *rows[0].equal):
        table.add_column(column, justify="right")
    for row in rows:
        shares = (f"{share:.1%}" for share in row.equal.values())
        table.add_row(f"{row.guard:g}", f"{row.passes:.2f}", f"{row.sent:.1f}", f"{row.bytes:.1f}", *shares)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
