"""The benchmark: complete figures, the passes of forced decoding, errors for bad input."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.bench import __main__ as cli
from edge_runtime.bench.measure import CHUNKS, Bench, Trial, timed
from payload import Contract


@pytest.fixture
def bench(tiny_bundle: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*args: str) -> tuple[int, str, str]:
        code = cli.main([str(tiny_bundle), "--threads", "1", "--repeat", "1", "--length", "20", *args])
        return (code, *capfd.readouterr())

    return run


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    anchors = {"0.1": [[0, 5], [1, 6], [9, 7]], "0.25": [[0, 5], [1, 6], [2, 8], [9, 7], [40, 9]]}
    lines = [
        {"prompt": "How many loaves?", "gen_len": 12, "anchors": anchors},
        {"prompt": "How many?", "gen_len": 10_000, "anchors": anchors},
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_json_has_every_figure_with_its_passes(bench: Any, traces: Path) -> None:
    code, out, _ = bench("--format", "json", "--traces", str(traces))
    assert code == 0
    report = json.loads(out)
    assert (report["variant"], report["threads"]) == ("fp32", 1)
    tests = {figure["test"]: figure for figure in report["figures"]}
    assert all(figure["seconds"] > 0 for figure in report["figures"])
    assert {f"chunk {size}" for size in CHUNKS} < set(tests)
    assert {f"chunk {size}, scored" for size in CHUNKS} < set(tests)
    start, prefill = tests["start, prefill 100"], tests["prefill 100"]
    ratio = report["ratios"]["warm start to first token over its prefill"]
    assert ratio == pytest.approx(start["seconds"] / prefill["seconds"])
    assert {"prefill 64", "prefill 256", "decode at 0", "decode at 128"} < set(tests)
    assert tests["fill at 0%"]["passes"] == 20  # the last token predicts nothing
    assert tests["fill at 100%"]["passes"] == 0
    assert tests["fill at 100%, scored"]["passes"] == 1
    assert tests["one pass a position"]["passes"] == 21
    assert tests["traces at 0.1"]["tokens"] == 12
    assert tests["traces at 0.1, one pass a position"]["passes"] == 13
    assert tests["traces at 0.1"]["passes"] == 9  # nine gap tokens, the last one is the answer's last
    assert tests["traces at 0.25"]["passes"] == 8
    slow, fast = (tests[f"traces at 0.1{suffix}"]["seconds"] for suffix in (", one pass a position", ""))
    assert report["ratios"]["traces at 0.1 over one pass a position"] == pytest.approx(fast / slow)
    assert any("1 answers too long" in name for name in report["ratios"])
    assert report["memory"] == {} or report["memory"]["anonymous"] > 1_000_000
    assert set(report["seconds"]) == {"load", "first pass (100 tokens)"}


class Once:
    """Measures on the first call, and gives the same report on every later one."""

    def __init__(self, measure: Callable[..., cli.BenchReport]) -> None:
        self.measure, self.report = measure, None

    def __call__(self, args: Any) -> cli.BenchReport:
        self.report = self.report or self.measure(args)
        return self.report


def test_tables_and_plot(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(cli, "measure", Once(cli.measure))
    code, out, _ = bench("--plot", str(tmp_path / "fill.png"))
    assert code == 0
    assert "| onnxruntime | chunk 64 |" in out
    assert (tmp_path / "fill.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(bench("--format", "csv")[1].splitlines()))
    assert {row["test"] for row in rows} > {"decode at 0", "fill at 50%"}
    each = float(rows[0]["seconds"]) / int(rows[0]["tokens"])
    assert float(rows[0]["milliseconds_per_token"]) == pytest.approx(1e3 * each)


def test_wrong_input_is_one_message(bench: Any, tmp_path: Path, traces: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    for text, message in (
        ("{", "expected a line of JSON for each trace"),
        ('{"prompt": "x"}', "expected a line of JSON for each trace"),
        ("", "expected at least one trace"),
        (traces.read_text().replace("[0, 5]", "[0, 999999]"), "for another vocabulary"),
    ):
        bad.write_text(text)
        code, out, err = bench("--traces", str(bad))
        assert (code, out) == (2, "")
        assert err.startswith("bench: ")
        assert message in err
    assert bench("--length", "0")[0] == 2
    assert bench("--length", "9999")[0] == 2
    assert cli.main([str(tmp_path)]) == 4


def test_repetitions_start_from_the_same_cache(make_engine: Callable[..., Any], contract: Contract) -> None:
    engine = make_engine(context=200)
    bench = Bench("fake", engine, contract)
    [figure] = timed([bench.decode(50, 4)], 3)
    assert (figure.tokens, figure.passes) == (4, 4)
    assert engine.length == 54
    assert sum(size for size, _ in engine.passes) == 50 + 4 * 4
    assert timed([bench.chunk(8, 50, scored=True)], 1)[0].tokens == 8
    assert engine.passes[-1] == (8, 8)
    assert timed([bench.prefill(30)], 1)[0].seconds > 0
    assert engine.length == 30


def test_repetitions_of_several_take_turns() -> None:
    calls: list[str] = []

    def test(name: str) -> Trial:
        return Trial(
            name, "x", 1, lambda: len(calls), partial(calls.append, "-"), partial(calls.append, name)
        )

    figures = timed([test("a"), test("b")], 2)
    assert "".join(calls) == "-a-b-a-b-a-b"
    assert [(figure.engine, figure.passes) for figure in figures] == [("a", 12), ("b", 12)]
