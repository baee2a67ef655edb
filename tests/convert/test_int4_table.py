"""The table of four-bit formats: its rows, its calibration and its command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.__main__ import main
from tests.checkpoints import write_tiny_qwen

TEXT = "The river rises in the northern hills and reaches the sea after three hundred miles. "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_qwen(tmp_path_factory.mktemp("table") / "model")


def test_quality_and_speed_of_some_rows(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "unseen.txt").write_text(TEXT * 3)
    (tmp_path / "seen.txt").write_text(TEXT[::-1] * 3)
    options = ["--text", str(tmp_path / "unseen.txt"), "--calibration", str(tmp_path / "seen.txt")]
    names = ["int8 32", "symmetric 32", "gptq 64, table int8"]
    command = ["run", "int4", "--checkpoint", str(folder), "-o", str(tmp_path / "out"), *options]
    assert main([*command, "--rows", *names, "--threads", "1", "--positions", "80", "--repeat", "1"]) == 0
    tables = json.loads((tmp_path / "out" / "tables.json").read_bytes())["tables"]
    cells = {row["format"]: list(row.values())[1:] for row in tables["quality"]["rows"]}
    assert list(cells) == ["fp32", *names]
    size, _, kl, top1, answers = cells["fp32"]
    assert (kl, top1, answers) == (0, 1, 1)
    assert cells["int8 32"][2] <= cells["symmetric 32"][2]
    assert cells["symmetric 32"][0] <= cells["gptq 64, table int8"][0] < size
    timed = tables["speed"]["rows"]
    assert [row["format"] for row in timed] == names
    assert timed[-1]["ratio at 128"] == 1
    assert float(timed[0]["token at 512"].split()[0]) > 0


@pytest.mark.parametrize("options", [["--rows", "int2", "--repeat", "1"], ["--rows", "int8 32"]])
def test_wrong_options(options: list[str], folder: Path, tmp_path: Path) -> None:
    assert main(["run", "int4", "--checkpoint", str(folder), "-o", str(tmp_path), *options]) == 2
