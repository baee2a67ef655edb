"""Calibration: how sure a device may be of a form's answers, learnt from labelled rows.

Responsible for the fit, and for the file beside the bundle that keeps it, by form and variant.
Not responsible for probabilities themselves (see `reading`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from common.files import read_json, read_text, write_whole
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decisions.reading import Calibration, Scores
from edge_runtime.errors import FormError
from edge_runtime.form import Form

LEAST_ROWS = 20
"""Fewer labelled rows than this fit nothing."""
TEMPERATURES = np.geomspace(0.25, 16, 49)
PRIORS = (0.0, 0.5, 1.0)
THRESHOLDS = np.linspace(0, 1, 101)

Read = tuple[Scores, Scores, int]
"""One answered question: scores, prior, and the right option."""


def fit(read: Sequence[Read], accuracy: float | None = None) -> Calibration:
    """The calibration under which the labels are likeliest; raises FormError for too few rows.

    accuracy: of the questions that the device answers itself, which sets the threshold: the lowest above
              which this share of the rows is right. By default the threshold stays.
    """
    if len(read) < LEAST_ROWS:
        raise FormError(f"calibrate: expected at least {LEAST_ROWS} answers, found {len(read)}")
    tried = [Calibration(float(t), share) for t in TEMPERATURES for share in PRIORS]
    best = min(tried, key=lambda each: loss(each, read))
    if accuracy is None:
        return best
    found = [(best.probabilities(scores, prior), right) for scores, prior, right in read]
    sure = np.array([each.max() for each, _ in found])
    right = np.array([each.argmax() == right for each, right in found])
    kept = [t for t in THRESHOLDS if not (sure >= t).any() or right[sure >= t].mean() >= accuracy]
    return replace(best, threshold=float([*kept, 1][0]))


def loss(calibration: Calibration, read: Sequence[Read]) -> float:
    """Mean negative log-likelihood of the labels, in nats."""
    found = [calibration.probabilities(scores, prior)[right] for scores, prior, right in read]
    return float(-np.log(np.maximum(found, 1e-12)).mean())


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


def load(bundle: Bundle, form: Form) -> Calibration | None:
    """What was fitted for this form and variant; None where nothing was. Raises FormError."""
    path, key = _place(bundle, form)
    found = read_json(path, FormError).get(key) if path.is_file() else None
    try:
        return None if found is None else Calibration(**{name: float(value) for name, value in found.items()})
    except (TypeError, ValueError, AttributeError):
        raise FormError(f"{path}: expected calibrations, found {found!r:.80}; delete it") from None


def save(bundle: Bundle, form: Form, calibration: Calibration) -> Path:
    """Keeps a calibration beside the bundle; raises FormError where nothing can be written there."""
    path, key = _place(bundle, form)
    known = read_json(path, FormError) if path.is_file() else {}
    try:
        write_whole(path, json.dumps(known | {key: asdict(calibration)}, indent=1).encode())
    except OSError as error:
        raise FormError(f"{path}: expected a place to write to, found: {error.strerror}") from None
    return path


def _place(bundle: Bundle, form: Form) -> tuple[Path, str]:
    """The file of a bundle's calibrations, and the name of a form's in it."""
    path = bundle.path.with_name(f"{bundle.path.name}.decisions.json")
    return path, f"{form.identity.hex()[:16]} {bundle.variant_name}"
