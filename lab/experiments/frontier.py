"""Experiment `frontier`: bytes against fidelity.

The same AnchorSets in every codec, on held-out prompts of a shipped pair, with the passes and seconds of
writing and reading them; and the finished answer, as text and as tokens. Every payload is read back before it
counts; its text is held against the finished answer of its own run. Writes the table that
`cloud_anchor.anchor --target-f1` chooses from. Not responsible for the selections (see `selection`).
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import zstandard

from cloud_anchor.sampling.config import steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import CONFIDENCE, EDGE_AWARE, PAPER, Selection, select
from common.cli import option
from edge_runtime.decode.forced import FillStats
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.passes import BASELINE, runs_at
from lab.plots import Picture, png
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Column, Row, Table, mean, rows
from payload import TOLERANCE, AnchorSet, Codec, PayloadError, Shared, decode, encode

FRACTIONS = (0.1, 0.15, 0.25)
WHOLE = 1.0

SELECTIONS = (
    Selection(PAPER),
    Selection(EDGE_AWARE, EdgeAwareConfig(threshold=0.5)),
    Selection(EDGE_AWARE, EdgeAwareConfig(threshold=0.0)),
    Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0)),
)
"""The last is every current prediction. Each is taken from a run with the product's commit rule for it."""

CODECS = (Codec.TEMPLATE_GZIP, Codec.COMPACT, Codec.PREDICTIVE)
FILLED = (Codec.COMPACT, Codec.PREDICTIVE)
"""One codec of each profile: their payloads are filled as well. The others hold the same anchors."""


@dataclass(frozen=True)
class FrontierOptions:
    rank_tolerance: float = option(TOLERANCE, "of codec predictive", metavar="NATS")


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are denoised together.

    Each prompt's runs, one token a step and in parallel, are seen at each of the fractions and finished.
    """
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    plan = pipeline.plan()
    prompts = [pipeline.form.ids(item.prompt) for item in items]
    stops = [steps_for(fraction, plan.total_steps) for fraction in FRACTIONS]
    parallel, by_quota = (
        runs_at(pipeline, prompts, rule, [*stops, plan.total_steps]) for rule in (BASELINE, "quota")
    )
    for item, prompt, runs, beside in zip(items, prompts, by_quota, parallel, strict=True):
        sized = _Sized(setup, Case(item, prompt, pipeline.form, [edge], plan.canvas, 0))
        found = []
        for fraction, stop in zip(FRACTIONS, stops, strict=True):
            for selection in SELECTIONS:
                own = beside if selection.rule.sends_predictions else runs
                source, end = own[stop], own[plan.total_steps].answer
                (selected,) = select([source], pipeline.form.contract, selection, pipeline.scorer)
                setting = {"select": selection.name, "threshold": selection.config.threshold}
                found.append({"fraction": fraction} | setting | sized.by_codec(selected.anchors, source, end))
        finished = runs[plan.total_steps]
        full = finished.answer
        whole = AnchorSet.of(dict(enumerate(full)), finished.canvas, pipeline.form.contract, len(full))
        setting = {"fraction": WHOLE, "select": CONFIDENCE, "threshold": 0.0}
        found.append(setting | sized.by_codec(whole, finished, full))
        text = pipeline.form.tokenizer.decode(list(full)).encode()
        sizes = {how: len(squeeze(text)) for how, squeeze in text_codecs(item.prompt).items()}
        yield {"tokens": len(full), "text": [sizes], "answers": found}


class _Sized:
    """Bytes, round trip, passes, seconds and the device's text of one prompt's AnchorSets, by codec."""

    def __init__(self, setup: Setup, case: Case) -> None:
        own: FrontierOptions = setup.own
        self._tolerance, self._edge = own.rank_tolerance, setup.lab.edges[0].runtime
        self._case = case

    def by_codec(self, anchors: AnchorSet, run: Denoised, full: Sequence[int]) -> Record:
        """Fields are named CODEC_FIGURE. full: the run's finished answer."""
        found: Record = {"sent": len(anchors)}
        for codec in CODECS:
            data, encoded = self._encode(anchors, codec, run)
            figures = {"bytes": len(data)} | encoded | self._decode(data, anchors, codec, full)
            found |= {f"{codec.label}_{name}": value for name, value in figures.items()}
        return found

    def _encode(self, anchors: AnchorSet, codec: Codec, run: Denoised) -> tuple[bytes, Record]:
        stats = FillStats()
        started = time.perf_counter()
        predictor = self._edge.predictive_model.predictor(run.prompt_ids, stats)
        shared = Shared(anchors.contract, run.prompt_ids, self._case.form.tokenizer, predictor=predictor)
        data = encode(anchors, shared, codec, tolerance=self._tolerance, draft=run.predicted_answer)
        seconds = time.perf_counter() - started
        return data, {"encode_passes": stats.passes, "encode_seconds": seconds}

    def _decode(self, data: bytes, anchors: AnchorSet, codec: Codec, full: Sequence[int]) -> Record:
        case, edge, started = self._case, self._edge, time.perf_counter()
        if codec not in FILLED:
            found = decode(data, Shared(anchors.contract, tokens=case.form.tokenizer))
            return {"exact": found == anchors, "decode_seconds": time.perf_counter() - started}
        try:
            request = edge.read(data, case.item.prompt)
        except PayloadError as error:  # it happens where numbers differ; the client then asks for compact
            return {"exact": False, "f1": 0.0, "error": str(error)}
        answer = edge.fill(request, edge.options(score_anchors=False))
        ids = [token.id for token in answer]
        return {
            "exact": request.anchors == anchors,
            "decode_seconds": time.perf_counter() - started,
            "decode_passes": answer.stats.passes,
            **case.judged(ids, full),
        }


