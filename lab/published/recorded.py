"""Published runs of Dream-7B on a real edge model: `python -m lab run recorded --traces FILE --edge BUNDLE`.

Responsible for the measurement of one run in the edge model's vocabulary: every condition filled, sized and
scored, and the published fills of the same run. Not responsible for reading runs (see `published_runs`), for
conditions (see `conditions`) or for tables (see `recorded_tables`).

Dream's text is the reference. Where the published output was cut at 500 characters, both texts are compared
as far as that, and an answer is decoded no further. The controls are told the length of the answer where the
paper's anchors determine it, as these are.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cloud_anchor.errors import CloudError, RequestError
from cloud_anchor.metrics import word_f1
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import EDGE_AWARE as BY_EDGE
from cloud_anchor.selection.select import Selection
from cloud_anchor.selection.translate import Translation
from edge_runtime.decode.forced import FillOptions, FillStats, Token, fill
from edge_runtime.errors import EdgeError
from edge_runtime.predictor import EnginePredictor
from edge_runtime.text.chat import ChatTemplate
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.tokenizer import Tokenizer
from lab.case import Case, Edge, EdgeAnswer
from lab.conditions import (
    ALONE,
    ANCHORS,
    CONDITIONS,
    EVERY_PREDICTION,
    FULL,
    LEADING,
    PREFIX,
    SCATTERED,
    Situation,
)
from lab.experiment import Experiment, Setup
from lab.loading import edge_of
from lab.options import Options
from lab.published.published_runs import DEFAULT_TOKENIZER, Trace, TraceOptions, TraceTokenizer, recorded_run
from lab.published.qwen_ranks import published_tokenizer
from lab.published.recorded_tables import MAX_TOKENS, tables
from lab.published.wheel_files import HUMANEVAL, fetched
from lab.questions.items import Item, read_items
from lab.questions.judge import is_right
from lab.store import Record
from payload import AnchorSet, Codec, PayloadError, Shared, encode

FRACTIONS = ("0.05", "0.1", "0.15", "0.25")
"""Shares of the steps at which the paper's anchors and the controls are measured."""

EDGE_AWARE = "whole answer, edge-aware"
LOW_GUARD = 1.0
EDGE_AWARE_LOW_GUARD = f"{EDGE_AWARE}, guard {LOW_GUARD:g}"
"""The same with fewer tokens that the edge model prefers by a small margin: on a real edge model the default
guard, chosen on the tiny pair, sends most of an answer.
"""

FILLS = "*fill*.jsonl"
"""The published fills, beside the runs."""

_DOUBLED = re.compile(r"\b([^\W\d_]+)\s+(?=\1\b)", re.IGNORECASE)


def doubled_words(text: str) -> int:
    """Number of words that stand directly behind the same word."""
    return len(_DOUBLED.findall(text))


def dream_form(source: TraceTokenizer) -> PromptForm:
    """Dream's vocabulary as the source of translations; it renders no prompts."""
    template = ChatTemplate(None, ("", ""), ("", ""), ("", ""), "")
    return PromptForm(Tokenizer.from_json(source.text), template, source.contract)


@dataclass(frozen=True)
class RealPair:
    """Dream's vocabulary and an edge model. fills: the published ones, by run."""

    dream: TraceTokenizer
    edge: Edge
    fills: Mapping[str, Mapping[str, Any]]

    @cached_property
    def translation(self) -> Translation:
        return Translation(dream_form(self.dream), self.edge.runtime.bundle.form)

    @cached_property
    def tests(self) -> list[Item]:
        """HumanEval's tasks, whose tests the runs do not hold; none where they cannot be had."""
        try:
            return read_items("humaneval", fetched(HUMANEVAL))
        except CloudError as error:
            print(f"recorded: the answers to HumanEval are not judged: {error}", file=sys.stderr)
            return []


