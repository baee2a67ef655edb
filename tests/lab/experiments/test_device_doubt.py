"""The figures of `device_doubt` from records: measures, curves, thresholds, tables."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import edge_runtime
from edge_runtime.bundle.manifest import MANIFEST, Manifest
from edge_runtime.cloud import WATCHED
from edge_runtime.errors import BundleSchemaError
from lab.experiment import About
from lab.experiments.device_doubt import (
    COMBINED,
    EXPERIMENT,
    MEASURES,
    ROLES,
    asked_by,
    doubts,
    enough,
    scores,
    sent_by,
    tables,
    threshold,
)
from lab.experiments.doubt import keep
from lab.store import Record
from tests.edge_runtime.test_session import BUNDLE, runtime


def record(role: str, alone: bool, asked: bool, doubt: float) -> Record:
    logprob = math.log(1 - doubt)
    lists = {"logprobs": [logprob] * 8, "entropies": [doubt] * 8, "margins": [1 - doubt] * 8}
    return {"role": role, "alone": alone, "asked": asked, "bytes": 10} | lists


RECORDS = [
    record("told", True, True, 0.1),
    record("edge", True, False, 0.2),
    record("cloud", False, True, 0.9),
    record("cloud", False, True, 0.8),
    record("neither", False, False, 0.7),
]
DOUBT = [0.1, 0.2, 0.9, 0.8, 0.7]


def test_the_most_doubtful_are_sent_first() -> None:
    assert sent_by(RECORDS, DOUBT) == pytest.approx([0.4, 0.6, 0.8, 0.8, 0.6, 0.6])
    assert enough(RECORDS, DOUBT) == pytest.approx(0.2)  # 0.6 is what always asking gives
    assert threshold(RECORDS, DOUBT) == pytest.approx(0.8)
    row = asked_by(RECORDS, [d > 0.8 for d in DOUBT])
    assert row["sent"] == pytest.approx(0.2)
    assert row["of always asking"] == pytest.approx(1.0)
    assert row["bytes a question"] == pytest.approx(2.0)


def test_tables_and_the_plot() -> None:
    records = [
        record(role, role == "told", role in ("told", "cloud"), 0.02 * n + 0.1 * (role == "cloud"))
        for n in range(20)
        for role in ROLES
    ]
    found = {table.name: table for table in tables(records, About())}
    assert set(found) == {"modes", "measures", "sent", "roles"}
    never, *_, always = found["modes"].rows
    assert (never["sent"], always["sent"]) == (0.0, 1.0)
    assert [row["N"] for row in found["roles"].rows] == [20, 20, 20, 20]
    assert len(found["measures"].rows) == len(MEASURES) + 1
    (picture,) = EXPERIMENT.plots(records, About())
    assert picture.name == "device_doubt"


def test_measures_are_of_what_the_mode_sees() -> None:
    dip = record("cloud", False, True, 0.0)
    dip["logprobs"] = [0.0] * (WATCHED - 1) + [-6.0] + [0.0] * 20
    by = doubts([dip, record("cloud", False, True, 0.5), dip | {"logprobs": []}])
    assert by["mean"][0] == pytest.approx(1 - math.exp(-6.0 / WATCHED))  # as it stood at the dip
    assert by["mean"][1] == pytest.approx(0.5)
    assert by["mean"][2] == max(by["mean"])  # without tokens nothing speaks for it


def test_a_weighting_is_fitted_on_the_other_half() -> None:
    """Where the measures say all, so does their weighting; where they say nothing, it does not either."""
    rng = np.random.default_rng(1)
    telling = [
        record("cloud", False, bool(n % 2), 0.3 + 0.4 * (n % 2) + 0.01 * rng.random()) for n in range(80)
    ]
    assert enough(telling, doubts(telling)[COMBINED]) < 0.52
    noise = [record("cloud", False, bool(rng.random() < 0.5), float(rng.random() * 0.9)) for _ in range(400)]
    assert enough(noise, doubts(noise)[COMBINED]) > 0.8


def test_scores_are_the_models_own() -> None:
    edge, _ = runtime()
    ids = edge.prompt_ids("Why?")
    found = scores(edge, ids, [1, 2, 3])
    assert {len(values) for values in found.values()} == {3}
    vocab = BUNDLE.manifest.model.vocab_size
    assert all(0 <= entropy <= math.log(vocab) for entropy in found["entropies"])
    assert all(0 <= margin <= 1 for margin in found["margins"])


def test_the_threshold_is_kept_in_the_bundle(tmp_path: Path) -> None:
    shipped = Path(edge_runtime.__file__).parent / "bundles" / "testbed-qwen" / MANIFEST
    shutil.copy(shipped, tmp_path)
    keep(tmp_path, ask_from=0.25)
    data = json.loads((tmp_path / MANIFEST).read_text())
    assert Manifest.from_json(data).ask_from == 0.25
    assert data["not_sure_from"] == json.loads(shipped.read_text())["not_sure_from"]  # the other one stays
    with pytest.raises(BundleSchemaError, match="ask_from"):
        Manifest.from_json(data | {"ask_from": 2})
