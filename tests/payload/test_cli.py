"""The command lines: what they print, and one line instead of a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from payload import AnchorSet, Extras, Shared, encode
from payload.__main__ import main
from payload.frames import AnswerFrame, Question, Refusal, RefusalCode, encode_question, encode_reply
from payload.tools.published_runs import TraceTokenizer
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
    assert not report["verified"]
    assert report["bytes"] == file.stat().st_size
    assert (report["step"], report["total_steps"]) == (3, 32)
    assert main(["inspect", str(file)]) == 0
    assert "give --contract to list them" in capsys.readouterr().out


def test_inspect_lists_the_anchors(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "bundle.json"
    bundle.write_text(json.dumps({"contract": TOY.to_json()}))
    assert main(["inspect", str(file), "--contract", str(bundle), "--prompt-ids", "1,2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verified"]
    assert report["positions"] == [0, 1, 4]
    assert report["ids"] == [97, 98, 99]
    assert main(["inspect", str(file), "--contract", str(bundle), "--prompt-ids", "1,3"]) == 3
    assert "another prompt" in capsys.readouterr().err


def test_inspect_shows_the_frame_around_a_payload(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    framed, bundle = tmp_path / "frame.bin", tmp_path / "bundle.json"
    framed.write_bytes(encode_reply(AnswerFrame(700, 2, True, file.read_bytes())))
    bundle.write_text(json.dumps({"contract": TOY.to_json()}))
    assert main(["inspect", str(framed), "--contract", str(bundle), "--prompt-ids", "1,2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["frame"], report["request_id"], report["part"], report["last"]) == ("answer", 700, 2, True)
    assert report["frame_bytes"] == report["bytes"] + 3
    assert report["verified"]
    assert report["ids"] == [97, 98, 99]
    assert main(["inspect", str(framed)]) == 0
    assert "give --contract to list them" in capsys.readouterr().out


def test_inspect_shows_a_question_and_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, bundle = tmp_path / "frame.bin", tmp_path / "bundle.json"
    bundle.write_text(json.dumps({"contract": TOY.to_json()}))
    path.write_bytes(encode_question(Question(7, "Où?", 0.25, room=48), Shared(TOY)))
    assert main(["inspect", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frame"] == "question-utf8"
    assert (report["fraction"], report["steps"], report["room"]) == (0.25, None, 48)
    assert not report["verified"]
    assert "text" not in report
    assert main(["inspect", str(path), "--contract", str(bundle)]) == 0
    assert "Où?" in capsys.readouterr().out
    path.write_bytes(encode_reply(Refusal(7, RefusalCode.OVERLOADED, 30)))
    assert main(["inspect", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["frame"], report["refusal"], report["retry_after"]) == ("refusal", "overloaded", 30)
    path.write_bytes(bytes([0x38, 0, 0, 0, 0, 0, 0]))
    assert main(["inspect", str(path)]) == 3
    assert "kind" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, 2, "expected a readable payload file"),
        (b"", 3, "cut short"),
        (b"hello world", 3, "codec: expected 0"),
        (bytes(600_000), 3, "not a payload"),
        (bytes(9000), 3, "not a frame"),
    ],
)
def test_inspect_refuses(
    content: bytes | None, code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    assert main(["inspect", str(path)]) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out


def test_inspect_refuses_what_is_no_number(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(file), "--prompt-ids", "1,x"]) == 2
    assert "--prompt-ids: expected" in capsys.readouterr().err


def test_standard_input(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "payload", "inspect", "-", "--json"],
        input=file.read_bytes(),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(done.stdout)["codec"] == "compact"


def test_bench_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traces.jsonl"
    assert main(["bench", str(path)]) == 2
    assert "expected a readable text file" in capsys.readouterr().err
    path.write_text('{"prompt": "x"}\n')
    assert main(["bench", str(path)]) == 2
    assert "line 1: expected a run" in capsys.readouterr().err
    row = {
        "benchmark": "b",
        "index": 1,
        "prompt": "What is 2 + 2?",
        "dream_output": "The answer is 4.",
        "output_truncated": False,
        "gen_len": 6,
        "anchors": {
            "0.1": [[0, 785], [1, 4226], [2, 374]],
            "0.25": [[0, 785], [1, 4226], [2, 374], [3, 220]],
        },
    }
    path.write_text(json.dumps(row) + "\n")
    assert main(["bench", str(path)]) == 2
    assert "name it with --tokenizer FILE" in capsys.readouterr().err


def test_bench_reports(
    traces: object, qwen: TraceTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.payload.conftest import TRACES

    lines = TRACES.read_text().splitlines()
    short = tmp_path / "traces.jsonl"
    short.write_text("\n".join(lines[:2]))
    tokenizer = TRACES.parent.parent / "tokenizer" / "qwen2.5_tokenizer.json.gz"
    picture = tmp_path / "bytes.png"
    plot = ["--plot", str(picture)] if _has("matplotlib") else []
    assert main(["bench", str(short), "--tokenizer", str(tokenizer), "--json", *plot]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["traces"] == 2
    row = report["fractions"]["0.1"]["compact"]
    assert set(row) == {"mean", "median", "p95", "roundtrip"}
    assert row["roundtrip"] == 2
    assert {"template-gzip", "template-zstd", "compact", "compact-no-prompt"} == set(
        report["fractions"]["0.1"]
    )
    assert {"raw", "gzip", "zstd"} <= set(report["full_text"])
    assert not plot or picture.read_bytes().startswith(b"\x89PNG")


def _has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def test_tokens_are_not_needed_to_import() -> None:
    code = "import sys, payload, payload.__main__; sys.exit(bool({'tokenizers', 'torch'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