class RecordedCase(Case):
    """One published run with an edge model; equal anchors are filled and sized once.

    Raises RequestError where the file does not tell enough of the run (see `recorded_run`).
    """

    def __init__(self, pair: RealPair, trace: Trace, seed: int = 0) -> None:
        form = pair.translation.edge
        item = Item(trace.name, trace.benchmark, trace.difficulty, trace.prompt, "", {})
        super().__init__(item, form.ids(trace.prompt), form, pair.edge, 0, seed)
        self.pair, self.trace = pair, trace
        self.first = self.situation(min(trace.anchors, key=float))
        self.canvas = self.first.early.canvas

    def situation(self, fraction: str) -> Situation:
        """The run at a fraction of its steps, in the edge model's vocabulary."""
        run = recorded_run(self.trace, fraction, self.pair.dream)
        early = self.pair.translation.translate(run, self.prompt_ids)
        return Situation(early, early.predicted_answer, self.contract, self.pair.edge.scorer, self.seed)

    def sent(self) -> Iterator[tuple[str, str, AnchorSet]]:
        """Fraction, name and anchors of every condition, without fractions that the file does not tell."""
        yield "", ALONE, self.empty()
        yield "", EDGE_AWARE, CONDITIONS[EVERY_PREDICTION](self.first)
        yield (
            "",
            EDGE_AWARE_LOW_GUARD,
            self.first.select(Selection(BY_EDGE, EdgeAwareConfig(guard=LOW_GUARD))),
        )
        for fraction in FRACTIONS:
            try:
                at = self.situation(fraction)
            except RequestError:
                continue
            for name in (ANCHORS, LEADING, PREFIX, SCATTERED):
                anchors = CONDITIONS[name](at)
                yield fraction, name, anchors if name == ANCHORS else replace(anchors, length=at.early.length)

    def written(self, anchors: AnchorSet) -> EdgeAnswer:
        """The edge model's greedy answer, as far as Dream's is known."""
        most = None if anchors.length is not None else max(MAX_TOKENS, len(self.first.full))
        stats = FillStats()
        tokens: list[Token] = []
        characters = 0
        options = FillOptions(score_anchors=False, max_tokens=most)
        answer = fill(self.pair.edge.runtime.engine, self.prompt_ids, anchors, options, stats)
        for token in answer:
            tokens.append(token)
            characters += _characters(self.form.tokenizer.token_bytes(token.id))
            if self.trace.output_cut and characters > len(self.trace.output):
                answer.close()
        return EdgeAnswer([token.id for token in tokens], stats.passes)

    def predictive(self, anchors: AnchorSet, draft: Sequence[int]) -> int:
        """Bytes under codec predictive, with the activations of the answers.

        A payload that another processor is to read needs float32 ones, whose rows differ a little.
        """
        bundle = self.pair.edge.runtime.bundle
        identity = bundle.manifest.fingerprint(bundle.variant_name)
        engine = self.pair.edge.runtime.engine
        predictor = EnginePredictor(engine, self.prompt_ids, self.contract, identity)
        shared = Shared(self.contract, self.prompt_ids, self.form.tokenizer, predictor=predictor)
        return len(encode(anchors, shared, Codec.PREDICTIVE, draft=draft))

    def measured(self, anchors: AnchorSet) -> dict[str, float]:
        """Size, passes and scores of one condition; both sides know the prompt."""
        answer = self.written(anchors)
        found = {"sent": len(anchors), "passes": answer.passes, "compact": 0, "predictive": 0}
        if len(anchors):
            found |= {"compact": self.size(anchors), "predictive": self.predictive(anchors, answer.ids)}
        return found | self.compared(self.text(answer.ids))

    def record(self) -> Record:
        """All figures of the run."""
        rows = [{"condition": FULL, "fraction": "", "passes": 0} | self.compared(self.trace.output)]
        known: dict[tuple[object, ...], dict[str, float]] = {}
        for fraction, name, anchors in self.sent():
            place = (anchors.positions, anchors.ids, anchors.length)
            if place not in known:
                known[place] = self.measured(anchors)
            rows.append({"condition": name, "fraction": fraction, **known[place]})
        size = len(self.first.full)
        own = self.own(self.first.full, range(size)) or 0.0
        found = {"answers": rows, "published": self.published(), "edge": self.pair.edge.name}
        return found | {"differs": round((1 - own) * size), "edge_tokens": size}

    def published(self) -> list[Record]:
        """The published fills of the run, scored from their texts; none where the output was cut."""
        trace, own = self.trace, self.pair.fills.get(self.trace.name)
        if own is None or trace.output_cut:
            return []
        texts = [("", ALONE, own["alone_text"])]
        texts += [(key[3:], ANCHORS, each["real_text"]) for key, each in own.items() if key.startswith("sf_")]
        return [
            {"fraction": at, "condition": name, "f1": word_f1(text, trace.output)} for at, name, text in texts
        ]

    def compared(self, text: str) -> dict[str, float]:
        """Word F1 against Dream's text, and `right` where a whole answer can be checked."""
        wanted = self.trace.output
        seen = text[: len(wanted)] if self.trace.output_cut else text
        found = {"f1": round(word_f1(seen, wanted), 6), "exact": float(seen.strip() == wanted.strip())}
        return found if self.judge is None else found | {"right": float(is_right(self.judge, text))}

    @cached_property
    def judge(self) -> Item | None:
        """What judges the answer; None where nothing does, or where Dream's own answer was cut."""
        trace = self.trace
        if trace.output_cut or not trace.truth:
            return None
        match trace.benchmark:
            case "gsm8k":
                return replace(self.item, kind="number", key={"number": trace.truth.replace(",", "")})
            case "mmlu" | "arc":
                return replace(self.item, kind="letter", key={"letter": trace.truth})
        # The published prompts put a sentence before the task.
        of = (item for item in self.pair.tests if trace.prompt.strip().endswith(item.prompt.strip()))
        return next(of, None)


