"""Recorded runs on an edge model of another vocabulary: here the shipped one, for runs written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import InputError
from lab.__main__ import main
from lab.benches.random_checkpoint import write_tokenizer
from lab.conditions import ALONE, ANCHORS, FULL, LEADING, PREFIX, SCATTERED
from lab.experiments.paper.gaps import gap_scores
from lab.published.published_runs import PUBLISHED_OUTPUT, Trace, TraceTokenizer, read_traces
from lab.published.recorded import EDGE_AWARE, EDGE_AWARE_LOW_GUARD, doubled_words
from lab.published.recorded_tables import group_of
from tests.lab.conftest import TRACES
from tests.shipped import TINY_BUNDLE

ANSWER = "B. The town of Torden lies by by the river Arine, and its people serve bread."


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path)
    return tmp_path / "tokenizer.json"


def run_of(tokenizer: Path, index: int, committed: dict[str, int], **more: Any) -> dict[str, Any]:
    """A run in the published list's form, with this many leading tokens and the last one at each fraction."""
    ids = TraceTokenizer(tokenizer).encode(ANSWER)
    anchors = {
        fraction: {str(p): ids[p] for p in sorted({*range(size), len(ids) - 1})}
        for fraction, size in committed.items()
    }
    about = {"index": index, "benchmark": "arc", "difficulty": "easy", "prompt": "Where does Torden lie?"}
    return about | {
        "ground_truth": "B",
        "dream_output": ANSWER,
        "gen_len": len(ids),
        "anchors": anchors | {"0.5": {str(p): id_ for p, id_ in enumerate(ids)}},
        **more,
    }


@pytest.fixture
def runs(tmp_path: Path, tokenizer: Path) -> Path:
    sparse = {"0.05": 2, "0.1": 4, "0.15": 6, "0.25": 8}
    rows = [
        run_of(tokenizer, 0, {f: min(size, 40) for f, size in sparse.items()}),
        run_of(tokenizer, 1, sparse, output_truncated=True, dream_output=ANSWER[:40]),
        run_of(tokenizer, 2, dict.fromkeys(sparse, 0)),
    ]
    file = tmp_path / "runs.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    return file


