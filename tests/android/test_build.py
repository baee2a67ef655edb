"""Parts of the Android build that take neither Maven nor PyTorch."""

from __future__ import annotations

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


def test_the_archive_of_the_library_is_built_without_pytorch() -> None:
    rules = (DEMO / "build.mk").read_text(encoding="utf-8")
    (needed,) = re.findall(r"^aar: (.*)$", rules, re.MULTILINE)
    assert needed == "$(VENV)/bin/python"
    # That environment has nothing but the standard library.
    code = "import android_demo.aar, android_demo.sample_bundle"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=DEMO.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
