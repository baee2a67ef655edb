"""The loaded models of a measurement, and one item with them: what an AnchorSet is worth, and what it takes.

Responsible for filling, sizing and scoring anchors, once. Not responsible for which anchors are compared (see
`conditions`, `experiments`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.scorer import Scorer
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.prompt_form import PromptForm
from lab.autoregressive import Autoregressive
from lab.conditions import ALONE, CONDITIONS, NOT_FILLED, ORDERS, Situation
from lab.questions.items import Item
from lab.questions.judge import coverage
from lab.questions.similarity import edit_similarity
from lab.runs import Run
from payload import NO_EXTRAS, AnchorSet, Codec, Extras, Shared, encode

FRACTIONS = (0.05, 0.1, 0.15, 0.25, 0.4)
"""Shares of the steps at which everything is compared."""

PAPER_FRACTIONS = (0.1, 0.15, 0.25)


@dataclass(frozen=True)
class Edge:
    """One edge model: its name in the tables, and its bundle, loaded."""

    name: str
    runtime: EdgeRuntime

    @property
    def parameters(self) -> int:
        """Of a Qwen2 of the bundle's shape, with the embedding counted once."""
        shape = self.runtime.bundle.manifest.model
        hidden, head = shape.hidden_size, shape.head_dim
        queries, keys = shape.num_attention_heads * head, shape.num_key_value_heads * head
        attention = hidden * queries * 2 + hidden * keys * 2 + queries + 2 * keys
        layer = attention + 3 * hidden * shape.intermediate_size + 2 * hidden
        return shape.vocab_size * hidden + shape.num_hidden_layers * layer + hidden

    @cached_property
    def scorer(self) -> Scorer:
        return Scorer(self.runtime.engine, self.runtime.bundle.contract.eos_ids)


@dataclass(frozen=True)
class Lab:
    """The loaded models.

    pipeline: the diffusion model and its prompt form, with the first edge model.
    base:    canvas, steps and seed of a run; the orders vary the rest.
    edges:   the first is the one that most phases use; several are in one precision.
    thinker: an autoregressive model in PyTorch, the target of drafts; None where there is none.
    """

    pipeline: Pipeline
    base: DenoiseConfig
    edges: Sequence[Edge]
    thinker: Autoregressive | None = None

    def step(self, fraction: float) -> int:
        return steps_for(fraction, self.base.total_steps)

    @property
    def steps(self) -> list[int]:
        """Steps at which all conditions are compared, ascending."""
        return sorted({self.step(fraction) for fraction in FRACTIONS})

    @property
    def paper_steps(self) -> list[int]:
        """Steps of the paper's tables, 10%, 15% and 25%, ascending."""
        return sorted({self.step(fraction) for fraction in PAPER_FRACTIONS})

    def room(self, prompt_ids: Sequence[int]) -> str | None:
        """The reason why a prompt is too long for one of the models, or None."""
        size = len(prompt_ids) + self.base.canvas
        limits = [("diffusion model", self.pipeline.model.context)]
        limits += [(edge.name, edge.runtime.engine.context) for edge in self.edges]
        for name, most in limits:
            if size > most:
                return (
                    f"expected prompt and canvas within the {most} positions of {name}, found a prompt of "
                    f"{len(prompt_ids)} tokens and a canvas of {self.base.canvas}"
                )
        return None


def needs_thinker(lab: Lab) -> str | None:
    """Why a phase cannot be run without one."""
    return None if lab.thinker else "expected an autoregressive checkpoint (--thinker), found none"


class EdgeAnswer(NamedTuple):
    """An answer of the edge: token ids, and the passes it took."""

    ids: list[int]
    passes: int


def seed_of(name: str, seed: int) -> int:
    """The seed of what is drawn for one item: another for each, and the same in every run."""
    return sum(name.encode()) * 1_000_003 + seed


