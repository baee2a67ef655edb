"""The traces sub-command: on a small file of its own, and on the published runs where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.benches.random_checkpoint import write_tokenizer
from lab.experiments.paper.gaps import gap_scores
from lab.published.published_runs import DEFAULT_TOKENIZER, TraceTokenizer, read_traces
from lab.published.traces import read_fills

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"


def _write(folder: Path) -> Path:
    """Two runs, one half committed behind a gap, and a fill of the first."""
    write_tokenizer(folder)
    tokenizer = TraceTokenizer(folder / "tokenizer.json")
    text = "The river rises in the northern hills."
    ids = tokenizer.encode(text)
    size = len(ids)
    anchors = {"0.1": [[0, ids[0]], [3, ids[3]]], "1.0": [[p, t] for p, t in enumerate(ids)]}
    run = {"prompt": "Where?", "dream_output": text, "output_truncated": False, "gen_len": size}
    rows = [run | {"index": i, "benchmark": "arc", "anchors": anchors} for i in range(2)]
    file = folder / "runs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    forced = {"real_text": text, "real_tokens": ids, "is_anchor": [p in (0, 3) for p in range(size)]}
    fill = {"index": 0, "benchmark": "arc", "alone_text": "The river", "alone_f1": 0.4, "sf_0.1": forced}
    (folder / "some_fill.jsonl").write_text(json.dumps(fill) + "\n")
    return file


def test_a_small_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _write(tmp_path)
    out = tmp_path / "tables.json"
    arguments = ["traces", str(file), "--tokenizer", str(tmp_path / "tokenizer.json"), "--json", str(out)]
    assert main(arguments) == 0
    assert "share in the leading run" in capsys.readouterr().out
    tables = json.loads(out.read_text())
    early, full = tables["shape"]["rows"]
    assert (early["runs"]["mean"], early["share in the leading run"]["mean"]) == (2, 0.5)
    assert (full["complete"]["mean"], full["coverage"]["mean"]) == (1, 1)
    controls = {(row["fraction"], row["what"]): row["F1"]["mean"] for row in tables["controls"]["rows"]}
    assert controls["1.0", "anchors alone"] == controls["1.0", "prefix alone"] == 1
    assert controls["0.1", "anchors alone"] < 1
    fills = {row["what"]: row for row in tables["fills"]["rows"]}
    assert fills["anchors, filled by 0.5B"]["F1"]["mean"] == 1
    assert fills["0.5B alone"]["F1"]["mean"] == pytest.approx(2 * 2 / (2 + 7))
    assert tables["bytes"]["rows"][0]["compact"] > 0

    file.write_text("{}\n")
    assert main(arguments) == 2
    assert "line 1" in capsys.readouterr().err


@pytest.mark.skipif(not TRACES.exists(), reason="the published traces are not beside this repository")
def test_published_gap_figures_are_reproduced_from_their_ids() -> None:
    tokenizer = TraceTokenizer(TRACES / DEFAULT_TOKENIZER)
    text = tokenizer.decode
    outputs = {trace.name: trace.output for trace in read_traces(TRACES / "dream7b_dev.jsonl")}
    compared = 0
    for fill in read_fills(TRACES / "qwen05_fill_dev.jsonl"):
        reference = tokenizer.encode(outputs[fill.name])
        for stored in fill.forced.values():
            gaps = [p for p, held in enumerate(stored["is_anchor"]) if not held]
            f1, accuracy = gap_scores(text, stored["real_tokens"], reference, gaps)
            assert (f1, accuracy) == (stored["gap_word_f1"], stored["gap_token_accuracy"]), fill.name
            compared += stored["n_gap_compared"] > 0
    assert compared == 17
