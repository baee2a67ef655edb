"""Reading a form: the probabilities of its options under the device's model, and what they decide.

The model reads the question once. At each slot the options are branches of one cache, scored by the sum of
their tokens' log-probabilities; the likeliest stands in the text before the next slot. What the model says of
an empty text is its prior, which is taken off; a temperature and a bias for each option come from labelled
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

from edge_runtime.engine.base import Engine, Logits, log_total
from edge_runtime.engine.shared import SharedModel
from edge_runtime.form import Form, Slot
from edge_runtime.predictor import read_logits
from edge_runtime.text.prompt_form import PromptForm

Scores = NDArray[np.float64]
"""Natural logarithms, one per option of a slot."""

DEVICE, CLOUD = "device", "cloud"
HOPELESS = 9.0
"""An option whose first tokens are so many nats behind the best whole one is not read to its end."""


@dataclass(frozen=True)
class Calibration:
    """temperature: by which log-probabilities are divided. threshold: of the probability below which a
    question is worth asking a cloud. bias: nats of each option; empty for none.
    """

    temperature: float = 1.0
    threshold: float = 0.8
    bias: tuple[float, ...] = ()

    def probabilities(self, scores: Scores) -> Scores:
        """The options' probabilities from their scores, less the empty text's; they sum to 1."""
        logits = scores / self.temperature + np.array(self.bias or 0.0)
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
    calibration: Calibration | Sequence[Calibration],
    cloud: Decider | None = None,
) -> Decision:
    """The answers to a form's questions about a text.

    scores, prior: of each slot's options, behind the text and behind an empty one. calibration: of all
    questions, or of each. cloud: asked for those whose probability is below the threshold, and for no others.
    Raises CloudFailureError.
    """
    hows = [calibration] * len(scores) if isinstance(calibration, Calibration) else calibration
    choices = [
        Choice(slot, tuple(how.probabilities(read - before).tolist()))
        for slot, how, read, before in zip(form.slots, hows, scores, prior, strict=True)
    ]
    unsure = [at for at, how in enumerate(hows) if choices[at].probability < how.threshold]
    if cloud is not None and unsure:
        for at, found in cloud.decide(form, text, unsure).items():
            choices[at] = Choice(form.slots[at], tuple(found), CLOUD)
    return Decision(form, tuple(choices))


def read_scores(model: SharedModel, prompts: PromptForm, form: Form, prompt: str) -> list[Scores]:
    """The scores of every slot's options behind a prompt. Raises ContextError or EngineError."""
    ids, encode = prompts.ids(prompt), prompts.tokenizer.encode
    found: list[Scores] = []
    with model.lease(ids) as engine:
        for part, behind in zip(form.parts, [*form.parts[1:], ""], strict=True):
            if isinstance(part, str):
                ids = ids + encode(part)
                continue
            options = whole = [encode(option) for option in part.options]
            ordered = sorted(options)
            if any(longer[: len(short)] == short for short, longer in pairwise(ordered)):
                # An option that begins another one has to end.
                whole = [encode(option + str(behind)[:1]) for option in part.options]
            found.append(_scores(engine, ids, whole))
            ids = ids + options[int(found[-1].argmax())]
    return found


def _scores(engine: Engine, ids: Sequence[int], branches: Sequence[Sequence[int]]) -> Scores:
    """The scores of branches behind a text: a pass for each that has several tokens, with the first of which
    runs what of the text is not in the cache.
    """
    at = max(range(len(branches)), key=lambda each: len(branches[each]) > 1)
    rows = read_logits(engine, ids, branches[at][:-1])
    first = _log_probs(next(rows))
    scores = np.array([first[branch[0]] for branch in branches], np.float64)
    best = -math.inf
    for each in sorted(range(len(branches)), key=lambda each: (each != at, -scores[each])):
        rest = branches[each][1:]
        if rest and scores[each] > best - HOPELESS:
            rows = rows if each == at else read_logits(engine, ids, branches[each][:-1], 1)
            scores[each] += sum(_log_probs(row)[id_] for row, id_ in zip(rows, rest, strict=True))
        best = max(best, scores[each])
    return scores


def _log_probs(logits: Logits) -> Scores:
    return logits.astype(np.float64) - log_total(logits)