DICTIONARY = "zstd-19, prompt as dictionary"


def text_codecs(prompt: str) -> dict[str, Callable[[bytes], bytes]]:
    """General-purpose compressors of the finished text, without any framing of ours."""
    dictionary = zstandard.ZstdCompressionDict(prompt.encode(), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    bare: dict[str, Any] = {"write_checksum": False, "write_content_size": False, "write_dict_id": False}
    return {
        "raw": bytes,
        "gzip": lambda text: gzip.compress(text, 9, mtime=0),
        "zstd-19": zstandard.ZstdCompressor(level=19, **bare).compress,
        DICTIONARY: zstandard.ZstdCompressor(level=19, dict_data=dictionary, **bare).compress,
    }


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    finished = answers.where(fraction=WHOLE)

    def ratio(group: Answers) -> float:
        return _mean(group, Codec.PREDICTIVE, "bytes") / _mean(group, Codec.COMPACT, "bytes")

    def exact(group: Answers) -> float:
        return min(_mean(group, codec, "exact") for codec in CODECS)

    sizes: dict[str, Column] = {codec.label: mean(f"{codec.label}_bytes") for codec in CODECS}
    columns: dict[str, Column] = {"N": len, "sent": mean("sent"), **sizes, "predictive over compact": ratio}
    f1 = f"{Codec.PREDICTIVE.label}_f1"
    groups = [(_labels(setting), group) for setting, group in _settings(answers)]
    bytes_ = rows(groups, {**columns, "F1": f1, "exact": exact})
    cost: list[Row] = []
    for codec in FILLED:
        of_codec: dict[str, Column] = {
            f"{what}, {unit}": partial(_scaled, f"{codec.label}_{what}_{field}", scale)
            for what in ("encode", "decode")
            for unit, field, scale in (("passes", "passes", 1), ("ms", "seconds", 1000))
        }
        cost += rows(((labels | {"codec": codec.label}, group) for labels, group in groups), of_codec)
    texts = Answers.of(records, "text")
    text: list[Row] = [
        {"finished text": how, "N": len(texts), "bytes": texts.cell(how)} for how in records[0]["text"][0]
    ]
    beside = sum(finished.values(f"{Codec.PREDICTIVE.label}_bytes")) / sum(texts.values(DICTIONARY))
    note = f"The finished answer in codec predictive against {DICTIONARY}: {beside:.3f}."
    return [
        Table.of("frontier", "Mean bytes of the same anchors", bytes_, _worse(answers)),
        Table.of("frontier-cost", "Passes of the edge model, and milliseconds with them", cost),
        Table.of("frontier-text", "The finished text under general-purpose compressors", text, note),
    ]


def _settings(answers: Answers) -> list[tuple[tuple[float, str, float], Answers]]:
    """The rows of each setting (fraction, selection, threshold), by setting."""
    found = ((values, group) for values, group in answers.groups("fraction", "select", "threshold"))
    return sorted(found, key=lambda each: each[0])


def _labels(setting: tuple[float, str, float]) -> Row:
    return {"steps": f"{setting[0]:.0%}", "selection": _selection(*setting)}


def _selection(fraction: float, select_: str, threshold: float) -> str:
    if fraction == WHOLE:
        return "finished answer"
    return f"{select_} {threshold:g}" if select_ == EDGE_AWARE else select_


def _mean(group: Answers, codec: Codec, figure: str) -> float:
    values = group.values(f"{codec.label}_{figure}")
    return sum(values) / max(1, len(values))


def _scaled(metric: str, scale: float, group: Answers) -> float:
    values = group.values(metric)
    return scale * sum(values) / max(1, len(values))


def _worse(answers: Answers) -> str:
    """The settings whose payloads are no smaller than the finished answer's, by codec."""
    finished = answers.where(fraction=WHOLE)
    lines = []
    for codec in FILLED:
        limit = _mean(finished, codec, "bytes")
        dearer = [
            f"{setting[0]:.0%} {_selection(*setting)}"
            for setting, group in _settings(answers)
            if setting[0] < WHOLE and _mean(group, codec, "bytes") >= limit
        ]
        worse = ", ".join(dearer) or "no setting"
        lines.append(
            f"{codec.label}: the finished answer takes {limit:.1f} bytes; for as many or more: {worse}."
        )
    return " ".join(lines)


def files(records: Records, about: About) -> dict[str, str]:
    """The settings to choose from, for this pair (see `cloud_anchor.selection.target`)."""
    settings = []
    for (fraction, select_, threshold), group in _settings(Answers.of(records)):
        for codec in FILLED:
            f1 = group.cell(f"{codec.label}_f1")
            assert f1 is not None  # a payload that cannot be read has F1 0
            setting = {"fraction": fraction, "select": select_, "threshold": threshold}
            setting |= {"total_steps": about.total_steps, "codec": codec.label}
            settings.append(setting | {"f1": f1.mean, "low": f1.low, "bytes": _mean(group, codec, "bytes")})
    own: FrontierOptions = about.own
    report = {**about.bundle, "guard": own.rank_tolerance, "prompts": len(records)}
    report |= {"total_steps": about.total_steps, "settings": settings}
    return {"frontier.json": json.dumps(report, indent=1) + "\n"}


def plots(records: Records, about: About) -> Iterator[Picture]:
    shares = ", ".join(f"{fraction:.0%}" for fraction in FRACTIONS)
    title = f"{len(records)} held-out prompts; along a line {shares} of the steps"
    yield Picture("frontier", title, png(partial(_draw, records, title), (12, 5), 150))


def _draw(records: Records, title: str, figure: Any) -> None:
    """F1 against bytes: a panel a codec, a line a selection through the fractions, finished texts at F1 1."""
    answers, texts = Answers.of(records), Answers.of(records, "text")
    codecs = (Codec.TEMPLATE_GZIP, Codec.COMPACT, Codec.PREDICTIVE)
    panels = figure.subplots(1, len(codecs), sharex=True, sharey=True)
    for axes, codec in zip(panels, codecs, strict=True):
        for index, selection in enumerate(SELECTIONS):
            here = answers.where(select=selection.name, threshold=selection.config.threshold)
            groups = [(setting, group) for setting, group in _settings(here) if setting[0] < WHOLE]
            filled = codec if codec in FILLED else Codec.COMPACT
            scores = [_mean(group, filled, "f1") for _, group in groups]
            sizes = [_mean(group, codec, "bytes") for _, group in groups]
            label = _selection(*groups[0][0])
            axes.plot(sizes, scores, marker="o", color=f"C{index}", markersize=4, label=label)
        axes.set(xlabel="mean bytes a payload", xscale="log", title=codec.label)
    axes = panels[-1]
    finished = answers.where(fraction=WHOLE)
    points = {f"tokens, {codec.label}": _mean(finished, codec, "bytes") for codec in FILLED}
    points |= {f"text, {how}": sum(texts.values(how)) / len(texts) for how in records[0]["text"][0]}
    for name, size in points.items():
        axes.plot([size], [1.0], marker="*", color="black", markersize=8)
        axes.annotate(f"finished {name}", (size, 1.005), fontsize=6, rotation=60, va="bottom", ha="center")
    axes.set_ylim(top=1.2)
    panels[0].set_ylabel("mean word F1 against the own full run")
    panels[0].legend(fontsize=6, loc="lower right")
    figure.suptitle(title, fontsize=9)


EXPERIMENT = Experiment(
    "frontier",
    "Bytes against fidelity, the same anchors in every codec",
    measure,
    tables,
    plots=plots,
    files=files,
    options=FrontierOptions,
    together=20,
)
