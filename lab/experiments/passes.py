"""Right answers over few passes of the diffusion model: `python -m lab.experiments.passes`.

Every commit rule after a few passes, where answers are not complete yet: sent as they stand (early stop) and
edge-aware at several thresholds, with paired differences against the early stop of the threshold rule, for
all answers and by their length. With --controls also the main table by length: one rule's edge-aware payload
beside controls of as many bytes. Resumable; writes tables, plots and JSON.
Responsible for the measurement. Not responsible for the rules (see `sampling.commits`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cloud_anchor.errors import RequestError
from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import CONFIDENCE as BY_CONFIDENCE
from cloud_anchor.sampling.config import DenoiseConfig, steps_for
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import CONFIDENCE, EDGE_AWARE, Selection, select
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from common.files import write_whole
from edge_runtime.engine.base import Engine
from edge_runtime.runtime import EdgeRuntime
from lab.conditions import plan
from lab.experiments.equal_bytes import Budget, EqualBytes
from lab.experiments.length_tables import (
    AWARE,
    EARLY,
    LENGTH_GROUPS,
    by_length,
    length_plot,
    length_report,
    length_tables,
)
from lab.loading import parameters
from lab.machine import machine
from lab.options import add_pair, add_questions, questions, sources
from lab.questions.items import Item
from lab.questions.judge import is_right
from lab.report import write_tables
from lab.statistics import difference, summary
from lab.store import Record, Store
from payload import Shared, encode

PASSES = (1, 2, 3, 4, 6, 8)
THRESHOLDS = (0.0, 0.3, 0.5)
BATCH = 8
PHASE = "passes"
EARLY_STOP = "early stop"
BASELINE = "0.9"
SENT_TODAY = f"edge-aware {EdgeAwareConfig().threshold:g}"
"""What is sent by default, after the threshold rule: bytes are compared with it."""
PAPER_RULE = "paper"
"""The order of commits and the settings of the paper, a quota a step."""
DEFAULT_RULES = ("quota", BASELINE, "eb:0.1", "apd:0.7", "product:0.3")

READOUTS: dict[str, Selection] = {
    EARLY_STOP: Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0)),
    **{
        f"edge-aware {threshold:g}": Selection(EDGE_AWARE, EdgeAwareConfig(threshold=threshold))
        for threshold in THRESHOLDS
    },
}
"""What is sent of an unfinished run, by the name in the table."""

VALUES = ("right", "f1", "bytes", "sent", "steps", "edge_passes", "edge_tokens", "gflop")
"""The figures of a cell, means over the prompts."""


def rule_config(rule: str, base: DenoiseConfig) -> DenoiseConfig:
    """`base` with a commit rule: quota, paper, a probability, eb:BOUND, apd:R, or product:W[@PROBABILITY].

    Raises RequestError for another text.
    """
    name, _, given = rule.partition(":")
    number, _, probability = given.partition("@")
    config = replace(base, order=BY_CONFIDENCE, stop="complete")
    try:
        match name:
            case "quota" if not given:
                return replace(config, commit="quota")
            case "paper" if not given:
                return replace(plan("entropy", base), stop="complete")
            case "eb" if not probability:
                return replace(config, commit="eb", entropy_bound=float(number))
            case "apd" if not probability:
                return replace(config, commit="apd", commit_weight=float(number))
            case "product":
                config = replace(config, commit="product", commit_weight=float(number))
                return replace(config, commit_probability=float(probability)) if probability else config
            case _ if not given:
                return replace(config, commit=float(name))
    except ValueError:
        pass
    raise RequestError(
        "rule: expected quota, a probability, eb:BOUND, apd:R, product:W[@PROBABILITY] or paper, found "
        f"{rule!r}"
    )


@dataclass(frozen=True)
class PassesBench:
    """A pipeline with an edge model, and the rules that are compared.

    edge_parameters: of the edge model, for the compute figure. passes: after which runs are read, ascending.
    controls: the rule whose payloads, sent as today, are measured beside controls of as many bytes, with
              this engine, the device's; None for no controls.
    """

    pipeline: Pipeline
    rules: Sequence[str]
    edge_parameters: int
    passes: Sequence[int] = PASSES
    controls: tuple[str, Engine] | None = None
    seed: int = 0

    def runs_at(self, prompts: Sequence[list[int]], rule: str) -> list[dict[int, Denoised]]:
        """The run of each prompt after each of `passes`; a complete answer stays as it is."""
        model, guide = self.pipeline.model, self.pipeline.guide
        config = rule_config(rule, self.pipeline.plan())
        marks = [passes for passes in self.passes if passes <= config.total_steps]
        rows: list[dict[int, Denoised]] = [{} for _ in prompts]
        batch: ContinuousBatch[int] = ContinuousBatch(model, config, guide)
        for index, prompt in enumerate(prompts):
            batch.join(index, prompt, marks)
        while len(batch):
            for index, run, done in batch.step():
                rows[index] |= {
                    passes: run for passes in marks if passes == run.steps or (done and passes >= run.steps)
                }
        return rows

    def measure(self, group: Sequence[Item]) -> Iterator[Record]:
        """The records of some prompts, which are denoised together."""
        prompts = [self.pipeline.form.ids(item.prompt) for item in group]
        whole = replace(self.pipeline.plan(), commit="quota", stop="complete")
        full = denoise(self.pipeline.model, prompts, whole)
        runs = {rule: self.runs_at(prompts, rule) for rule in self.rules}
        paper = self.runs_at(prompts, PAPER_RULE) if self.controls else []
        for index, item in enumerate(group):
            reference = self._text(full[index].answer)
            cells = {
                rule: {str(passes): self._cells(run, item, reference) for passes, run in rows[index].items()}
                for rule, rows in runs.items()
            }
            record: Record = {
                "id": item.id,
                "family": item.benchmark,
                "tokens": len(full[index].answer),
                "full": {"right": is_right(item, reference), "steps": full[index].steps},
                "rules": cells,
            }
            if self.controls:
                rule, engine = self.controls
                beside = EqualBytes(self.pipeline, engine, item, full[index], self.seed)
                record["controls"] = {
                    str(passes): beside.controls(run, paper[index][passes], _budget(cells[rule], passes))
                    for passes, run in runs[rule][index].items()
                }
            yield record

    def _cells(self, run: Denoised, item: Item, reference: str) -> Record:
        """The figures of one run, by what is sent of it."""
        contract = self.pipeline.form.contract
        found = {}
        for name, selection in READOUTS.items():
            (selected,) = select([run], contract, selection, self.pipeline.scorer)
            walk = selected.walk
            # The walk's text is what the device decodes from these anchors.
            text = self._text(run.predicted_answer if walk is None else walk.text)
            passes, tokens = run.guide_passes, run.guide_tokens
            if walk is not None:
                passes, tokens = passes + walk.passes, tokens + walk.tokens
            found[name] = {
                "right": float(is_right(item, text)),
                "f1": word_f1(text, reference),
                "bytes": len(encode(selected.anchors, Shared(contract, run.prompt_ids), extras=run.extras())),
                "sent": len(selected.anchors),
                "steps": run.steps,
                "edge_passes": passes,
                "edge_tokens": tokens,
                "gflop": self._gflop(run, tokens),
            }
        return found

    def _gflop(self, run: Denoised, edge_tokens: int) -> float:
        """2 * parameters * tokens of both models, in 10^9; a pass runs prompt and canvas."""
        own: int = sum(weight.numel() for weight in self.pipeline.model.net.parameters())
        tokens = run.steps * (len(run.prompt_ids) + run.canvas)
        return 2e-9 * (own * tokens + self.edge_parameters * edge_tokens)

    def _text(self, ids: Sequence[int]) -> str:
        return self.pipeline.form.tokenizer.decode(list(ids))


def _budget(cells: Mapping[str, Record], passes: int) -> Budget:
    sent = cells[str(passes)][SENT_TODAY]
    return Budget(sent["sent"], sent["bytes"])


def measure_passes(bench: PassesBench, items: Sequence[Item], store: Store) -> Iterator[None]:
    """Measures what the store does not have yet; yields after each prompt."""
    done = store.records(PHASE)
    left = [item for item in items if item.id not in done]
    for begin in range(0, len(left), BATCH):
        for record in bench.measure(left[begin : begin + BATCH]):
            store.add(PHASE, record)
            yield


def summarise_passes(records: Sequence[Record], rules: Sequence[str]) -> list[Record]:
    """One row per number of passes, rule and readout: means with their intervals, and paired differences.

    Right and F1 are compared with the early stop of the threshold rule (of the first rule where that is not
    measured), bytes with what is sent of it by default.
    """
    baseline = BASELINE if BASELINE in rules else rules[0]
    rows = []
    for passes in sorted(records[0]["rules"][rules[0]], key=int):
        plain = {name: [record["rules"][baseline][passes][name] for record in records] for name in READOUTS}
        against = {"right": plain[EARLY_STOP], "f1": plain[EARLY_STOP], "bytes": plain[SENT_TODAY]}
        for rule in rules:
            for readout in READOUTS:
                cells = [record["rules"][rule][passes][readout] for record in records]
                row: Record = {"passes": int(passes), "rule": rule, "readout": readout, "n": len(cells)}
                row |= {name: sum(cell[name] for cell in cells) / len(cells) for name in VALUES}
                for name, others in against.items():
                    values = [cell[name] for cell in cells]
                    paired = difference(values, [cell[name] for cell in others])
                    row[f"{name}_interval"] = [summary(values).low, summary(values).high]
                    row[f"{name}_difference"] = paired.summary.to_json() | {"verdict": paired.verdict}
                rows.append(row)
    return rows


def passes_table(report: Record, length: str | None = None) -> Table:
    """All answers, or those of one of the report's lengths."""
    part = report if length is None else report["lengths"][length]
    full = part["full"]
    table = Table(
        title=f"After few passes of the diffusion model, {part['prompts']} held-out prompts"
        + (f" with answers of {length} tokens" if length else "")
        + f" (full run: right {full['right']:.3f} after {full['steps']:.1f} passes)"
    )
    columns = ("passes", "rule", "sent as", "right", "difference [95%]", "F1", "difference [95%]", "bytes")
    for column in (*columns, "difference [95%]", "passes run", "edge passes", "GFLOP"):
        table.add_column(column, justify="right")
    for row in part["rows"]:
        table.add_row(
            str(row["passes"]),
            row["rule"],
            row["readout"],
            f"{row['right']:.3f}",
            _difference(row["right_difference"]),
            f"{row['f1']:.3f}",
            _difference(row["f1_difference"]),
            f"{row['bytes']:.1f}",
            _difference(row["bytes_difference"], digits=1),
            f"{row['steps']:.2f}",
            f"{row['edge_passes']:.2f}",
            f"{row['gflop']:.2f}",
            end_section=row["readout"] == list(READOUTS)[-1],
        )
    table.caption = (
        f"differences: paired, to rule {report['baseline']} after as many passes; right and F1 to its early "
        f"stop, bytes to {SENT_TODAY}"
    )
    return table


