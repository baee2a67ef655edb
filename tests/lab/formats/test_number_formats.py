"""bfloat16 against float32: what is committed on the shipped pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.shipped import PAIRS
from lab.__main__ import main
from lab.formats import number_formats

TINY = PAIRS["tiny"].checkpoint
pytestmark = pytest.mark.skipif(not (TINY / "model.safetensors").is_file(), reason="no shipped weights")


def table(folder: Path, *options: str) -> list[dict[str, Any]]:
    assert main(["run", "number_formats", "-o", str(folder), "--threads", "1", *options]) == 0
    rows: list[dict[str, Any]] = json.loads((folder / "tables.json").read_text())["tables"]["formats"]["rows"]
    return rows


def test_bfloat16_commits_what_float32_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = number_formats.PLANS
    monkeypatch.setattr(number_formats, "PLANS", (plans[0], plans[2]))
    quota, parallel = table(tmp_path / "a", "--prompts", "6")
    for row in (quota, parallel):
        assert 0 <= row["in the same step"] <= row["the same token"] <= row["in both"] <= 1
    assert quota["the same token"] > 0.6
    assert parallel["the same token"] > 0.9
    assert parallel["word F1"] > 0.9
    monkeypatch.setattr(number_formats, "PLANS", plans[:1])
    (same,) = table(tmp_path / "b", "--prompts", "2", "--narrow", "float32")
    assert list(same.values()) == ["the schedule's quota", "10%", 1, 1, 1, 1, 1]


def test_the_command_names_a_wrong_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "number_formats", "-o", str(tmp_path), "--narrow", "int3", "--prompts", "1"]
    assert main(words) == 2
    assert "dtype: expected float32" in capsys.readouterr().err
