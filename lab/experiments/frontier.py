"""Bytes against fidelity: `python -m lab.experiments.frontier`.

The same AnchorSets in every codec, on held-out prompts of a shipped pair, with the passes and seconds of
writing and reading them; and the finished answer, as text and as tokens. Every payload is read back before it
counts. Resumable; writes the table that `cloud_anchor.anchor --target-f1` chooses from, and a plot.
Responsible for the measurement. Not responsible for the selections (see `selection`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import zstandard
from rich.console import Console
from rich.progress import track
from rich.table import Table

from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise_steps
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import CONFIDENCE, EDGE_AWARE, PAPER, Selection, select
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from common.files import write_whole
from edge_runtime.decode.forced import FillStats
from edge_runtime.runtime import EdgeRuntime
from lab.conditions import parallel_plan
from lab.options import add_pair, add_questions, questions, sources
from lab.questions.items import Item
from lab.questions.judge import is_right
from lab.statistics import bootstrap
from lab.store import Record, Store
from payload import TOLERANCE, AnchorSet, Codec, PayloadError, Shared, decode, encode

FRACTIONS = (0.1, 0.15, 0.25)
WHOLE = 1.0
BATCH = 20
PHASE = "frontier"

SELECTIONS = (
    Selection(PAPER),
    Selection(EDGE_AWARE, EdgeAwareConfig(threshold=0.5)),
    Selection(EDGE_AWARE, EdgeAwareConfig(threshold=0.0)),
    Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0)),
)
"""The last is every current prediction. Each is taken from a run with the product's commit rule for it, but
without a stop rule.
"""

CODECS = (Codec.TEMPLATE_GZIP, Codec.TEMPLATE_ZSTD, Codec.COMPACT, Codec.PREDICTIVE)
FILLED = (Codec.COMPACT, Codec.PREDICTIVE)
"""One codec of each profile: their payloads are filled as well. The others hold the same anchors."""


class FrontierBench:
    """A pipeline and the runtime of its device, and the measurement of AnchorSets with them.

    tolerance: of codec predictive, in nats.
    """

    def __init__(self, pipeline: Pipeline, edge: EdgeRuntime, tolerance: float) -> None:
        self.pipeline = pipeline
        self.edge = edge
        self.tolerance = tolerance
        self.plan = replace(pipeline.plan(), commit="quota")
        self.fingerprint = edge.bundle.manifest.fingerprint(edge.bundle.variant_name).hex()

    def text(self, ids: Sequence[int]) -> str:
        return self.pipeline.form.tokenizer.decode(list(ids))

    def runs(self, prompts: Sequence[list[int]]) -> tuple[list[list[Denoised]], list[list[Denoised]]]:
        """For each prompt its run stopped at each of the fractions and, last, finished; and its run with
        parallel commits at each of the fractions.
        """
        stops = [steps_for(fraction, self.plan.total_steps) for fraction in FRACTIONS]
        parallel = self._runs_at(prompts, parallel_plan(self.plan, max(stops)), stops)
        return self._runs_at(prompts, self.plan, [*stops, self.plan.total_steps]), parallel

    def _runs_at(
        self, prompts: Sequence[list[int]], config: DenoiseConfig, stops: Sequence[int]
    ) -> list[list[Denoised]]:
        rows: list[list[Denoised]] = [[] for _ in prompts]
        for state in denoise_steps(self.pipeline.model, prompts, config):
            if state.steps[0] in stops:
                for row, run in zip(rows, state.results(self.pipeline.model, config), strict=True):
                    row.append(run)
        return rows

    def item(
        self, name: str, problem: Item, runs: Sequence[Denoised], parallel: Sequence[Denoised]
    ) -> Record:
        """The record of one prompt."""
        full = runs[-1].answer
        text = self.text(full)
        contract = self.pipeline.form.contract
        rows = []
        for fraction, run, parallel_run in zip(FRACTIONS, runs, parallel, strict=False):
            for selection in SELECTIONS:
                setting = {
                    "fraction": fraction,
                    "select": selection.name,
                    "threshold": selection.config.threshold,
                }
                source = parallel_run if selection.sends_predictions else run
                (selected,) = select([source], contract, selection, self.pipeline.scorer)
                rows.append(setting | self.measure(problem, selected.anchors, source, text))
        whole = AnchorSet.of(dict(enumerate(full)), runs[-1].canvas, contract, len(full))
        setting = {"fraction": WHOLE, "select": CONFIDENCE, "threshold": 0.0}
        rows.append(setting | self.measure(problem, whole, runs[-1], text))
        return {
            "id": name,
            "family": problem.benchmark,
            "tokens": len(full),
            "text": {
                how: len(squeeze(text.encode())) for how, squeeze in text_codecs(problem.prompt).items()
            },
            "rows": rows,
        }

    def measure(self, problem: Item, anchors: AnchorSet, run: Denoised, reference: str) -> Record:
        """Bytes, round trip, passes, seconds and the device's text of an AnchorSet, by codec."""
        found: Record = {"sent": len(anchors)}
        for codec in CODECS:
            data, encoded = self._encode(anchors, codec, run)
            found[codec.label] = (
                {"bytes": len(data)} | encoded | self._decode(data, anchors, problem, reference)
            )
        return found

    def _encode(self, anchors: AnchorSet, codec: Codec, run: Denoised) -> tuple[bytes, Record]:
        stats = FillStats()
        started = time.perf_counter()
        shared = Shared(
            anchors.contract,
            run.prompt_ids,
            self.pipeline.form.tokenizer,
            predictor=self.edge.predictive_model.predictor(run.prompt_ids, stats),
        )
        data = encode(anchors, shared, codec, tolerance=self.tolerance, draft=run.predicted_answer)
        seconds = time.perf_counter() - started
        return data, {"encode_passes": stats.passes, "encode_seconds": seconds}

    def _decode(self, data: bytes, anchors: AnchorSet, problem: Item, reference: str) -> Record:
        codec = Codec(data[0] >> 3 & 7)
        edge, started = self.edge, time.perf_counter()
        if codec not in FILLED:
            found = decode(data, Shared(anchors.contract, tokens=self.pipeline.form.tokenizer))
            return {"exact": found == anchors, "decode_seconds": time.perf_counter() - started}
        try:
            request = edge.read(data, problem.prompt)
        except PayloadError as error:  # it happens where numbers differ; the client then asks for compact
            return {"exact": False, "error": str(error)}
        answer = edge.fill(request, edge.options(score_anchors=False, speculate="off"))
        tokens = list(answer)
        text = self.text([token.id for token in tokens])
        return {
            "exact": request.anchors == anchors,
            "decode_seconds": time.perf_counter() - started,
            "decode_passes": answer.stats.passes,
            "f1": word_f1(text, reference),
            "right": is_right(problem, text),
        }


