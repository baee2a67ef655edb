"""The codec benchmark: what it reports, and one line instead of a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.published.published_runs import TraceTokenizer
from tests.lab.conftest import TRACES


def test_bench_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traces.jsonl"
    words = ["run", "codec_bench", "-o", str(tmp_path / "out"), "--traces", str(path)]
    assert main(words[:-2]) == 2
    assert "--traces: expected a file of runs, found none" in capsys.readouterr().err
    assert main(words) == 2
    assert "expected a readable text file" in capsys.readouterr().err
    path.write_text('{"prompt": "x"}\n')
    assert main(words) == 2
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
    assert main(words) == 2
    assert "name it with --tokenizer FILE" in capsys.readouterr().err


def test_bench_reports(traces: object, qwen: TraceTokenizer, tmp_path: Path) -> None:
    short = tmp_path / "traces.jsonl"
    short.write_text("\n".join(TRACES.read_text().splitlines()[:2]))
    tokenizer = TRACES.parent.parent / "tokenizer" / "qwen2.5_tokenizer.json.gz"
    out = tmp_path / "out"
    words = ["run", "codec_bench", "-o", str(out), "--traces", str(short), "--tokenizer", str(tokenizer)]
    assert main(words) == 0
    tables = json.loads((out / "tables.json").read_text())["tables"]
    names = {"template-gzip", "compact", "compact-no-prompt"}
    assert tables["bytes"]["rows"][0].keys() == {"fraction", *names}
    assert {row["codec"] for row in tables["spread"]["rows"]} == names
    assert {"raw", "gzip", "zstd"} <= tables["text"]["rows"][0].keys()
    assert tables["facts"]["rows"][0]["at 10%"] == 2
