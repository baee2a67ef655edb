"""The command lines: what they print, and one line instead of a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from payload import AnchorSet, Extras, Shared, encode
from payload.__main__ import main
from payload.errors import VersionError
from payload.header import peek
from tests.vectors.toy_vocabulary import contract

TOY = contract()
ANCHORS = AnchorSet((0, 1, 4), (97, 98, 99), 64, TOY, 9)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "payload.bin"
    path.write_bytes(encode(ANCHORS, Shared(TOY, [1, 2]), extras=Extras(step=3, total_steps=32)))
    return path


def test_inspect_tells_the_header(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(file), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["codec"] == "compact"
    assert report["contract_tag"] == TOY.identity[:2]
    assert report["needs_prompt"]
    assert report["bytes"] == file.stat().st_size
    assert (report["step"], report["total_steps"]) == (3, 32)
    assert "bundle and the prompt" in report["check"]
    assert main(["inspect", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["codec", "compact"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, 2), (b"", 3), (b"hello world", 3), (b"kkkk\0", 3), (bytes(600_000), 3), (bytes(9000), 2)],
)
def test_inspect_refuses(
    content: bytes | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert main(["inspect", str(path)]) == code
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert not shown.out


@pytest.mark.parametrize("first", range(0, 256, 8))
def test_bytes_of_another_version_are_no_payload_first_of_all(first: int) -> None:
    if first >> 6 != 1:
        with pytest.raises(VersionError, match=r"^this is not a payload"):
            peek(bytes([first, *range(40)]))


def test_standard_input(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "payload", "inspect", "-", "--json"],
        input=file.read_bytes(),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(done.stdout)["codec"] == "compact"


def test_tokens_are_not_needed_to_import() -> None:
    code = "import sys, payload, payload.__main__; sys.exit(bool({'tokenizers', 'torch'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