def text_codecs(prompt: str) -> dict[str, Callable[[bytes], bytes]]:
    """General-purpose compressors of the finished text, without any framing of ours."""
    dictionary = zstandard.ZstdCompressionDict(prompt.encode(), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    bare: dict[str, Any] = {"write_checksum": False, "write_content_size": False, "write_dict_id": False}
    return {
        "raw": bytes,
        "gzip": lambda text: gzip.compress(text, 9, mtime=0),
        "zstd-19": zstandard.ZstdCompressor(level=19, **bare).compress,
        "zstd-19, prompt as dictionary": zstandard.ZstdCompressor(
            level=19, dict_data=dictionary, **bare
        ).compress,
    }


def measure_all(bench: FrontierBench, problems: Sequence[Item], store: Store) -> Iterator[None]:
    """Measures what the store does not have yet; yields after each prompt."""
    done = store.records(PHASE)
    left = [(f"{index:04d}", problem) for index, problem in enumerate(problems)]
    left = [(name, problem) for name, problem in left if name not in done]
    for begin in range(0, len(left), BATCH):
        group = left[begin : begin + BATCH]
        prompts = [bench.pipeline.form.ids(problem.prompt) for _, problem in group]
        for (name, problem), *runs in zip(group, *bench.runs(prompts), strict=True):
            store.add(PHASE, bench.item(name, problem, *runs))
            yield


def summarise(records: Sequence[Record]) -> list[Record]:
    """One row a setting: means over the prompts, F1 with its 95% interval."""
    groups: dict[tuple[float, str, float], list[Record]] = defaultdict(list)
    for record in records:
        for row in record["rows"]:
            groups[row["fraction"], row["select"], row["threshold"]].append(row)
    return [_summary(setting, rows) for setting, rows in sorted(groups.items())]


def _summary(setting: tuple[float, str, float], rows: Sequence[Record]) -> Record:
    def mean(codec: Codec, key: str) -> float:
        values = [float(row[codec.label][key]) for row in rows if key in row[codec.label]]
        return sum(values) / max(1, len(values))

    found: Record = dict(zip(("fraction", "select", "threshold"), setting, strict=True))
    found |= {"prompts": len(rows), "sent": sum(row["sent"] for row in rows) / len(rows)}
    for codec in CODECS:
        keys = {key for row in rows for key in row[codec.label]} - {"f1", "error"}
        found[codec.label] = {key: mean(codec, key) for key in sorted(keys)}
        if codec in FILLED:
            scores = bootstrap([row[codec.label].get("f1", 0.0) for row in rows])
            found[codec.label] |= {"f1": scores.mean, "low": scores.low, "high": scores.high}
    found["ratio"] = found[Codec.PREDICTIVE.label]["bytes"] / found[Codec.COMPACT.label]["bytes"]
    return found


def report_of(bench: FrontierBench, records: Sequence[Record]) -> Record:
    """The report as JSON: the pair, the settings to choose from, and all means."""
    rows = summarise(records)
    bundle = bench.edge.bundle
    texts = {how: sum(r["text"][how] for r in records) / len(records) for how in records[0]["text"]}
    whole = next(row for row in rows if row["fraction"] == WHOLE)
    dictionary = texts["zstd-19, prompt as dictionary"]
    return {
        "ranking": bench.fingerprint,
        "contract": bundle.contract.identity,
        "variant": bundle.variant_name,
        "guard": bench.tolerance,
        "prompts": len(records),
        "total_steps": bench.plan.total_steps,
        "settings": [
            {
                **{key: row[key] for key in ("fraction", "select", "threshold")},
                "total_steps": bench.plan.total_steps,
                "codec": codec.label,
                **{key: row[codec.label][key] for key in ("f1", "low", "bytes")},
            }
            for row in rows
            for codec in FILLED
        ],
        "text": texts,
        "whole_against_dictionary": whole[Codec.PREDICTIVE.label]["bytes"] / dictionary,
        "rows": rows,
    }


def bytes_table(report: Record) -> Table:
    table = Table(title=f"Mean bytes of the same anchors, {report['prompts']} held-out prompts")
    for column in ("steps", "selection", "sent", *(c.label for c in CODECS), "ratio", "F1 [95%]", "exact"):
        table.add_column(column, justify="right")
    for row in report["rows"]:
        predictive = row[Codec.PREDICTIVE.label]
        table.add_row(
            f"{row['fraction']:.0%}",
            _selection(row),
            f"{row['sent']:.1f}",
            *(f"{row[codec.label]['bytes']:.1f}" for codec in CODECS),
            f"{row['ratio']:.2f}",
            f"{predictive['f1']:.3f} [{predictive['low']:.3f}, {predictive['high']:.3f}]",
            f"{min(row[codec.label]['exact'] for codec in CODECS):.1%}",
        )
    table.caption = "; ".join(f"finished text, {how}: {size:.1f}" for how, size in report["text"].items())
    return table


def cost_table(report: Record) -> Table:
    table = Table(title="What it takes, means: passes of the edge model, and milliseconds with them")
    for column in ("steps", "selection", "codec", "encode", "ms", "decode and fill", "ms"):
        table.add_column(column, justify="right")
    for row in report["rows"]:
        for codec in FILLED:
            cost = row[codec.label]
            table.add_row(
                f"{row['fraction']:.0%}",
                _selection(row),
                codec.label,
                f"{cost['encode_passes']:.1f}",
                f"{1000 * cost['encode_seconds']:.1f}",
                f"{cost.get('decode_passes', 0):.1f}",
                f"{1000 * cost.get('decode_seconds', 0):.1f}",
            )
    return table


def _selection(row: Record) -> str:
    if row["fraction"] == WHOLE:
        return "finished answer"
    return f"{row['select']} {row['threshold']:g}" if row["select"] == "edge-aware" else str(row["select"])


def verdict(report: Record) -> str:
    """The settings whose payloads are no smaller than the finished text's, one line per codec."""
    finished = next(row for row in report["rows"] if row["fraction"] == WHOLE)
    lines = []
    for codec in FILLED:
        limit = finished[codec.label]["bytes"]
        dearer = [
            f"{row['fraction']:.0%} {_selection(row)}"
            for row in report["rows"]
            if row["fraction"] < WHOLE and row[codec.label]["bytes"] >= limit
        ]
        worse = ", ".join(dearer) or "no setting"
        lines.append(
            f"{codec.label}: the finished answer takes {limit:.1f} bytes; for as many or more: {worse}"
        )
    return "\n".join(lines)


def plot(report: Record) -> bytes:
    """F1 against bytes: a line a selection and codec through the fractions, finished texts at F1 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for index, selection in enumerate(SELECTIONS):
        setting = (selection.name, selection.config.threshold)
        rows = [r for r in report["rows"] if (r["select"], r["threshold"]) == setting]
        rows = [r for r in rows if r["fraction"] < WHOLE]
        marks = ((Codec.TEMPLATE_GZIP, ":", "x"), (Codec.COMPACT, "--", "s"), (Codec.PREDICTIVE, "-", "o"))
        for codec, line, mark in marks:
            scores = [row[(codec if codec in FILLED else Codec.COMPACT).label]["f1"] for row in rows]
            sizes = [row[codec.label]["bytes"] for row in rows]
            label = f"{_selection(rows[0])}, {codec.label}"
            axes.plot(sizes, scores, line, marker=mark, color=f"C{index}", markersize=4, label=label)
    finished = next(row for row in report["rows"] if row["fraction"] == WHOLE)
    points = {f"tokens, {codec.label}": finished[codec.label]["bytes"] for codec in FILLED}
    points |= {f"text, {how}": size for how, size in report["text"].items()}
    for name, size in points.items():
        axes.plot([size], [1.0], marker="*", color="black", markersize=8)
        axes.annotate(f"finished {name}", (size, 1.005), fontsize=6, rotation=60, va="bottom", ha="center")
    axes.set(xlabel="mean bytes a payload", ylabel="mean word F1 against the full run", xscale="log")
    axes.set_ylim(top=1.2)
    shares = ", ".join(f"{fraction:.0%}" for fraction in FRACTIONS)
    axes.set_title(f"{report['prompts']} held-out prompts; along a line {shares} of the steps", fontsize=9)
    axes.legend(fontsize=6, loc="lower right")
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=150)
    return picture.getvalue()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.experiments.frontier",
        description="Measure bytes against fidelity on held-out prompts, the same anchors in every codec.",
        epilog="example: python -m lab.experiments.frontier -o results/frontier --prompts 200",
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="FOLDER", help="results, resumable")
    add_pair(parser)
    add_questions(parser, 200, ("--prompts", "--subset"))
    parser.add_argument("--variant", help="of the bundle (default: its own)")
    parser.add_argument(
        "--rank-tolerance",
        type=float,
        default=TOLERANCE,
        metavar="NATS",
        help=f"of codec predictive (default {TOLERANCE})",
    )
    parser.add_argument(
        "--guard", dest="rank_tolerance", type=float, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    parser.add_argument("--threads", type=int, help="of the edge model")
    args = parser.parse_args(argv)
    return run_command("frontier", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    problems, data = questions(args), " ".join(sources(args))
    edge = EdgeRuntime.open(bundle_of(args.model, args.edge), args.variant, threads=args.threads)
    pipeline = Pipeline.open(args.model, edge=edge, device="cpu")
    pipeline.require_one_vocabulary("frontier")
    bench = FrontierBench(pipeline, edge, args.rank_tolerance)
    settings = {"model": args.model, "seed": args.seed, "guard": args.rank_tolerance}
    settings |= {"data": data} if data != "tiny" else {}
    store = Store(args.out, settings | {"ranking": bench.fingerprint})
    left = args.prompts - len(store.records(PHASE))
    for _ in track(
        measure_all(bench, problems, store), "prompts", max(0, left), console=Console(stderr=True)
    ):
        pass
    report = report_of(bench, list(store.records(PHASE).values())[: args.prompts])
    store.write("frontier.json", json.dumps(report, indent=1) + "\n")
    write_whole(args.out / "frontier.png", plot(report))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(bytes_table(report))
    console.print(cost_table(report))
    print(verdict(report))
    print(f"finished answer against zstd-19 with the prompt: {report['whole_against_dictionary']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
