"""Reading a form: the probabilities of its options under the device's model, and what they decide.

The model reads the question once. At each slot the options are branches of one cache, scored by the sum of
their tokens' log-probabilities; the likeliest stands in the text before the next slot. What the model says of
an empty text is its prior, which is taken off; a temperature and the share of the prior come from labelled
rows (see `calibration`).

Responsible for a form's distributions and for what is asked of a cloud. Not responsible for forms (see
`edge_runtime.form`) or for a cloud's protocol (see `client`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_runtime.engine.base import MAX_CHUNK, Engine, Logits, common_prefix, log_total
from edge_runtime.engine.shared import SharedModel
from edge_runtime.form import Form, Slot
from edge_runtime.text.prompt_form import PromptForm

Scores = NDArray[np.float64]
"""Natural logarithms, one per option of a slot."""

DEVICE, CLOUD = "device", "cloud"
HOPELESS = 9.0
"""An option whose first tokens are so many nats behind the best whole one is not read to its end."""


@dataclass(frozen=True)
class Calibration:
    """temperature: by which log-probabilities are divided. prior: share of the empty text's that is taken
    off. threshold: of the probability below which a question is worth asking a cloud.
    """

    temperature: float = 1.0
    prior: float = 1.0
    threshold: float = 0.8

    def probabilities(self, scores: Scores, prior: Scores) -> Scores:
        """The options' probabilities from the scores of a text and of the empty one; they sum to 1."""
        logits = (scores - self.prior * prior) / self.temperature
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())


@dataclass(frozen=True)
class Choice:
    """One question's answer. probabilities: of the slot's options, in order. source: who read them."""

    slot: Slot
    probabilities: tuple[float, ...]
    source: str = DEVICE

    @property
    def index(self) -> int:
        return int(np.argmax(self.probabilities))

    @property
    def probability(self) -> float:
        return self.probabilities[self.index]


@dataclass(frozen=True)
class Decision:
    """A form's answers, one per slot."""

    form: Form
    choices: tuple[Choice, ...]

    @property
    def value(self) -> dict[str, Any]:
        """The object that the form's schema describes."""
        return self.form.value([choice.index for choice in self.choices])


class Decider(Protocol):
    """A cloud that reads forms."""

    def decide(self, form: Form, text: str, asked: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """The probabilities of the slots asked for; raises CloudFailureError."""


def decide(
    text: str,
    form: Form,
    scores: Sequence[Scores],
    prior: Sequence[Scores],
    calibration: Calibration,
    cloud: Decider | None = None,
) -> Decision:
    """The answers to a form's questions about a text.

    scores, prior: of each slot's options, behind the text and behind an empty one. cloud: asked for those
    whose probability is below the threshold, and for no others.
    Raises CloudFailureError.
    """
    choices = [
        Choice(slot, tuple(calibration.probabilities(read, before).tolist()))
        for slot, read, before in zip(form.slots, scores, prior, strict=True)
    ]
    unsure = [at for at, each in enumerate(choices) if each.probability < calibration.threshold]
    if cloud is not None and unsure:
        for at, found in cloud.decide(form, text, unsure).items():
            choices[at] = Choice(form.slots[at], tuple(found), CLOUD)
    return Decision(form, tuple(choices))


def read_scores(model: SharedModel, prompts: PromptForm, form: Form, prompt: str) -> list[Scores]:
    """The scores of every slot's options behind a prompt. Raises ContextError or EngineError."""
    ids, encode = prompts.ids(prompt), prompts.tokenizer.encode
    found: list[Scores] = []
    with model.lease(ids) as engine:
        engine.rewind(min(common_prefix(engine.tokens, ids), len(ids) - 1))
        pending = ids[engine.length :]
        for part, behind in zip(form.parts, [*form.parts[1:], ""], strict=True):
            if isinstance(part, str):
                pending = pending + encode(part)
                continue
            options = [encode(option) for option in part.options]
            whole = options  # an option that begins another one has to end
            if not _apart(options):
                whole = [encode(option + str(behind)[:1]) for option in part.options]
            scores = _scores(engine, pending, whole)
            found.append(scores)
            pending = options[int(scores.argmax())]
    return found


def _apart(branches: Sequence[Sequence[int]]) -> bool:
    """Whether none begins another."""
    ordered = sorted(map(tuple, branches))
    return all(b[: len(a)] != a for a, b in pairwise(ordered))


def _scores(engine: Engine, pending: Sequence[int], branches: Sequence[Sequence[int]]) -> Scores:
    """Runs the pending tokens, and each branch from there; the cache ends behind the pending tokens."""
    first = _log_probs(_run(engine, pending))
    scores = np.array([first[branch[0]] for branch in branches], np.float64)
    length = engine.length
    best = -math.inf
    for at in np.argsort(-scores, kind="stable").tolist():
        rest = branches[at]
        if len(rest) > 1 and scores[at] > best - HOPELESS:
            rows = engine.append(rest[:-1], range(len(rest) - 1))
            scores[at] += sum(_log_probs(row)[id_] for row, id_ in zip(rows, rest[1:], strict=True))
            engine.rewind(length)
        best = max(best, scores[at])
    return scores


def _run(engine: Engine, ids: Sequence[int]) -> Logits:
    """The logits behind these tokens, which a pass may be too small for."""
    *before, last = (ids[start : start + MAX_CHUNK] for start in range(0, len(ids), MAX_CHUNK))
    for chunk in before:
        engine.append(chunk)
    found: Logits = engine.append(last, [len(last) - 1])[0]
    return found


def _log_probs(logits: Logits) -> Scores:
    return logits.astype(np.float64) - log_total(logits)