def _difference(found: Record, digits: int = 3) -> str:
    return f"{found['mean']:+.{digits}f} [{found['low']:+.{digits}f}, {found['high']:+.{digits}f}]"


def plot_passes(report: Record) -> bytes:
    """Right answers and F1 over passes, a column a readout and a line a rule, as PNG; below, right answers by
    length.
    """
    from matplotlib.figure import Figure

    metrics = [("right", "right answers", report), ("f1", "F1 against the full run", report)]
    metrics += [("right", f"right, {name} tokens", part) for name, part in report["lengths"].items()]
    figure = Figure(figsize=(13, 3.4 * len(metrics)), layout="constrained")
    grid = figure.subplots(len(metrics), len(READOUTS), sharex=True, sharey="row")
    for line, (metric, says, part) in enumerate(metrics):
        for axes, readout in zip(grid[line], READOUTS, strict=True):
            for index, rule in enumerate(report["rules"]):
                rows = [r for r in part["rows"] if (r["rule"], r["readout"]) == (rule, readout)]
                steps, values = [r["passes"] for r in rows], [r[metric] for r in rows]
                low, high = zip(*(r[f"{metric}_interval"] for r in rows), strict=True)
                axes.plot(steps, values, marker="osD^vpPX*"[index % 9], markersize=4, label=rule)
                axes.fill_between(steps, low, high, alpha=0.08)
            if metric == "right":
                axes.axhline(part["full"]["right"], linestyle=":", color="black", linewidth=0.8)
            if not line:
                axes.set_title(readout, fontsize=9)
            if line + 1 == len(metrics):
                axes.set_xlabel("passes of the diffusion model")
        grid[line][0].set_ylabel(f"{says} (N = {part['prompts']})")
    grid[0][0].legend(fontsize=7)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.experiments.passes",
        description="Right answers and F1 by commit rule, after few passes of the diffusion model.",
        epilog="examples:\n"
        "  python -m lab.experiments.passes -o results/passes --rules 0.9 product:0.3@0.8\n"
        "  python -m lab.experiments.passes -o results/main --model testbed --prompts 400 \\\n"
        "      --data testbed testbed:profile --fractions 0.05 0.1 0.15 0.25 0.4 \\\n"
        "      --rules 0.9 product:0.3 --controls product:0.3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="results, resumable")
    add_pair(parser)
    add_questions(parser, 200)
    after = parser.add_mutually_exclusive_group()
    after.add_argument(
        "--fractions", nargs="+", type=float, metavar="F", help="after which shares of the steps, instead"
    )
    after.add_argument(
        "--passes",
        nargs="+",
        type=int,
        default=list(PASSES),
        metavar="N",
        help=f"after which passes (default: {' '.join(map(str, PASSES))})",
    )
    parser.add_argument(
        "--rules",
        nargs="+",
        default=list(DEFAULT_RULES),
        metavar="RULE",
        help="quota, a probability, eb:BOUND, apd:R, product:W[@PROBABILITY], paper (default: "
        f"{' '.join(DEFAULT_RULES)})",
    )
    parser.add_argument(
        "--controls",
        metavar="RULE",
        help="one of the rules: its edge-aware payload beside controls of as many bytes, by length",
    )
    parser.add_argument("--dtype", help="of the diffusion model: float32, bfloat16 (default: float32)")
    parser.add_argument("--variant", help="of the bundle (default: its own)")
    parser.add_argument("--threads", type=int, help="of the edge model")
    args = parser.parse_args(argv)
    if min(args.passes) < 1:
        parser.error(f"--passes: expected at least 1, found {min(args.passes)}")
    if args.controls and args.controls not in args.rules:
        parser.error(f"--controls: expected one of {' '.join(args.rules)}, found {args.controls}")
    return run_command(
        "passes",
        lambda: _run(args),
        interrupted=f"interrupted: run the same command again to continue from {args.out}",
    )


