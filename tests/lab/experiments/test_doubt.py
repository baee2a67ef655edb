"""The thresholds of doubt from records, their questions, and their place in a bundle."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import edge_runtime
from edge_runtime.bundle.manifest import MANIFEST, Manifest
from edge_runtime.cloud import WATCHED
from lab.experiment import About
from lab.experiments.doubt import ROLES, ask_from, main, not_sure_from, tables, typed, while_writing


def record(
    asked: bool, carried: float | None, alone: bool = False, device: float = 0.5, kind: str = "subjects"
) -> dict[str, Any]:
    return {"kind": kind, "alone": alone, "asked": asked, "device": device, "carried": carried, "bytes": 10}


SEPARABLE = [record(True, 0.05), record(True, 0.1), record(False, 0.3), record(False, 0.4)]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (SEPARABLE, 0.3),
        ([*SEPARABLE, record(True, 0.5)], 0.3),  # one right answer is not worth two wrong ones
        ([record(False, 0.1), record(True, 0.2)], 0.0),  # none is worth showing
        ([record(False, None), *SEPARABLE], 0.3),
        ([record(True, 0.051), record(False, 0.123)], 0.13),  # in hundredths, and declines as much
    ],
)
def test_the_shares_of_right_and_wrong_answers_differ_most(
    records: list[dict[str, Any]], expected: float
) -> None:
    assert not_sure_from(pd.DataFrame(records).astype({"carried": float})) == expected


def test_the_most_doubtful_are_sent_first() -> None:
    sides = [
        (True, True, 0.1),
        (True, False, 0.2),
        (False, True, 0.9),
        (False, True, 0.8),
        (False, False, 0.7),
    ]
    records = [record(asked, 0.1, alone, device) for alone, asked, device in sides]
    assert ask_from(pd.DataFrame(records)) == 0.8


def test_a_mode_looks_while_the_device_writes() -> None:
    dip = [0.0] * (WATCHED - 1) + [-6.0] + [0.0] * 20
    assert while_writing(dip) == pytest.approx(1 - math.exp(-6.0 / WATCHED))  # as it stood at the dip
    assert while_writing([]) == 1


KNOWN = [
    record(role in ("told", "cloud"), 0.1, role == "told", 0.02 * n + 0.1 * (role == "cloud"), role)
    for n in range(10)
    for role in ROLES
]
WRITTEN = [r | {"kind": kind} for r in SEPARABLE for kind in ("subjects", "others", "nonsense")]


def test_tables_of_records() -> None:
    found = {table.name: table for table in tables([*KNOWN, *WRITTEN], About())}
    assert [row["N"] for row in found["kinds"].rows] == [10] * 4 + [4] * 3
    never, kept, _, always = found["modes"].rows
    assert (never["sent"], always["sent"]) == (0.0, 1.0)
    assert isinstance(kept["of always asking"], float)
    assert kept["of always asking"] >= 0.95
    assert [row["declined"] for row in found["declined"].rows[:2]] == [0, 0.5]


def test_typed_questions_are_balanced_and_nobody_s_twice() -> None:
    kinds = typed(1000)
    assert {len(questions) for questions in kinds.values()} == {48}
    assert len({text.lower() for questions in kinds.values() for text, _ in questions}) == 144
    ((_, right),) = [asked for asked in kinds["subjects"] if asked[0].startswith("capital city france")]
    assert right("It is paris.")
    assert not right("Parisian")
    assert not kinds["nonsense"][0][1]("anything")


def test_the_thresholds_of_a_results_folder_are_kept_in_a_bundle(tmp_path: Path) -> None:
    shipped = Path(edge_runtime.__file__).parent / "bundles" / "testbed-qwen" / MANIFEST
    shutil.copy(shipped, tmp_path)
    (tmp_path / "items").mkdir()
    lines = (json.dumps({"id": str(n)} | each) for n, each in enumerate([*KNOWN, *WRITTEN]))
    (tmp_path / "items" / "doubt.jsonl").write_text("\n".join(lines))
    assert main([str(tmp_path), str(tmp_path)]) == 0
    data = json.loads((tmp_path / MANIFEST).read_text())
    kept = Manifest.from_json(data)
    assert (kept.ask_from, kept.not_sure_from) == (0.12, 0.3)
    assert data.keys() == json.loads(shipped.read_text()).keys()
