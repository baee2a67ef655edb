"""The benchmark: figures of every variant, the cache that each repetition starts from, errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.bench import __main__ as cli
from edge_runtime.bench.llama_cpp import LlamaEngine
from edge_runtime.bench.measure import Bench, Trial, repetitions
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import EngineError
from tests.edge_runtime.hash_engine import CONTRACT, HashEngine

CONTEXT = 200


@pytest.fixture
def bench(tiny_bundle: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*args: str) -> tuple[int, str, str]:
        code = cli.main([str(tiny_bundle), "--threads", "1", "--repeat", "1", "--length", "20", *args])
        return (code, *capfd.readouterr())

    return run


def test_every_variant_has_every_figure(bench: Any) -> None:
    code, out, _ = bench("--json")
    assert code == 0
    report = json.loads(out)
    assert report["threads"] == 1
    assert list(report["seconds to load"]) == list(report["bytes"]) == ["fp32", "int8", "int4"]
    tests = {(figure["test"], figure["engine"]) for figure in report["figures"]}
    assert len(tests) == len(report["figures"]) == 5 * 10
    assert ("fill at 25%", "int4 portable") in tests
    assert all(figure["ms"] > 0 for figure in report["figures"])
    table = cli.as_markdown(report)
    assert "| test | fp32 | int8 | int8 portable | int4 | int4 portable |" in table
    assert table.count("\n| ") == 1 + 10


def test_wrong_input_is_one_message(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    for code, wrong in (
        (2, ("--length", "9999")),
        (2, ("--vs", "other")),
        (4, ("--vs", "llama.cpp:none.gguf")),
        (4, ("--variant", "fp64")),
    ):
        found, out, err = bench(*wrong)
        assert (found, out) == (code, "")
        assert err.startswith("bench: ")
    assert cli.main([str(tmp_path)]) == 4


def test_repetitions_start_from_the_same_cache() -> None:
    engine = HashEngine(context=CONTEXT)
    bench = Bench("fake", engine, CONTRACT)
    repetitions([bench.decode(50, 4)], 3)
    assert engine.length == 54
    assert sum(size for size, _ in engine.passes) == 50 + 4 * 4
    repetitions([bench.chunk(8, 50, scored=True)], 1)
    assert engine.passes[-1] == (8, 8)
    repetitions([bench.prefill(30)], 1)
    assert engine.length == 30
    engine.passes.clear()
    repetitions([bench.fill(0.5, 20)], 1)
    assert engine.passes[0][0] >= 100, "the prompt is run each time"
    assert len(engine.passes) == 2 * 10, "one pass for each token of its own, the last one predicts nothing"


def test_repetitions_of_several_take_turns() -> None:
    calls: list[str] = []
    tests = [Trial(n, "x", 1, partial(calls.append, "-"), partial(calls.append, n)) for n in ("a", "b")]
    found = repetitions(tests, 2)
    assert "".join(calls) == "-a-b-a-b-a-b"
    assert [len(kept) for kept in found] == [2, 2]


def test_llama_cpp_gives_the_same_logits_after_any_rewind(
    tiny_checkpoint: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    pytest.importorskip("gguf", reason="gguf is not installed")
    from lab.benches.write_gguf import write_gguf

    write_gguf(tiny_checkpoint, tmp_path / "tiny.gguf", "f32", "f32")
    bundle = Bundle.open(tiny_bundle, "fp32")
    ours = OrtEngine.open(bundle, context=CONTEXT, threads=1)
    size = bundle.manifest.model.vocab_size
    theirs = LlamaEngine(tmp_path / "tiny.gguf", size, context=CONTEXT, threads=1)
    random = np.random.default_rng(1)
    ids = [int(i) for i in random.integers(0, 300, 150)]
    at = 0
    while at < len(ids):
        chunk = ids[at : at + int(random.integers(1, 30))]
        rows = [row for row in range(len(chunk)) if random.random() < 0.3]
        # llama.cpp keeps its cache in half precision.
        np.testing.assert_allclose(theirs.append(chunk, rows), ours.append(chunk, rows), atol=3e-2)
        at += len(chunk)
        if random.random() < 0.4:
            at -= int(random.integers(0, 20)) if at > 20 else 0
            ours.rewind(at)
            theirs.rewind(at)
    with pytest.raises(EngineError):
        LlamaEngine(tmp_path / "tiny.gguf", size + 1, context=CONTEXT, threads=1)
