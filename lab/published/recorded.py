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
from itertools import count, takewhile

import numpy as np
from numpy.typing import NDArray

from cloud_anchor.errors import RequestError
from cloud_anchor.metrics import word_f1
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import EDGE_AWARE as BY_EDGE
from cloud_anchor.selection.select import Selection
from cloud_anchor.selection.translate import Translation
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, common_prefix, fill
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.errors import EdgeError
from edge_runtime.predictor import EnginePredictor
from edge_runtime.runtime import EdgeRuntime
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
    Select,
    Situation,
    aware,
)
from lab.published.published_runs import Trace, TraceTokenizer, recorded_run
from lab.published.row_pool import PooledRow, RowPool
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


def known_length(select: Select) -> Select:
    """A control that is told the answer's length where the paper's anchors determine it."""

    def told(at: Situation) -> AnchorSet:
        return replace(select(at), length=at.early.length)

    return told


AT_A_FRACTION: dict[str, Select] = {
    ANCHORS: CONDITIONS[ANCHORS].select,
    **{name: known_length(CONDITIONS[name].select) for name in (LEADING, PREFIX, SCATTERED)},
}
"""Conditions that depend on what was committed, by the name that tables give them."""


@dataclass(frozen=True)
class RealPair:
    """Dream's vocabulary and an edge model.

    pool:  rows that decode the answers.
    tests: items of benchmarks whose runs do not hold what judges them (HumanEval).
    """

    dream: TraceTokenizer
    translation: Translation
    edge: Edge
    pool: RowPool
    tests: Sequence[Item]

    @classmethod
    def of(cls, dream: TraceTokenizer, edge: Edge, rows: int, tests: Sequence[Item] = ()) -> RealPair:
        """The pair of Dream's tokenizer and an edge model, decoding `rows` answers at once.

        Raises RequestError for a graph that cannot run several.
        """
        bundle = edge.runtime.bundle
        translation = Translation(dream_form(dream), bundle.form)
        pool = RowPool(bundle, rows, context=bundle.context, threads=edge.runtime.threads)
        return cls(dream, translation, edge, pool, tests)


class RecordedCase(Case):
    """One published run with an edge model; equal anchors are filled and sized once.

    Raises RequestError where the file does not tell enough of the run (see `recorded_run`).
    """

    def __init__(self, pair: RealPair, trace: Trace, seed: int = 0) -> None:
        form = pair.translation.edge
        item = Item(trace.name, trace.benchmark, trace.difficulty, trace.prompt, "", {})
        super().__init__(item, form.ids(trace.prompt), form, [pair.edge], 0, seed)
        self.pair, self.trace = pair, trace
        self.first = self.situation(min(trace.anchors, key=float))
        self.canvas = self.first.early.canvas
        self.written: dict[Anchored, EdgeAnswer] = {}
        self.predictor = RememberingPredictor(pair.edge.runtime, self.prompt_ids)

    def situation(self, fraction: str) -> Situation:
        """The run at a fraction of its steps, in the edge model's vocabulary."""
        run = recorded_run(self.trace, fraction, self.pair.dream)
        early = self.pair.translation.translate(run, self.prompt_ids)
        return Situation(early, early.predicted_answer, self.contract, self.pair.edge.scorer, self.seed)

    @property
    def full(self) -> list[int]:
        """Dream's answer in the edge model's vocabulary, as far as the file tells it."""
        return self.first.full

    @cached_property
    def sent(self) -> list[tuple[str, str, AnchorSet]]:
        """Fraction, name and anchors of every condition, without fractions that the file does not tell."""
        low = Selection(BY_EDGE, EdgeAwareConfig(guard=LOW_GUARD))
        found = [("", ALONE, self.empty()), ("", EDGE_AWARE, CONDITIONS[aware(0.0)].select(self.first))]
        found.append(("", EDGE_AWARE_LOW_GUARD, self.first.select(low)))
        for fraction in FRACTIONS:
            try:
                at = self.situation(fraction)
            except RequestError:
                continue
            found += [(fraction, name, select(at)) for name, select in AT_A_FRACTION.items()]
        return found

    def jobs(self) -> list[AnchorSet]:
        """The different anchors among the conditions."""
        return list({key(anchors): anchors for _, _, anchors in self.sent}.values())

    def write(self, anchors: AnchorSet, engine: Engine) -> None:
        """Keeps the edge model's greedy answer."""
        most = None if anchors.length is not None else max(MAX_TOKENS, len(self.full))
        stats = FillStats()
        tokens: list[Token] = []
        characters = 0
        if isinstance(engine, PooledRow):
            known = takewhile(lambda pair: pair[0] == pair[1], zip(anchors.positions, count(), strict=False))
            engine.share([*self.prompt_ids, *(anchors.by_position[place] for place, _ in known)])
        options = FillOptions(score_anchors=False, max_tokens=most)
        answer = fill(engine, self.prompt_ids, anchors, options, stats)
        for token in answer:
            tokens.append(token)
            characters += _characters(self.form.tokenizer.token_bytes(token.id))
            if self.trace.output_cut and characters > len(self.trace.output):
                answer.close()
        forced = [token.source is Source.ANCHOR for token in tokens]
        self.written[key(anchors)] = EdgeAnswer([token.id for token in tokens], forced, stats.passes)

    def sizes(self, anchors: AnchorSet) -> dict[str, int]:
        """Payload bytes by codec; both sides know the prompt. Nothing sent is no payload."""
        if not len(anchors):
            return {"compact": 0, "predictive": 0}
        place = (Codec.PREDICTIVE, *key(anchors))
        if place not in self._sizes:
            shared = Shared(self.contract, self.prompt_ids, self.form.tokenizer, predictor=self.predictor)
            draft = self.written[key(anchors)].ids
            self._sizes[place] = len(encode(anchors, shared, Codec.PREDICTIVE, draft=draft))
        return {"compact": self.size(anchors), "predictive": self._sizes[place]}

    def record(self) -> Record:
        """All figures of the run, once its answers are written."""
        rows = [{"condition": FULL, "fraction": "", "passes": 0} | self.compared(self.trace.output)]
        for fraction, name, anchors in self.sent:
            written = self.written[key(anchors)]
            row = {"condition": name, "fraction": fraction, "sent": len(anchors), "passes": written.passes}
            rows.append(row | self.sizes(anchors) | self.compared(self.text(written.ids)))
        differs = sum(int(a) != b for a, b in zip(self.predictor.greedy(self.full), self.full, strict=True))
        return {"answers": rows, "differs": differs, "edge_tokens": len(self.full)}

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


