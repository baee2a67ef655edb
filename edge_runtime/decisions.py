"""Decisions: the probabilities of a form's options, and what they decide.

The model reads the question once. At each slot the options are branches of one cache, scored by the sum of
their tokens' log-probabilities; the likeliest stands in the text before the next slot. What the model says of
an empty text is its prior, which is taken off; a temperature and a bias for each option are learnt from
labelled rows, and kept in a file beside the bundle, by form and reader.

Responsible for a form's distributions, for their calibration, and for what is asked of a cloud. Not
responsible for forms (see `form`) or for a cloud's protocol (see `client`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from common.files import read_json, read_text, write_whole
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.base import Engine, Logits, log_total
from edge_runtime.engine.shared import SharedModel
from edge_runtime.errors import FormError
from edge_runtime.form import Form, Slot
from edge_runtime.predictor import read_logits
from edge_runtime.text.prompt_form import PromptForm

Scores = NDArray[np.float64]
"""Natural logarithms, one per option of a slot."""
Read = tuple[Scores, int]
"""One answered question: the scores, less their prior, and the right option."""

DEVICE, CLOUD = "device", "cloud"
HOPELESS = 9.0
"""An option whose first tokens are so many nats behind the best whole one is not read to its end."""

LEAST_ROWS = 20
"""Fewer labelled rows than this fit nothing."""
TEMPERATURES = np.geomspace(0.25, 16, 49)
THRESHOLDS = np.linspace(0, 1, 101)
ROUNDS = 20
LEAST = 1e-9
"""A probability is at least this."""


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


def said(probabilities: Sequence[float]) -> Scores:
    """The scores of a cloud's probabilities."""
    return np.asarray(np.log(np.maximum(probabilities, LEAST)))


def decide(
    text: str,
    form: Form,
    scores: Sequence[Scores],
    hows: Sequence[Calibration],
    cloud: Decider | None,
    theirs: Sequence[Calibration] | None,
) -> Decision:
    """The answers to a form's questions about a text.

    scores: of each slot's options, less their prior. cloud: asked for those whose probability is below the
    threshold, and for no others; theirs: its calibrations. Raises CloudFailureError.
    """
    choices = [
        Choice(slot, tuple(how.probabilities(read).tolist()))
        for slot, how, read in zip(form.slots, hows, scores, strict=True)
    ]
    unsure = [at for at, how in enumerate(hows) if choices[at].probability < how.threshold]
    if cloud is not None and unsure:
        for at, found in cloud.decide(form, text, unsure).items():
            read = theirs[at].probabilities(said(found)) if theirs else found
            choices[at] = Choice(form.slots[at], tuple(map(float, read)), CLOUD)
    return Decision(form, tuple(choices))


def read_scores(model: SharedModel, prompts: PromptForm, form: Form, prompt: str) -> list[Scores]:
    """The scores of every slot's options behind a prompt. Raises ContextError or EngineError."""
    ids, encode = prompts.ids(prompt), prompts.tokenizer.encode
    found: list[Scores] = []
    with model.lease(ids) as engine:
        for slot, (before, behind) in zip(form.slots, pairwise(form.literals), strict=True):
            ids = ids + encode(before)
            options = whole = [encode(option) for option in slot.options]
            ordered = sorted(options)
            if any(longer[: len(short)] == short for short, longer in pairwise(ordered)):
                # An option that begins another one has to end.
                whole = [encode(option + behind[:1]) for option in slot.options]
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


def fit(questions: Sequence[Sequence[Read]], accuracy: float | None = None) -> list[Calibration]:
    """The calibration of each question under which its labels are likeliest; FormError for too few rows.

    questions: of each, all its answers. accuracy: of what the device answers itself, which sets the threshold
               of all: the lowest above which this share is right. By default it stays.
    """
    if (rows := min(map(len, questions))) < LEAST_ROWS:
        raise FormError(f"calibrate: expected at least {LEAST_ROWS} rows, found {rows}")
    hows = [
        min((_biased(float(t), read) for t in TEMPERATURES), key=partial(loss, read)) for read in questions
    ]
    if accuracy is None:
        return hows
    told = [
        (how.probabilities(scores), right)
        for how, read in zip(hows, questions, strict=True)
        for scores, right in read
    ]
    sure, fine = np.array([(each.max(), each.argmax() == right) for each, right in told]).T
    kept = [t for t in THRESHOLDS if not (sure >= t).any() or fine[sure >= t].mean() >= accuracy]
    return [replace(how, threshold=float([*kept, 1][0])) for how in hows]


def _biased(temperature: float, read: Sequence[Read]) -> Calibration:
    """With the biases under which each option's mean probability is its share of the labels."""
    logits = np.array([scores for scores, _ in read]) / temperature
    counts = np.bincount([right for _, right in read], minlength=logits.shape[1])
    bias = np.zeros(logits.shape[1])
    for _ in range(ROUNDS):
        weights = np.exp(logits + bias - (logits + bias).max(1, keepdims=True))
        told = (weights / weights.sum(1, keepdims=True)).sum(0)
        bias += np.log((counts + 1) / (told + 1))
    return Calibration(temperature, bias=tuple(bias.tolist()))


def loss(read: Sequence[Read], how: Calibration) -> float:
    """Mean negative log-likelihood of the labels, in nats."""
    return float(-np.mean([np.log(max(how.probabilities(scores)[right], LEAST)) for scores, right in read]))


def read_rows(path: Path, form: Form) -> list[tuple[str, list[int]]]:
    """The texts and right options of a JSONL file of {"text": ..., "value": {...}}; raises FormError."""
    rows = []
    for number, line in enumerate(read_text(path, FormError).splitlines(), 1):
        try:
            if line.strip():
                row = json.loads(line)
                row["text"].encode("utf-8")
                rows.append((row["text"], form.chosen(row["value"])))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            expected = 'expected {"text": ..., "value": an object of the schema}'
            found = f"found {type(error).__name__}: {error}"
            raise FormError(f"{path}, line {number}: {expected}, {found}") from None
    return rows


def load(bundle: Bundle, form: Form, reader: str) -> list[Calibration] | None:
    """What was fitted for each question of a form; None where nothing was. Raises FormError.

    reader: the bundle's variant, or what is asked as a cloud.
    """
    path, key = _place(bundle, form, reader)
    found = read_json(path, FormError).get(key) if path.is_file() else None
    if found is None:
        return None
    try:
        kept = [
            Calibration(float(each["temperature"]), float(each["threshold"]), tuple(map(float, each["bias"])))
            for each in found
        ]
        if [len(how.bias) for how in kept] != form.sizes:
            raise ValueError("another form")
        return kept
    except (TypeError, ValueError, AttributeError, KeyError):
        raise FormError(f"{path}: expected calibrations, found {found!r:.80}; delete it") from None


def save(bundle: Bundle, form: Form, reader: str, hows: Sequence[Calibration]) -> Path:
    """Keeps calibrations beside the bundle; raises FormError where nothing can be written there."""
    path, key = _place(bundle, form, reader)
    known = read_json(path, FormError) if path.is_file() else {}
    try:
        write_whole(path, json.dumps(known | {key: [asdict(how) for how in hows]}, indent=1).encode())
    except OSError as error:
        raise FormError(f"{path}: expected a place to write to, found: {error.strerror}") from None
    return path


def _place(bundle: Bundle, form: Form, reader: str) -> tuple[Path, str]:
    """The file of a bundle's calibrations, and the name of a form's in it."""
    return bundle.path.with_name(f"{bundle.path.name}.decisions.json"), f"{form.identity.hex()[:16]} {reader}"
