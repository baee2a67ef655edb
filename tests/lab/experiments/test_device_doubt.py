"""The figures of `device_doubt` from records: curves, thresholds, tables."""

from __future__ import annotations

import pytest

from lab.experiment import About
from lab.experiments.device_doubt import EXPERIMENT, MEASURES, enough, sent_by, tables, threshold


def record(role: str, alone: bool, asked: bool, doubt: float) -> dict[str, object]:
    return {"role": role, "alone": alone, "asked": asked, "bytes": 9} | dict.fromkeys(MEASURES, doubt)


RECORDS = [
    record("edge", True, True, 0.1),
    record("edge", True, False, 0.2),
    record("cloud", False, True, 0.9),
    record("cloud", False, True, 0.8),
    record("neither", False, False, 0.7),
]


def test_the_most_doubtful_are_sent_first() -> None:
    assert sent_by(RECORDS, "mean") == pytest.approx([0.4, 0.6, 0.8, 0.8, 0.6, 0.6])
    assert enough(RECORDS, "mean") == pytest.approx(0.2)  # 0.6 is what always asking gives
    assert threshold(RECORDS) == pytest.approx(0.8)
    assert sum(r["mean"] > threshold(RECORDS) for r in RECORDS) == 1  # type: ignore[operator]


def test_tables_and_the_plot() -> None:
    found = {table.name: table for table in tables(RECORDS, About())}
    assert set(found) == {"device_doubt", "sent", "roles"}
    assert found["device_doubt"].rows[0]["AUROC, the cloud helps"] == 1.0
    assert [row["N"] for row in found["roles"].rows] == [2, 2, 1]
    assert found["sent"].rows[0]["at random"] == pytest.approx(0.4)
    (picture,) = EXPERIMENT.plots(RECORDS, About())
    assert picture.name == "device_doubt"


def test_measures_of_log_probabilities() -> None:
    values = {name: of([0.0, -2.0]) for name, (_, of) in MEASURES.items()}
    assert values["mean"] == values["first"] == pytest.approx(1 - 2.718281828**-1)
    assert values["lowest"] == pytest.approx(1 - 2.718281828**-2)