def _run(args: argparse.Namespace) -> int:
    for rule in args.rules:
        rule_config(rule, DenoiseConfig())  # a wrong one fails before a model is loaded
    place = bundle_of(args.model, args.edge)
    args.data, items = sources(args), questions(args)
    edge = EdgeRuntime.open(place, args.variant, threads=args.threads)
    pipeline = Pipeline.open(args.model, edge=edge, device="cpu", dtype=args.dtype)
    pipeline.require_one_vocabulary("passes")
    if args.fractions:
        args.passes = [steps_for(fraction, pipeline.plan().total_steps) for fraction in args.fractions]
    args.passes = sorted(set(args.passes))
    if args.passes[0] > pipeline.plan().total_steps:
        raise RequestError(
            f"--passes: expected at most the {pipeline.plan().total_steps} steps of the plan, "
            f"found {args.passes[0]}"
        )
    size = parameters(edge.bundle.manifest.model)
    controls = (args.controls, edge.engine) if args.controls else None
    bench = PassesBench(pipeline, args.rules, size, args.passes, controls, args.seed)
    data = args.data[0] if len(args.data) == 1 else args.data
    settings = {"model": args.model, "data": data, "seed": args.seed}
    settings |= {"rules": args.rules, "passes": args.passes}
    settings |= {name: getattr(args, name) for name in ("controls", "dtype") if getattr(args, name)}
    ranking = edge.bundle.manifest.fingerprint(edge.bundle.variant_name).hex()
    store = Store(args.out, settings | {"ranking": ranking})
    left = sum(item.id not in store.records(PHASE) for item in items)
    for _ in track(measure_passes(bench, items, store), "prompts", left, console=Console(stderr=True)):
        pass
    records = [store.records(PHASE)[item.id] for item in items]
    report = {"rules": args.rules, "baseline": BASELINE if BASELINE in args.rules else args.rules[0]}
    report |= _part(records, args.rules)
    report["lengths"] = {name: _part(found, args.rules) for name, found in by_length(records).items()}
    store.write("passes.json", json.dumps(report, indent=1) + "\n")
    write_whole(args.out / "passes.png", plot_passes(report))
    console = Console(width=None if sys.stdout.isatty() else 200)
    if args.controls:
        _main_table(args, records, store, pipeline.plan().total_steps)
        return 0
    for length in (None, *report["lengths"]):
        console.print(passes_table(report, length))
    return 0