def test_every_condition_of_a_run(runs: Path, tokenizer: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    whole = {"real_text": ANSWER, "real_tokens": [], "is_anchor": []}
    fill = {"index": 0, "benchmark": "arc", "alone_text": "The river", "sf_0.1": whole}
    rows = [fill, fill | {"index": 1}]  # the second run's output was cut
    (tmp_path / "some_fill.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = ["run", "recorded", "--traces", str(runs), "--tokenizer", str(tokenizer), "-o", str(out)]
    line += ["--edge", str(TINY_BUNDLE), "--threads", "1"]
    assert main(line) == 0
    records = [json.loads(each) for each in (out / "items/recorded.jsonl").read_text().splitlines()]
    by_name = {record["id"]: record for record in records}
    assert set(by_name) == {"arc/0", "arc/1", "arc/2"}
    first = {(row["fraction"], row["condition"]): row for row in by_name["arc/0"]["answers"]}
    assert first["", FULL]["f1"] == first["", FULL]["right"] == 1
    aware = first["", EDGE_AWARE]
    assert aware["exact"] == 1, "the device writes what was meant"
    assert by_name["arc/0"]["differs"] <= aware["sent"] < by_name["arc/0"]["edge_tokens"]
    assert by_name["arc/0"]["differs"] <= first["", EDGE_AWARE_LOW_GUARD]["sent"] <= aware["sent"]
    assert first["", ALONE]["sent"] == first["", ALONE]["compact"] == 0
    assert first["", ALONE]["f1"] < aware["f1"]
    sizes = [first[fraction, ANCHORS]["sent"] for fraction in ("0.05", "0.1", "0.15", "0.25")]
    assert sizes == sorted(sizes)
    assert 0 < sizes[0] < sizes[-1]
    for fraction in ("0.05", "0.1", "0.15", "0.25"):
        count = first[fraction, ANCHORS]["sent"]
        assert first[fraction, LEADING]["sent"] == count - 1, "the last token stands behind a gap"
        assert first[fraction, PREFIX]["sent"] == first[fraction, SCATTERED]["sent"] == count
        assert first[fraction, ANCHORS]["predictive"] > 0
    cut = {(row["fraction"], row["condition"]): row for row in by_name["arc/1"]["answers"]}
    assert by_name["arc/1"]["cut"]
    assert "right" not in cut["", FULL]
    assert cut["", EDGE_AWARE]["f1"] == 1, "as far as the published text goes"
    assert by_name["arc/0"]["doubled"] == 1

    tables = json.loads((out / "tables.json").read_text())["tables"]
    lines = {(row["sent at"], row["condition"]): row for row in tables["real"]["rows"]}
    assert lines["", EDGE_AWARE]["N"] == 3
    assert lines["", EDGE_AWARE]["judged"] == 2
    assert {row["benchmark"] for row in tables["benchmarks"]["rows"]} == {"arc"}
    everywhere = tables["agreement"]["rows"][0]
    differs = sum(record["differs"] for record in records)
    assert everywhere["edge differs"] == differs / everywhere["tokens"]
    beside = {(row["sent at"], row["filled by"], row["condition"]): row for row in tables["fills"]["rows"]}
    assert beside["10%", "published", ANCHORS]["F1"]["mean"] == beside["10%", "published", ANCHORS]["N"] == 1
    here = beside["10%", "here", ANCHORS]
    assert here["less the published"]["mean"] == pytest.approx(first["0.1", ANCHORS]["f1"] - 1)
    assert ("25%", "here", ANCHORS) not in beside, "no fill was published at it"


def test_the_published_list(tmp_path: Path, tokenizer: Path) -> None:
    row = run_of(tokenizer, 7, {"0.1": 3})
    file = tmp_path / "ablation_anchors.json"
    file.write_text(json.dumps([row | {"dream_output": "x" * PUBLISHED_OUTPUT}, row], indent=1))
    cut, whole = read_traces(file)
    assert (cut.output_cut, whole.output_cut) == (True, False)
    assert (whole.name, whole.truth) == ("arc/7", "B")
    assert [p for p, _ in whole.anchors["0.1"]] == [0, 1, 2, whole.length - 1]
    file.write_text(json.dumps([{"prompt": "?", "anchor_forced": {}}]))
    with pytest.raises(InputError):
        read_traces(file)
    file.write_text("[{")
    with pytest.raises(InputError):
        read_traces(file)


def test_doubled_words() -> None:
    assert doubled_words("the the the river The\nthe 10 10") == 3
    assert doubled_words("a man and another and so on; no, no") == 0


def test_groups_by_length() -> None:
    assert [group_of(size) for size in (0, 19, 20, 59, 60, 119, 120, 512)] == [
        *["under 20 tokens"] * 2,
        *["20 to 59"] * 2,
        *["60 to 119"] * 2,
        *["120 and more"] * 2,
    ]


def test_published_gap_figures_are_reproduced_from_their_ids(
    traces: list[Trace], qwen: TraceTokenizer
) -> None:
    outputs = {trace.name: trace.output for trace in traces}
    compared = 0
    for line in TRACES.with_name("qwen05_fill_dev.jsonl").read_text("utf-8").splitlines():
        fill = json.loads(line)
        reference = qwen.encode(outputs[f"{fill['benchmark']}/{fill['index']}"])
        for stored in (value for key, value in fill.items() if key.startswith("sf_")):
            gaps = [p for p, held in enumerate(stored["is_anchor"]) if not held]
            found = gap_scores(qwen.decode, stored["real_tokens"], reference, gaps)
            assert found == (stored["gap_word_f1"], stored["gap_token_accuracy"])
            compared += stored["n_gap_compared"] > 0
    assert compared == 17
