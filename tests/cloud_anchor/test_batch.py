"""Many prompts: every payload as if made alone, going on after an interruption, errors that stop nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cloud_anchor.batch
from cloud_anchor.anchor import main
from cloud_anchor.batch import read_jobs
from cloud_anchor.errors import RequestError
from cloud_anchor.model.prompt_form import checkpoint_form
from payload import Shared, decode

PROMPTS = ["Why?", "Where does the river end, and who lives there?", "How many loaves did she sell?"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    lines: list[object] = [{"prompt": PROMPTS[0], "id": "why"}, PROMPTS[1], {"prompt": PROMPTS[2], "x": 1}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


def command(dream_folder: Path, source: Path, out: Path, *options: str) -> list[str]:
    base = ["--model", str(dream_folder), "--device", "cpu", "--canvas", "40", "--total-steps", "10"]
    base += ["--fraction", "0.4", "--codec", "template-gzip", "--batch", "2"]
    return [*base, "--input", str(source), "-o", str(out), *options]


def records(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "manifest.jsonl").read_text().splitlines()]


def test_every_payload_is_as_if_made_alone(dream_folder: Path, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "payloads"
    assert main(command(dream_folder, source, out)) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "0002.bin",
        "0003.bin",
        "manifest.jsonl",
        "settings.json",
        "why.bin",
    ]
    form = checkpoint_form(dream_folder)
    for name, prompt in zip(["why", "0002", "0003"], PROMPTS, strict=True):
        single = tmp_path / "single.bin"
        base = command(dream_folder, source, single)
        at = base.index("--input")
        assert main([*base[:at], "--prompt", prompt, *base[at + 2 :]]) == 0
        assert (out / f"{name}.bin").read_bytes() == single.read_bytes()
        anchors = decode(single.read_bytes(), Shared(form.contract, tokens=form.tokenizer))
        (record,) = [r for r in records(out) if r["id"] == name]
        assert (record["anchors"], record["bytes"]) == (len(anchors), single.stat().st_size)


def test_an_interrupted_run_goes_on(
    dream_folder: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "payloads"
    assert main(command(dream_folder, source, whole)) == 0
    written = 0
    real = cloud_anchor.batch.write_whole

    def interrupted(path: Path, data: bytes) -> None:
        nonlocal written
        if path.suffix == ".bin":
            if written == 2:
                raise KeyboardInterrupt
            written += 1
        real(path, data)

    monkeypatch.setattr(cloud_anchor.batch, "write_whole", interrupted)
    assert main(command(dream_folder, source, out)) == 130
    assert len(list(out.glob("*.bin"))) == 2
    with (out / "manifest.jsonl").open("a") as file:
        file.write('{"id": "00')  # a line that was cut
    monkeypatch.undo()
    capsys.readouterr()
    assert main(command(dream_folder, source, out, "--json")) == 0
    assert json.loads(capsys.readouterr().out) == {"prompts": 3, "made": 1, "already_there": 2, "failed": 0}
    for path in whole.glob("*.bin"):
        assert (out / path.name).read_bytes() == path.read_bytes()
    (out / "why.bin").unlink()
    assert main(command(dream_folder, source, out, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["made"] == 1, "a file that was lost is made again"


def test_other_settings_need_another_folder(
    dream_folder: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "payloads"
    assert main(command(dream_folder, source, out)) == 0
    assert main(command(dream_folder, source, out, "--seed", "3")) == 2
    assert "its payloads were made with another seed." in capsys.readouterr().err


def test_single_errors_stop_nothing(
    dream_folder: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with source.open("a") as file:
        file.write('{"prompt": 7}\nnot json\n\n{"prompt": "again", "id": "why"}\n')
        file.write(json.dumps({"prompt": "x " * 600, "id": "long"}) + "\n")
        file.write('{"prompt": "up", "id": "../up"}\n')
    out = tmp_path / "payloads"
    assert main(command(dream_folder, source, out, "--json")) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"prompts": 8, "made": 3, "already_there": 0, "failed": 5}
    assert "5 prompts failed" in captured.err
    errors = {r["id"]: str(r["error"]) for r in records(out) if "error" in r}
    assert "line 4: expected {" in errors["0004"]
    assert "line 5: expected JSON" in errors["0005"]
    assert "line 7: another line has the id 'why'" in errors["0007"]
    assert "within 512 positions" in errors["long"]
    assert "line 9: expected an id of letters" in errors["0009"]
    assert not (tmp_path / "up.bin").exists()


def test_input_that_cannot_be_used(dream_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        read_jobs(tmp_path / "none.jsonl")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(RequestError):
        read_jobs(empty)
    assert main(["--model", str(dream_folder), "--input", str(empty)]) == 2


def test_a_full_disk_stops_it_with_one_clear_error_and_it_goes_on_later(
    dream_folder: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    full = [out / f"{job.name}.bin.part" for job in read_jobs(source)]
    for path in full:
        path.symlink_to("/dev/full")
    assert main(command(dream_folder, source, out)) == 1
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "Make room and run the same command again" in error
    assert "Traceback" not in error
    assert not list(out.glob("*.bin"))
    for path in full:
        path.unlink(missing_ok=True)
    assert main(command(dream_folder, source, out)) == 0
    assert len(list(out.glob("*.bin"))) == len(read_jobs(source))