SHOWN = {EARLY_STOP: EARLY, SENT_TODAY: AWARE}
"""Readouts in the main table, and their names there."""


def _main_table(args: argparse.Namespace, records: Sequence[Record], store: Store, total: int) -> None:
    """Writes and prints the tables by length; those of all rules are in passes.json."""
    lengths = {
        length: length_report(found, args.rules, args.controls, SHOWN)
        for length, found in by_length(records, LENGTH_GROUPS).items()
    }
    store.write("by_length.json", json.dumps({"total_steps": total, "lengths": lengths}, indent=1) + "\n")
    write_whole(args.out / "by_length.png", length_plot(lengths, total))
    write_tables(
        store,
        "The main table, by length of the answer",
        [
            f"{len(records)} held-out questions of {', '.join(args.data)} (seed {args.seed}), model "
            f"{args.model}, {args.dtype or 'float32'}; a full run has {total} steps, one token a step. "
            f"Machine: {machine()}."
        ],
        length_tables(lengths, total),
    )


def _part(records: Sequence[Record], rules: Sequence[str]) -> Record:
    """The figures of some records."""
    full = {
        name: sum(record["full"][name] for record in records) / len(records) for name in ("right", "steps")
    }
    return {"prompts": len(records), "full": full, "rows": summarise_passes(records, rules)}


if __name__ == "__main__":
    sys.exit(main())