class Case:
    """One item and an edge model; fills are cached."""

    def __init__(
        self, item: Item, prompt_ids: Sequence[int], form: PromptForm, edge: Edge, canvas: int, seed: int
    ) -> None:
        """form: prompts, text and contract of the edge model. seed: of the run, see `seed_of`."""
        self.item, self.prompt_ids, self.canvas = item, list(prompt_ids), canvas
        self.form, self.contract, self.edge = form, form.contract, edge
        self.seed = seed_of(item.id, seed)
        self._filled: dict[tuple[Any, ...], EdgeAnswer] = {}

    def text(self, ids: Sequence[int]) -> str:
        return self.form.tokenizer.decode(list(ids))

    def empty(self) -> AnchorSet:
        """No anchors."""
        return AnchorSet.empty(self.canvas, self.contract)

    def fill(self, anchors: AnchorSet, prompt_ids: Sequence[int] | None = None) -> EdgeAnswer:
        """The edge's answer, greedy, of at most the canvas."""
        prompt = tuple(prompt_ids or self.prompt_ids)
        key = (prompt, anchors.positions, anchors.ids, anchors.length, anchors.canvas)
        if key not in self._filled:
            stats = FillStats()
            options = FillOptions(score_anchors=False, max_tokens=self.canvas)
            ids = [token.id for token in fill(self.edge.runtime.engine, prompt, anchors, options, stats)]
            self._filled[key] = EdgeAnswer(ids, stats.passes)
        return self._filled[key]

    def alone(self) -> EdgeAnswer:
        """The edge model's answer without anchors."""
        return self.fill(self.empty())

    def size(
        self,
        anchors: AnchorSet,
        codec: Codec = Codec.COMPACT,
        primed: bool = True,
        extras: Extras = NO_EXTRAS,
    ) -> int:
        """Bytes of a payload; primed: the prompt is known to both sides. extras: its optional fields."""
        shared = Shared(self.contract, self.prompt_ids if primed else None, self.form.tokenizer)
        return len(encode(anchors, shared, codec, extras))

    def judged(self, ids: Sequence[int], reference: Sequence[int]) -> dict[str, float]:
        """Whether an answer is right, the share of the question that it covers, and F1 with `reference`."""
        text = self.text(ids)
        covered = coverage(self.item, text)
        return {"right": float(covered == 1), "graded": covered, "f1": word_f1(text, self.text(reference))}

    def score(self, ids: Sequence[int], reference: Sequence[int]) -> dict[str, float]:
        """The same with all similarity measures."""
        text, wanted = self.text(ids), self.text(reference)
        return self.judged(ids, reference) | {
            "edit": edit_similarity(ids, reference),
            "exact": float(text == wanted),
            "tokens": len(ids),
        }

    def mean_score(self, sets: Sequence[AnchorSet], reference: Sequence[int]) -> dict[str, float]:
        """F1, edit similarity and right answers, the means over what the edge model makes of each set."""
        scores = [self.score(self.fill(anchors).ids, reference) for anchors in sets]
        return {name: sum(score[name] for score in scores) / len(scores) for name in ("f1", "edit", "right")}

    def own(self, text: Sequence[int], positions: Sequence[int]) -> float | None:
        """Share of these positions of a text at which the edge model predicts the text's token."""
        if not positions:
            return None
        reading = self.edge.scorer.score(self.prompt_ids, list(text))
        return sum(int(reading.greedy[p]) == text[p] for p in positions) / len(positions)


class RunCase(Case):
    """One item with its stored runs, as the paper's experiments measure it."""

    def __init__(self, lab: Lab, item: Item, runs: Mapping[str, Run], edge: Edge | None = None) -> None:
        prompt = next(iter(runs.values())).prompt_ids
        own = edge or lab.edges[0]
        super().__init__(item, prompt, lab.pipeline.form, own, lab.base.canvas, lab.base.seed)
        self.lab, self.runs = lab, runs

    def situation(self, order: str, step: int) -> Situation:
        """The run of an order after `step` steps, as input of the conditions."""
        run = self.runs[order]
        return self.at(run.at(step), run.answer)

    def at(self, early: Denoised, full: list[int]) -> Situation:
        """Another unfinished run of this item, as input of the conditions."""
        return Situation(early, full, self.contract, self.edge.scorer, self.seed)

    @property
    def steps(self) -> Iterable[tuple[str, int]]:
        """The orders, and the steps at which all conditions are compared."""
        return product(ORDERS, self.lab.steps)

    @property
    def paper_steps(self) -> Iterable[tuple[str, int]]:
        """The orders, and the steps of the paper's tables."""
        return product(ORDERS, self.lab.paper_steps)

    def answer(self, order: str, step: int, name: str) -> dict[str, Any]:
        """One condition at one step, filled where it is to be, and scored against its own full run."""
        at = self.situation(order, step)
        anchors = CONDITIONS[name](at)
        filled = EdgeAnswer(list(anchors.ids), 0) if name in NOT_FILLED else self.fill(anchors)
        row = {"order": order, "step": step, "condition": name, **self.score(filled.ids, at.full)}
        return row | {"sent": len(anchors), "bytes": self.size(anchors), "passes": filled.passes}

    def reference(self, order: str, name: str) -> dict[str, Any]:
        """A row without anchors: ALONE, the edge alone, or FULL, the full run itself."""
        full = self.runs[order].answer
        found = self.alone() if name == ALONE else EdgeAnswer(full, 0)
        step = 0 if name == ALONE else self.lab.base.total_steps
        row = {"order": order, "step": step, "condition": name, **self.score(found.ids, full)}
        return row | {"sent": 0, "bytes": 0, "passes": found.passes}
