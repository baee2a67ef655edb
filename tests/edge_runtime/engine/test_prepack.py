"""Prepacked weights: the same logits, used only where they fit, and never a reason to fail."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine import prepack
from edge_runtime.engine.ort_engine import OrtEngine, session_options
from edge_runtime.engine.prepack import PrepackCache, cache_root
from edge_runtime.errors import BundleHashError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.system import processor_signature


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Bundle:
    return Bundle.open(shutil.copytree(tiny_bundle, tmp_path / "bundle"), "int4")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def same(graph: Path, options: object) -> np.ndarray:
    """A probe by which every graph gives the same logits."""
    ort.InferenceSession(str(graph), options)
    return np.zeros(3)


def logits(engine: OrtEngine) -> np.ndarray:
    return engine.append([1, 2, 3], [0, 2]).copy()


def test_an_entry_is_really_loaded_and_a_broken_one_is_not_used(
    bundle: Bundle, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = PrepackCache(bundle, root)
    assert cache.build(session_options(1), same)
    graph = cache.graph
    graph.write_bytes(b"x" * graph.stat().st_size)
    assert cache.usable()
    logits(OrtEngine.open(bundle, threads=1, cache=cache))
    assert "prepacked weights are not used" in caplog.text
    graph.write_bytes(b"x")
    assert not cache.usable()
    assert cache.build(session_options(1), same)
    assert cache.usable()


@pytest.mark.parametrize("change", ["time", "size", "stamp"])
def test_an_entry_of_changed_files_is_not_used(bundle: Bundle, root: Path, change: str) -> None:
    cache = PrepackCache(bundle, root)
    assert cache.build(session_options(1), same)
    weights = bundle.path / "int4" / "model.onnx.data"
    if change == "time":
        os.utime(weights, ns=(1, 1))
    elif change == "size":
        weights.write_bytes(weights.read_bytes() + b"x")
    else:
        (cache.folder / "stamp.json").write_text("{")
    assert not PrepackCache(bundle, root).usable()


def test_an_entry_that_gives_other_logits_is_dropped_and_not_made_again(
    bundle: Bundle, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    verdicts = iter([False])
    monkeypatch.setattr(prepack.np, "allclose", lambda *args, **kwargs: next(verdicts))
    plain = logits(OrtEngine.open(bundle, threads=1))
    for _ in range(2):  # the second time nothing is tried: there is no second verdict
        cache = PrepackCache(bundle, root)
        np.testing.assert_array_equal(logits(OrtEngine.open(bundle, threads=1, cache=cache)), plain)
    assert "give other results" in caplog.text
    assert cache.unfit()
    assert cache.verified()
    assert not cache.usable()
    assert not (cache.folder / "model.onnx.data").exists()


@pytest.mark.parametrize("variant", ["fp32", "int8", "int4"])
def test_whatever_the_variant_a_cache_changes_no_logits(bundle: Bundle, root: Path, variant: str) -> None:
    """Chunks and single tokens, with and without logits, after the cache has grown and been rewound."""
    bundle = Bundle.open(bundle.path, variant)
    assert not PrepackCache(bundle, root).usable()
    ids = [int(i) for i in np.random.default_rng(0).integers(0, 300, 200)]
    for _ in range(2):  # made, and found
        cache = PrepackCache(bundle, root)
        plain, packed = OrtEngine.open(bundle, threads=2), OrtEngine.open(bundle, threads=2, cache=cache)
        for start, stop in ((0, 20), (20, 21), (15, 90), (90, 200), (0, 3)):
            rows = range(0, stop - start, 2)
            for engine in (plain, packed):
                engine.rewind(start)
            expected = plain.append(ids[start:stop], rows).copy()
            np.testing.assert_allclose(packed.append(ids[start:stop], rows), expected, atol=1e-5)
        for engine in (plain, packed):
            engine.append(ids[:5])
        np.testing.assert_allclose(packed.append([1], [0]), plain.append([1], [0]).copy(), atol=1e-5)
    assert cache.usable() != cache.unfit()


def test_another_processor_library_or_variant_has_an_entry_of_its_own(
    bundle: Bundle, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = PrepackCache(bundle, root)
    assert first.build(session_options(1), same)
    assert first.folder != PrepackCache(Bundle.open(bundle.path, "int8"), root).folder
    monkeypatch.setattr(prepack, "processor_signature", lambda: "another")
    second = PrepackCache(bundle, root)
    assert not second.usable()
    assert second.build(session_options(1), same)
    assert not first.folder.exists()  # what no longer fits is removed
    monkeypatch.setattr(prepack.ort, "__version__", "0")
    assert PrepackCache(bundle, root).folder != second.folder
    assert processor_signature()


def test_a_folder_that_cannot_be_written_is_a_warning(
    bundle: Bundle, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root.write_text("a file where a folder should be")
    plain = logits(OrtEngine.open(bundle, threads=1))
    found = logits(OrtEngine.open(bundle, threads=1, cache=PrepackCache(bundle, root)))
    np.testing.assert_array_equal(found, plain)
    assert "could not be kept" in caplog.text
    assert "Set EDGE_CACHE" in caplog.text


def test_too_little_disk_is_a_warning(
    bundle: Bundle, root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(bundle.path)
    monkeypatch.setattr(prepack.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    assert not PrepackCache(bundle, root).build(session_options(1), same)
    assert "MB free for prepacked weights, found 0" in caplog.text


def test_an_interrupt_leaves_nothing_behind(
    bundle: Bundle, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    cache = PrepackCache(bundle, root)
    monkeypatch.setattr(prepack.ort, "InferenceSession", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.build(session_options(1), same)
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_a_runtime_verifies_once_for_each_state_of_the_files(
    bundle: Bundle, root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    checks: list[Path] = []
    verify: Callable[[Bundle], None] = Bundle.verify

    def counted(self: Bundle) -> None:
        checks.append(self.path)
        verify(self)

    def start(**options: Any) -> None:
        runtime = EdgeRuntime.open(bundle.path, "int4", threads=1, **options)
        runtime.engine.append([1])

    monkeypatch.setattr(Bundle, "verify", counted)
    monkeypatch.setattr(prepack, "MIN_BYTES", 0)
    monkeypatch.setenv("EDGE_CACHE", str(root))
    start()
    assert "preparing the weights for this processor, once" in caplog.text
    start()
    assert len(checks) == 1
    start(prepack=False)
    assert len(checks) == 2
    weights = bundle.path / "int4" / "model.onnx.data"
    data = bytearray(weights.read_bytes())
    data[1000] ^= 1
    weights.write_bytes(data)
    with pytest.raises(BundleHashError):
        start()


def test_small_models_are_left_alone(bundle: Bundle, root: Path) -> None:
    assert not PrepackCache(bundle, root).worthwhile()


def test_where_the_cache_is(tmp_path: Path) -> None:
    assert cache_root({"EDGE_CACHE": "/x", "XDG_CACHE_HOME": "/y"}) == Path("/x")
    assert cache_root({"XDG_CACHE_HOME": "/y"}) == Path("/y/inverse-speculation")
    assert cache_root({}) == Path.home() / ".cache" / "inverse-speculation"
