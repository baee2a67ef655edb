"""The command that writes checkpoints with random weights."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from convert.source.checkpoint import Checkpoint
from lab.benches.random_checkpoint import main, write_tokenizer


def test_a_seed_gives_the_same_weights_of_a_checkpoint_that_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seed in (("first", "1"), ("again", "1"), ("other", "2")):
        assert main([str(tmp_path / name), "--seed", seed]) == 0
        assert capsys.readouterr().out.strip() == str(tmp_path / name)
    assert Checkpoint(tmp_path / "first").shape.vocab_size == 320
    first, again, other = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "again", "other")
    )
    assert first == again != other


def test_a_published_tokenizer_is_read_packed_or_not(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    packed = tmp_path / "tokenizer.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "tokenizer.json").read_bytes()))
    for file in (tmp_path / "tokenizer.json", packed):
        assert main([str(tmp_path / "random"), "--tokenizer", str(file)]) == 0
        written = (tmp_path / "random" / "tokenizer.json").read_text(encoding="utf-8")
        assert written == (tmp_path / "tokenizer.json").read_text(encoding="utf-8")


def test_a_tokenizer_that_cannot_be_read_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json.gz").write_bytes(b"not gzip")
    for name in ("missing.json", "broken.json.gz"):
        assert main([str(tmp_path / "random"), "--tokenizer", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"random_checkpoint: {tmp_path / name}: ")
        assert said.count("\n") == 1
