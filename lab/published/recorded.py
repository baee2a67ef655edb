"""Published runs of Dream-7B on a real edge model: every condition of one run, filled, sized and scored.

Responsible for the measurement of one run in the edge model's vocabulary, and for the records of a results
folder, which an interrupted measurement continues. Not responsible for reading runs (see `traces`), for the
conditions (see `conditions`) or for tables (see `recorded_tables`).

Dream's text is the reference. Where the published output was cut at 500 characters, both texts are compared
as far as that, and an answer is decoded no further. The controls are told the length of the answer where the
paper's anchors determine it, as these are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cloud_anchor.errors import RequestError
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
    FULL,
    LEADING,
    PREFIX,
    SCATTERED,
    Situation,
    aware,
)
from lab.published.published_runs import Trace, TraceTokenizer, recorded_run
from lab.questions.items import Item
from lab.questions.judge import is_right
from lab.store import Record, Store
from payload import AnchorSet, Codec, PayloadError, Shared, encode

FRACTIONS = ("0.05", "0.1", "0.15", "0.25")
"""Shares of the steps at which the paper's anchors and the controls are measured."""

RECORDS = "recorded"
"""The phase of a results folder."""

EDGE_AWARE = "whole answer, edge-aware"
LOW_GUARD = 1.0
EDGE_AWARE_LOW_GUARD = f"{EDGE_AWARE}, guard {LOW_GUARD:g}"
"""The same with fewer tokens that the edge model prefers by a small margin: on a real edge model the default
guard, chosen on the tiny pair, sends most of an answer.
"""

MAX_TOKENS = 256
"""Most tokens of an answer whose length is not known, as in the published script; more where Dream's is
longer.
"""

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
    """Dream's vocabulary and an edge model.

    tests: items of benchmarks whose runs do not hold what judges them (HumanEval).
    """

    dream: TraceTokenizer
    edge: Edge
    tests: Sequence[Item] = ()

    @cached_property
    def translation(self) -> Translation:
        return Translation(dream_form(self.dream), self.edge.runtime.bundle.form)


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
        yield "", EDGE_AWARE, CONDITIONS[aware(0.0)].select(self.first)
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
                anchors = CONDITIONS[name].select(at)
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
        return {"answers": rows, "differs": round((1 - own) * size), "edge_tokens": size}

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


def measure_runs(pair: RealPair, traces: Sequence[Trace], store: Store, seed: int) -> Iterator[Trace]:
    """Measures the runs that have no record yet, and yields each run when it has one."""
    for trace in traces:
        if trace.name not in store.records(RECORDS):
            about: Record = {"id": trace.name, "benchmark": trace.benchmark, "difficulty": trace.difficulty}
            about |= {"length": trace.length, "cut": trace.output_cut, "doubled": doubled_words(trace.output)}
            try:
                store.add(RECORDS, about | RecordedCase(pair, trace, seed).record())
            except (RequestError, EdgeError, PayloadError) as error:
                store.add(RECORDS, about | {"error": f"{type(error).__name__}: {error}"})
        yield trace
