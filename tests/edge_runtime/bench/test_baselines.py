"""Baselines of the benchmark: the same model gives the same logits in each, after any rewind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.bench import __main__ as cli
from edge_runtime.bench.baselines import open_baseline
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import EngineError, UsageError

CONTEXT = 200


@pytest.fixture(scope="module")
def gguf(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="gguf is not installed")
    from lab.benches.write_gguf import write_gguf

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(tiny_checkpoint, path, "f32", "f32")
    return path


def open_as(kind: str, request: pytest.FixtureRequest, bundle: Bundle) -> Any:
    if kind == "llama.cpp":
        pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
        spec = f"llama.cpp:{request.getfixturevalue('gguf')}"
    else:
        spec = f"transformers:{request.getfixturevalue('tiny_checkpoint')}"
    return open_baseline(spec, bundle, context=CONTEXT, threads=1)


# llama.cpp keeps its cache in half precision.
@pytest.mark.parametrize(("kind", "tolerance"), [("transformers", 1e-4), ("llama.cpp", 3e-2)])
def test_logits_of_any_rows_after_any_rewind(
    kind: str, tolerance: float, request: pytest.FixtureRequest, tiny_bundle: Path
) -> None:
    bundle = Bundle.open(tiny_bundle, "fp32")
    theirs, ours = open_as(kind, request, bundle), OrtEngine.open(bundle, context=CONTEXT, threads=1)
    random = np.random.default_rng(1)
    ids = [int(i) for i in random.integers(0, 300, 150)]
    at = 0
    while at < len(ids):
        chunk = ids[at : at + int(random.integers(1, 30))]
        rows = [row for row in range(len(chunk)) if random.random() < 0.3]
        np.testing.assert_allclose(theirs.append(chunk, rows), ours.append(chunk, rows), atol=tolerance)
        at += len(chunk)
        if random.random() < 0.4:
            at -= int(random.integers(0, 20)) if at > 20 else 0
            ours.rewind(at)
            theirs.rewind(at)
    ours.rewind(0)
    theirs.rewind(0)
    np.testing.assert_allclose(theirs.append(ids[:9], [8]), ours.append(ids[:9], [8]), atol=tolerance)


def test_the_benchmark_puts_them_side_by_side(
    tiny_bundle: Path, tiny_checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run: Callable[[list[str]], int] = cli.main
    peer = f"transformers:{tiny_checkpoint}"
    options = ["--threads", "1", "--repeat", "1", "--length", "5", "--vs", peer]
    assert run([str(tiny_bundle), *options]) == 0
    out = capfd.readouterr().out
    assert f"| transformers {tiny_checkpoint.name} | chunk 64 |" in out
    assert f"- chunk 64 over transformers {tiny_checkpoint.name}: " in out


def test_what_cannot_be_opened(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Bundle.open(tiny_bundle, "fp32")

    def attempt(spec: str) -> None:
        open_baseline(spec, bundle, context=CONTEXT, threads=1)

    with pytest.raises(UsageError, match="expected one of genai, genai:FOLDER, llama"):
        attempt("llama.cpp")
    for name, spec, message in (
        ("llama_cpp", f"llama.cpp:{tmp_path / 'none.gguf'}", "pip install llama-cpp-python"),
        ("transformers", f"transformers:{tmp_path}", "pip install transformers"),
        ("onnxruntime_genai", f"genai:{tmp_path}", "pip install onnxruntime-genai"),
    ):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(EngineError, match=message):
            attempt(spec)