Anchored = tuple[tuple[int, ...], tuple[int, ...], int | None]


def key(anchors: AnchorSet) -> Anchored:
    """What distinguishes the anchors of one run."""
    return anchors.positions, anchors.ids, anchors.length


def _characters(data: bytes) -> int:
    """Number of characters that begin in these bytes of a UTF-8 text."""
    return sum(byte & 0xC0 != 0x80 for byte in data)


class RememberingPredictor(EnginePredictor):
    """The edge model of one prompt for codec predictive, as it runs by default.

    Rows of the text read last are kept, since most payloads of one run begin with the same text. Its
    activations are those of the answers; a payload that another processor is to read needs float32 ones,
    whose rows differ a little.
    """

    def __init__(self, runtime: EdgeRuntime, prompt_ids: Sequence[int]) -> None:
        bundle = runtime.bundle
        identity = bundle.manifest.fingerprint(bundle.variant_name)
        super().__init__(runtime.engine, prompt_ids, bundle.contract, identity)
        self._read: list[int] = []
        self._kept: list[NDArray[np.float64]] = []

    def read(self, text: Sequence[int], start: int) -> Iterator[NDArray[np.float64]]:
        """See `payload.Predictor`."""
        common = common_prefix(self._read, text)
        if common < len(self._read):
            self._read, self._kept = self._read[:common], self._kept[: common + 1]
        yield from self._kept[start : len(text) + 1]
        begin = max(start, len(self._kept))
        if begin > len(text):
            return
        for place, row in enumerate(super().read(text, begin), begin):
            if place == len(self._kept):
                self._kept.append(row)
                self._read = list(text[:place])
            yield row

    def _row(self, logits: Logits) -> NDArray[np.float64]:
        """As `EnginePredictor` has it, in a third of the time and equal to the last digits."""
        wide = logits.astype(np.float64)
        top = wide.max()
        row = np.append(wide[: self._vocab_size], np.logaddexp.reduce(wide[self._eos]))
        row[self._reserved] = -np.inf
        row -= top + np.log(np.exp(wide - top).sum())
        return row

    def greedy(self, text: Sequence[int]) -> list[int]:
        """The model's own ordinary token at every position of a text."""
        return [int(row[:-1].argmax()) for row, _ in zip(self.read(text, 0), text, strict=False)]


TOGETHER = 16
"""Runs whose answers are decoded together."""


def measure_runs(
    pair: RealPair, traces: Sequence[Trace], store: Store, seed: int = 0, together: int = TOGETHER
) -> Iterator[Trace]:
    """Measures the runs that have no record yet, and yields each run when it has one."""
    for begin in range(0, len(traces), together):
        group = traces[begin : begin + together]
        cases: list[RecordedCase] = []
        jobs: list[tuple[RecordedCase, AnchorSet]] = []
        for trace in group:
            if trace.name in store.records(RECORDS):
                continue
            try:
                case = RecordedCase(pair, trace, seed)
                jobs += [(case, anchors) for anchors in case.jobs()]
                cases.append(case)
            except (RequestError, EdgeError, PayloadError) as error:
                store.add(RECORDS, about(trace) | {"error": f"{type(error).__name__}: {error}"})
        pair.pool.work(jobs, lambda job, engine: job[0].write(job[1], engine))
        jobs.clear()
        while cases:  # what a case has read takes tens of megabytes
            case = cases.pop(0)
            store.add(RECORDS, about(case.trace) | case.record())
        yield from group


def about(trace: Trace) -> Record:
    """The fields of a record that say which run it is of."""
    fields = {"id": trace.name, "benchmark": trace.benchmark, "difficulty": trace.difficulty}
    return fields | {"length": trace.length, "cut": trace.output_cut, "doubled": doubled_words(trace.output)}
