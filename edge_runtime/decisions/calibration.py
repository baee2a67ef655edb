"""Calibration: how sure a device may be of a form's answers, learnt from labelled rows.

Responsible for the fit, and for the file beside the bundle that keeps it, by form and reader.
Not responsible for probabilities themselves (see `reading`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from common.files import read_json, read_text, write_whole
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decisions.reading import Calibration, Decider, Scores
from edge_runtime.errors import FormError
from edge_runtime.form import Form

LEAST_ROWS = 20
"""Fewer labelled rows than this fit nothing."""
TEMPERATURES = np.geomspace(0.25, 16, 49)
THRESHOLDS = np.linspace(0, 1, 101)
ROUNDS = 20
LEAST = 1e-9
"""A probability is at least this."""

Read = tuple[Scores, int]
"""One answered question: the scores, less their prior, and the right option."""


def fit(questions: Sequence[Sequence[Read]], accuracy: float | None = None) -> list[Calibration]:
    """The calibration of each question under which its labels are likeliest; FormError for too few rows.

    questions: of each, all its answers. accuracy: of what the device answers itself, which sets the threshold
               of all: the lowest above which this share is right. By default it stays.
    """
    if (rows := min(map(len, questions))) < LEAST_ROWS:
        raise FormError(f"calibrate: expected at least {LEAST_ROWS} rows, found {rows}")
    fitted = [
        min((_biased(float(t), read) for t in TEMPERATURES), key=lambda how: loss([how], [read]))
        for read in questions
    ]
    if accuracy is None:
        return fitted
    found = list(_told(fitted, questions))
    sure, right = np.array([(told.max(), told.argmax() == label) for told, label in found]).T
    kept = [t for t in THRESHOLDS if not (sure >= t).any() or right[sure >= t].mean() >= accuracy]
    return [replace(how, threshold=float([*kept, 1][0])) for how in fitted]


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


def _told(hows: Sequence[Calibration], questions: Sequence[Sequence[Read]]) -> Iterator[tuple[Scores, int]]:
    for how, read in zip(hows, questions, strict=True):
        yield from ((how.probabilities(scores), right) for scores, right in read)


def loss(hows: Sequence[Calibration], questions: Sequence[Sequence[Read]]) -> float:
    """Mean negative log-likelihood of the labels, in nats."""
    return float(-np.mean([np.log(max(told[right], LEAST)) for told, right in _told(hows, questions)]))


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


@dataclass(frozen=True)
class Calibrated:
    """A cloud with calibrations of its own, of each question of one form."""

    cloud: Decider
    hows: Sequence[Calibration]

    def decide(self, form: Form, text: str, asked: Sequence[int]) -> Mapping[int, Sequence[float]]:
        """As of `reading.Decider`."""
        found = self.cloud.decide(form, text, asked)
        return {at: self.hows[at].probabilities(said(each)).tolist() for at, each in found.items()}


def said(probabilities: Sequence[float]) -> Scores:
    """The scores of a cloud's probabilities."""
    return np.asarray(np.log(np.maximum(probabilities, LEAST)))


def load(bundle: Bundle, form: Form, reader: str) -> list[Calibration] | None:
    """What was fitted for each question of a form; None where nothing was. Raises FormError.

    reader: the bundle's variant, or what is asked as a cloud.
    """
    path, key = _place(bundle, form, reader)
    found = read_json(path, FormError).get(key) if path.is_file() else None
    try:
        if found is None:
            return None
        kept = [
            Calibration(float(each["temperature"]), float(each["threshold"]), tuple(map(float, each["bias"])))
            for each in found
        ]
        if [len(how.bias) for how in kept] != [len(slot.options) for slot in form.slots]:
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
