"""Parts of the Android build that take neither Maven nor PyTorch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from android_demo import apk, sample_bundle
from edge_runtime import EdgeRuntime
from edge_runtime.bundle.bundle import Bundle

DEMO = Path(apk.__file__).parent


def test_the_sample_is_a_bundle_of_one_variant_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = tmp_path / "sample" / "bundle.zip"
    monkeypatch.setattr(sample_bundle, "SAMPLE", sample)
    sample_bundle.write_sample()
    with zipfile.ZipFile(sample) as archive:
        archive.extractall(tmp_path / "bundle")
    bundle = Bundle.open(tmp_path / "bundle")
    bundle.verify()
    assert list(bundle.manifest.variants) == [bundle.variant_name] == ["int8"]
    assert sample.stat().st_size < 3_000_000
    edge = EdgeRuntime.open(tmp_path / "bundle", threads=1, prepack=False)
    prompt = edge.prompt_ids("What is the river of Torden?")
    assert len(prompt) > 5
    assert edge.engine.append(prompt).shape[-1] >= bundle.contract.vocab_size


def test_app_and_archive_are_built_without_pytorch() -> None:
    rules = (DEMO / "build.mk").read_text(encoding="utf-8")
    for target in ("aar", "apk-tools", "apk-assets"):
        (needed,) = re.findall(rf"^{target}: (.*)$", rules, re.MULTILINE)
        assert needed == "$(VENV)/bin/python"
    (needed,) = re.findall("^apk: (.*)$", rules, re.MULTILINE)
    assert "stamp" not in needed
    # That environment has nothing but the standard library.
    code = (
        "import android_demo.aar, android_demo.apk, android_demo.sample_bundle, android_demo.samples as s; "
    )
    code += "s.write_assets()"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=DEMO.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_samples_are_those_of_the_tiny_pair() -> None:
    from android_demo.samples import BUNDLE, SAMPLES

    edge = EdgeRuntime.open(BUNDLE, threads=1, prepack=False)
    for each in json.loads((SAMPLES / "index.json").read_text("utf-8")):
        request = edge.read((SAMPLES / each["file"]).read_bytes(), each["prompt"])
        assert len(request.anchors)
    pytest.importorskip("torch", reason="the samples are made with PyTorch")
    from android_demo.make_samples import inputs

    assert (SAMPLES / "inputs.sha256").read_text().strip() == inputs(), (
        "run python -m android_demo.make_samples"
    )


@pytest.mark.skipif(
    shutil.which("aapt") is None or not apk.FRAMEWORK.is_file(),
    reason="aapt is installed by android_demo/setup-debian.sh",
)
@pytest.mark.parametrize("debug", [False, True])
def test_plain_http_to_other_hosts_is_permitted_in_the_debug_variant_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, debug: bool
) -> None:
    compiled = tmp_path / "resources.ap_"
    monkeypatch.setattr(apk, "BUILD", tmp_path)
    monkeypatch.setattr(apk, "RESOURCES", compiled)
    monkeypatch.setattr(apk, "ASSETS", tmp_path)
    apk.resources(debug=debug)
    assert ("application-debuggable" in apk.run("aapt", "dump", "badging", compiled)) == debug
    rules = apk.run("aapt", "dump", "xmltree", compiled, "res/xml/network_security.xml")
    base = re.search(r"base-config.*\n.*cleartextTrafficPermitted.*Raw: \"(\w+)\"", rules)
    assert base is not None
    assert base[1] == str(debug).lower()
