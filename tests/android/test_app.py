"""The app: the APK, its dex run on a JVM, and its screens.

`make apk-test` builds the APK, which takes minutes, and runs these tests; they do not build it themselves.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pytest

from android_demo import apk, jvm, natives
from android_demo.errors import BuildError
from tests.android.make_expectations import write_expectations

DEMO = jvm.PROJECT
BUILD = DEMO / "build"
APK = BUILD / "inverse-speculation.apk"
SHIPPED = BUILD / "shipped.jar"
FILLS = "every fill has the ids of the Python runtime's"

pytestmark = pytest.mark.skipif(
    os.environ.get("APK_TESTS") != "1" or not APK.is_file(),
    reason="the app is built and tested by `make apk-test`, which needs android_demo/setup-debian.sh",
)


def step(name: str) -> subprocess.CompletedProcess[str]:
    """Runs one step of the build."""
    command = [sys.executable, "-m", "android_demo.apk", name]
    return subprocess.run(command, cwd=jvm.REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_apk_meets_the_requirements_of_phones_and_stores() -> None:
    done = step("verify")
    assert done.returncode == 0, done.stdout


def test_misaligned_libraries_are_found(tmp_path: Path) -> None:
    # A library at an offset that is not a multiple of 16 kB.
    shifted = tmp_path / "shifted.apk"
    with zipfile.ZipFile(shifted, "w") as out:
        apk.add(out, "lib/x86_64/libx.so", b"\x7fELF", align=4096)
        apk.add(out, "lib/x86_64/liby.so", b"\x7fELF", align=natives.PAGE)
    starts = {entry.filename: start for entry, start in apk.stored_entries(shifted)}
    assert starts["lib/x86_64/libx.so"] == 4096
    assert starts["lib/x86_64/liby.so"] == natives.PAGE
    # A library whose segments are aligned to 4 kB pages.
    with zipfile.ZipFile(APK) as archive:
        name = next(name for name in archive.namelist() if name.endswith("libonnxruntime4j_jni.so"))
        library = bytearray(archive.read(name))
    natives.check_pages(name, bytes(library))
    first = int.from_bytes(library[32:40], "little")
    size = int.from_bytes(library[54:56], "little")
    count = int.from_bytes(library[56:58], "little")
    for at in range(first, first + size * count, size):
        library[at + 48 : at + 56] = (4096).to_bytes(8, "little")
    with pytest.raises(BuildError):
        natives.check_pages(name, bytes(library))


def test_the_shipped_dex_fills_as_python_does(capsys: pytest.CaptureFixture[str]) -> None:
    write_expectations(jvm.EXPECTED)
    compiled = jvm.maven("test-compile")
    assert compiled.returncode == 0, compiled.stdout[-4000:]
    done = step("jar")
    assert done.returncode == 0, done.stdout
    tools = (BUILD / "tools.classpath").read_text().strip()
    launcher = next(path for path in tools.split(":") if "junit-platform-console-standalone" in path)
    libraries = (jvm.TARGET / "test-classpath.txt").read_text().strip()
    # The library, ONNX Runtime and most of Kotlin come from the dex; test dependencies follow.
    class_path = ":".join([str(SHIPPED), str(jvm.TARGET / "test-classes"), libraries])
    reports = BUILD / "dex-reports"
    command = ["java", "-Xmx700m", "-XX:+UseSerialGC", f"-Drepo={jvm.REPO}", f"-Dexpected={jvm.EXPECTED}"]
    command += ["-jar", launcher, "execute", "--details=none", "--disable-banner"]
    command += ["--class-path", class_path, "--reports-dir", str(reports)]
    command += [
        "--select-class=inversespec.edge.FillTest",
        "--select-class=inversespec.edge.payload.PayloadTest",
    ]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    cases = list(ElementTree.parse(reports / "TEST-junit-jupiter.xml").getroot().iter("testcase"))
    fills = [case for case in cases if case.attrib["name"].startswith(FILLS)]
    passed = [case for case in fills if not len(case.findall("failure")) + len(case.findall("error"))]
    with capsys.disabled():
        print(f"\nfills by the shipped dex with ids equal to Python's: {len(passed)} of {len(fills)}")
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert len(passed) == len(fills) >= 50


def test_the_screens_work_and_screenshots_are_written() -> None:
    ready = step("screens")
    if "is not available" in ready.stdout:
        pytest.skip(ready.stdout.strip())
    assert ready.returncode == 0, ready.stdout
    for old in (BUILD / "screenshots").glob("*.png"):
        old.unlink()
    reports = DEMO / "app" / "target" / "surefire-reports"
    for old in reports.glob("TEST-*.xml"):
        old.unlink()
    goals = ("test", "-Dtest=ScreensTest,ChatTest,DownloadTest", "-Dsurefire.failIfNoSpecifiedTests=false")
    ran = jvm.maven(*goals, module="app", options=("-P", "app,screens", "-am"))
    assert ran.returncode == 0, ran.stdout[-6000:]
    for suite, least in (("ScreensTest", 14), ("ChatTest", 8), ("DownloadTest", 6)):
        report = (reports / f"TEST-inversespec.app.{suite}.xml").read_text()
        count = re.search(r'<testsuite [^>]*tests="(\d+)"', report)
        assert count is not None
        assert int(count[1]) >= least
        assert "<skipped" not in report
    screenshots = {path.stem for path in (BUILD / "screenshots").glob("*.png")}
    modes = ("light", "dark", "large", "rtl")
    screens = {f"{screen}-{mode}" for screen in ("fill", "models", "bench") for mode in modes}
    assert (
        screens
        | {"fill-error", "fill-landscape", "fill-doubt", "models-download"}
        | {"chat-light", "chat-cloud"}
        <= screenshots
    )
