"""The codec benchmark: what it reports, and one line instead of a traceback."""

from __future__ import annotations

import json
from pathlib import Path

from lab.__main__ import main
from lab.published.published_runs import TraceTokenizer
from tests.lab.conftest import TRACES


def test_bench_refuses_runs_that_it_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    words = ["run", "codec_bench", "-o", str(tmp_path / "out"), "--traces", str(path)]
    row = {"benchmark": "b", "index": 1, "prompt": "?", "dream_output": "4.", "output_truncated": False}
    whole = row | {"gen_len": 2, "anchors": {"0.1": [[0, 785]], "0.25": [[0, 785]]}}
    assert main(words[:-2]) == 2
    assert main(words) == 2
    for content in ({"prompt": "x"}, whole):  # the second one lacks its tokenizer
        path.write_text(json.dumps(content) + "\n")
        assert main(words) == 2


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
