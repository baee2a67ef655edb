"""The doctor: sound and broken bundles, in words, and the recommended variant."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.bundle.bundle import file_record
from edge_runtime.doctor import Finding, examine, main, recommend

pytest.importorskip("torch", reason="the bundle for this test is converted here")

from convert import Thresholds
from convert import convert as run_convert
from tests.checkpoints import write_tiny_qwen


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    source = write_tiny_qwen(folder / "source")
    bounds = {"int8": Thresholds()}
    run_convert(source, folder / "bundle", variants=["fp32", "int8"], thresholds=bounds, threads=1)
    return folder / "bundle"


@pytest.fixture
def bundle(converted: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(converted, tmp_path / "bundle"))


def found(report: Any, variant: str) -> Finding:
    return next(finding for finding in report.findings if finding.variant == variant)


def test_a_sound_bundle(converted: Path) -> None:
    report = examine(converted, threads=1)
    assert {finding.variant for finding in report.findings} == {"fp32", "int8"}
    for finding in report.findings:
        assert not finding.problems
        assert not finding.notes
        assert finding.milliseconds is not None
        assert finding.milliseconds > 0
    assert report.recommended in ("fp32", "int8")
    assert found(report, "fp32").needs > found(report, "int8").needs


def test_a_changed_file_is_named(bundle: Path) -> None:
    path = bundle / "int8" / "model.onnx.data"
    content = bytearray(path.read_bytes())
    content[77] ^= 1
    path.write_bytes(content)
    report = examine(bundle, threads=1)
    assert "SHA-256" in found(report, "int8").problems[0]
    assert report.recommended == "fp32"


def test_a_missing_tokenizer_breaks_every_variant(bundle: Path) -> None:
    (bundle / "tokenizer.json").unlink()
    report = examine(bundle, threads=1)
    assert report.recommended is None
    assert all("tokenizer.json" in finding.problems[0] for finding in report.findings)


def test_a_graph_that_is_none_with_a_record_that_fits(bundle: Path) -> None:
    """Hashes hold, and yet the runtime cannot load it."""
    path = bundle / "int8" / "model.onnx"
    path.write_bytes(b"not a graph")
    manifest = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    manifest["variants"]["int8"]["files"]["int8/model.onnx"] = file_record(path).to_json()
    (bundle / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert "ONNX Runtime" in found(examine(bundle, threads=1), "int8").problems[0]


@pytest.mark.parametrize(("at", "problem"), [(0, True), (5, False)])
def test_another_answer_than_the_known_one(bundle: Path, at: int, problem: bool) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    answer = manifest["variants"]["int8"]["verification"]["probe"]["answer"]
    answer[at] = (answer[at] + 1) % 300
    (bundle / "bundle.json").write_text(json.dumps(manifest), encoding="utf-8")
    finding = found(examine(bundle, threads=1), "int8")
    assert bool(finding.problems) is problem
    assert ("from the first token" if problem else f"up to token {at}") in (finding.problems + finding.notes)[
        0
    ]


def test_too_little_memory_is_said_before_anything_is_loaded(converted: Path) -> None:
    report = examine(converted, threads=1, memory=10 << 20)
    assert report.recommended is None
    assert all("10 MB are available" in finding.problems[0] for finding in report.findings)
    assert all(finding.milliseconds is None for finding in report.findings)


def finding(variant: str, milliseconds: float, divergence: float, problem: str = "") -> Finding:
    return Finding(variant, 1, 1, [problem] if problem else [], [], milliseconds, divergence)


def test_the_most_accurate_of_the_fast_ones_is_recommended() -> None:
    fp32, int8, int4 = finding("fp32", 46, 0), finding("int8", 12, 0.001), finding("int4", 10.5, 0.1)
    assert recommend([fp32, int8, int4])[0] == "int8"
    assert recommend([fp32, finding("int8", 16, 0.001), int4])[0] == "int4"
    assert recommend([fp32, finding("int8", 12, 0.001, "broken"), int4])[0] == "int4"
    assert recommend([fp32])[0] == "fp32"
    int4.failed = ["top1 0.5 (expected at least 0.7)"]
    assert recommend([fp32, int4])[0] == "fp32"
    assert recommend([int4])[0] is None
    assert recommend([finding("fp32", 1, 0, "broken")])[0] is None


def test_what_a_conversion_took_out_of_bounds_is_not_recommended(converted: Path, bundle: Path) -> None:
    manifest = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    figures = manifest["variants"]["int8"]["verification"]
    assert figures["failed"], "random weights keep int8's own bounds"
    report = examine(bundle, threads=1)
    assert found(report, "int8").failed == figures["failed"]
    assert not found(report, "fp32").failed
    assert report.recommended == "fp32"


def test_the_command_line(bundle: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([str(bundle), "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert "processor" in text
    assert "use " in text
    assert main([str(bundle), "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recommended"]
    assert main([str(tmp_path / "absent")]) == 4
    assert "bundle" in capsys.readouterr().err
    shutil.rmtree(bundle / "fp32")
    shutil.rmtree(bundle / "int8")
    assert main([str(bundle), "--threads", "1"]) == 4
    assert "PROBLEM" in capsys.readouterr().out
