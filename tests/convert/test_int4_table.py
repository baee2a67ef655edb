"""The table of four-bit formats: its rows, its calibration and its command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.benches.int4_table import main
from tests.checkpoints import write_tiny_qwen

TEXT = "The river rises in the northern hills and reaches the sea after three hundred miles. "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_qwen(tmp_path_factory.mktemp("table") / "model")


def test_quality_of_some_rows(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unseen.txt").write_text(TEXT * 3)
    (tmp_path / "seen.txt").write_text(TEXT[::-1] * 3)
    options = ["--text", str(tmp_path / "unseen.txt"), "--calibration", str(tmp_path / "seen.txt")]
    rows = "int8 32; symmetric 32; gptq 64, table int8; gptq 128, 20% int8, head 64, embedding int8"
    command = [str(folder), str(tmp_path / "out"), *options, "--rows", rows, "--threads", "1"]
    assert main([*command, "--positions", "80"]) == 0
    kept = json.loads((tmp_path / "out" / "tables.json").read_bytes())["tables"]["quality"]["rows"]
    cells = {row["format"]: [row[column] for column in list(row)[1:]] for row in kept}
    assert list(cells) == ["fp32", *rows.split("; ")]
    size, _, kl, top1, answers = cells["fp32"]
    assert (kl, top1, answers) == (0, 1, 1)
    assert cells["int8 32"][2] <= cells["symmetric 32"][2]
    assert cells["symmetric 32"][0] <= cells["gptq 64, table int8"][0] < size


def test_the_speed_of_some_rows(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [str(folder), str(tmp_path), "--speed", "--rows", "symmetric 32; symmetric 64", "--repeat", "1"]
    assert main([*command, "--threads", "1"]) == 0
    rows = json.loads((tmp_path / "tables.json").read_bytes())["tables"]["speed"]["rows"]
    assert [row["ratio at 128"] for row in rows][-1] == 1
    assert float(rows[0]["token at 512"].split()[0]) > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rows", "int2"], "--rows: expected some of fp32; int8 32;"),
        (["--rows", "int8 32"], "--text: expected a file"),
    ],
)
def test_wrong_options(
    options: list[str], said: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err


def test_the_memory_of_a_row(folder: Path, tmp_path: Path) -> None:
    assert main([str(folder), str(tmp_path), "--memory", "--rows", "symmetric 32", "--threads", "1"]) == 0
    (row,) = json.loads((tmp_path / "tables.json").read_bytes())["tables"]["memory"]["rows"]
    assert row["resident MB"] == pytest.approx(row["anonymous MB"] + row["file-backed MB"], abs=1)
    assert row["resident MB"] > 0
