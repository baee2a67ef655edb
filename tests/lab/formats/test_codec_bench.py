"""The codec benchmark: what it reports, and one line instead of a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.formats.codec_bench import main
from lab.published.published_runs import TraceTokenizer
from tests.lab.conftest import TRACES


def test_bench_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traces.jsonl"
    assert main([str(path)]) == 2
    assert "expected a readable text file" in capsys.readouterr().err
    path.write_text('{"prompt": "x"}\n')
    assert main([str(path)]) == 2
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
    assert main([str(path)]) == 2
    assert "name it with --tokenizer FILE" in capsys.readouterr().err


def test_bench_reports(
    traces: object, qwen: TraceTokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = TRACES.read_text().splitlines()
    short = tmp_path / "traces.jsonl"
    short.write_text("\n".join(lines[:2]))
    tokenizer = TRACES.parent.parent / "tokenizer" / "qwen2.5_tokenizer.json.gz"
    picture = tmp_path / "bytes.png"
    plot = ["--plot", str(picture)] if _has("matplotlib") else []
    assert main([str(short), "--tokenizer", str(tokenizer), "--json", *plot]) == 0
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