def _characters(data: bytes) -> int:
    """Number of characters that begin in these bytes of a UTF-8 text."""
    return sum(byte & 0xC0 != 0x80 for byte in data)


def runs(setup: Setup) -> list[Trace]:
    """The runs in a random order, so that an interrupted measurement has a sample of all."""
    traces: list[Trace] = setup.own.runs
    random.Random(setup.options.seed).shuffle(traces)
    return traces


@lru_cache(1)
def open_pair(own: TraceOptions, options: Options) -> RealPair:
    """Both sides of a measurement. Raises CloudError, EdgeError or InputError."""
    file = Path(str(own.traces))
    dream = TraceTokenizer(Path(own.tokenizer or published_tokenizer(file.parent / DEFAULT_TOKENIZER)))
    runtime = edge_of(options)
    model = runtime.bundle.manifest.model
    edge = Edge(f"{model.id} {runtime.bundle.variant_name}", runtime)
    lines = [
        line for path in sorted(file.parent.glob(FILLS)) for line in path.read_text("utf-8").splitlines()
    ]
    fills = {f"{row['benchmark']}/{row['index']}": row for row in map(json.loads, lines)}
    return RealPair(dream, edge, fills)


def measure(setup: Setup, traces: Sequence[Trace]) -> Iterator[Record]:
    pair = open_pair(setup.own, setup.options)
    for trace in traces:
        about: Record = {"benchmark": trace.benchmark, "difficulty": trace.difficulty, "length": trace.length}
        about |= {"cut": trace.output_cut, "doubled": doubled_words(trace.output)}
        try:
            yield about | RecordedCase(pair, trace, setup.options.seed).record()
        except (RequestError, EdgeError, PayloadError) as error:
            yield about | {"error": f"{trace.name}: {type(error).__name__}: {error}"}


EXPERIMENT = Experiment(
    "recorded",
    "Published runs of Dream-7B on a real edge model",
    measure,
    tables,
    options=TraceOptions,
    items=runs,
    opens=False,
)
