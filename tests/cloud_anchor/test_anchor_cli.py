"""The command line: what it writes, what it prints, and how it fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_anchor.anchor import main
from cloud_anchor.model.prompt_form import checkpoint_form
from edge_runtime import send
from payload import Extras, Shared, decode, peek
from tests.shipped import TINY_BUNDLE

PROMPT = "Where does the river end?"


def command(dream_folder: Path, *options: str) -> list[str]:
    base = ["--model", str(dream_folder), "--device", "cpu", "--canvas", "64", "--total-steps", "16"]
    return [*base, "--prompt", PROMPT, *options]


@pytest.mark.parametrize("codec", ["compact", "template-gzip", "auto"])
def test_a_payload_that_can_be_filled_alone(dream_folder: Path, tmp_path: Path, codec: str) -> None:
    file = tmp_path / "payload.bin"
    assert main(command(dream_folder, "--fraction", "0.25", "--codec", codec, "-o", str(file))) == 0
    form = checkpoint_form(dream_folder)
    data = file.read_bytes()
    anchors = decode(data, Shared(form.contract, form.ids(PROMPT), form.tokenizer))
    assert len(anchors) > 0
    assert replace(peek(data).extras, confidence=()) == Extras(PROMPT, step=4, total_steps=16)
    assert not list(tmp_path.glob("*.part"))


def test_json_has_the_history(dream_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "payload.bin"
    options = ("--steps", "4", "--json", "--no-embed-prompt", "-o", str(file))
    assert main(command(dream_folder, *options)) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bytes"]["written"] == report["bytes"]["without_prompt"] == file.stat().st_size
    assert report["bytes"]["with_prompt"] > report["bytes"]["without_prompt"]
    assert [commit["step"] for commit in report["history"]] == [1, 2, 3, 4]
    sent = {(a["position"], a["id"]) for a in report["anchors"]}
    committed = {pair for c in report["history"] for pair in zip(c["positions"], c["ids"], strict=True)}
    assert sent <= committed
    assert len(report["coverage"]) == 4
    form = checkpoint_form(dream_folder)
    data = file.read_bytes()
    assert peek(data).extras.prompt is None
    anchors = decode(data, Shared(form.contract, form.ids(PROMPT)))
    assert {*zip(anchors.positions, anchors.ids, strict=True)} == sent


def test_the_same_seed_gives_the_same_bytes(dream_folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file, seed in zip(files, "112", strict=True):
        options = ("--order", "entropy", "--temperature", "1.5", "--seed", seed, "-o", str(file))
        assert main(command(dream_folder, "--fraction", "0.5", *options)) == 0
    first, second, third = (file.read_bytes() for file in files)
    assert first == second != third


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fraction", "2"], 2),
        (["--order", "fastest"], 2),
        (["--codec", "predictive"], 2),
        (["--commit", "1.5"], 2),
        (["--model", "/nowhere/model"], 4),
        (["--edge", "/nowhere/bundle"], 4),
        (["--canvas", "4096"], 2),
        (["--total-steps", "64", "--canvas", "4", "--steps", "1"], 3),
    ],
)
def test_failures_are_one_line_and_a_code(
    dream_folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int
) -> None:
    assert main(command(dream_folder, *options)) == code
    error = capsys.readouterr().err
    assert options[1] in error
    assert error.count("\n") == 1


def test_a_question_of_spaces_is_refused(dream_folder: Path) -> None:
    base = command(dream_folder, "--json", "--fraction", "0.5")
    at = base.index("--prompt")
    assert main([*base[:at], "--prompt", "  ", *base[at + 2 :]]) == 2


def test_a_finished_text_is_sent_whole_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cloud_anchor.pipeline.Pipeline.open", lambda *_, **__: pytest.fail("opened"))
    answer, ours, theirs = (tmp_path / name for name in ("answer.txt", "ours.bin", "theirs.bin"))
    answer.write_text("It ends in the sea.", encoding="utf-8")
    for prompt in (PROMPT, ""):
        line = ["--answer", str(answer), "--prompt", prompt, "--edge", str(TINY_BUNDLE)]
        assert main([*line, "-o", str(ours)]) == 0
        assert send.main([*line, "-o", str(theirs)]) == 0
        assert ours.read_bytes() == theirs.read_bytes()
    capsys.readouterr()
    assert main([*line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == ours.stat().st_size
    for wrong in (["--codec", "template-gzip"], ["--model", "no-pair", "--edge", str(tmp_path / "none")]):
        assert main([*line, *wrong]) != 0
    assert main(["--model", "no-pair", "--answer", str(answer), "--prompt", ""]) == 2
