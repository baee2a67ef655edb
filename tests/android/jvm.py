"""Maven and the JVM, as the tests and the benchmark of the Kotlin runtime start them.

Maven downloads what it needs once, into its own repository; after that it asks the network for nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PROJECT = REPO / "android_demo"
MODULE = PROJECT / "edge-runtime"
TARGET = MODULE / "target"
EXPECTED = TARGET / "expected.json"

_MAVEN_OPTS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx700m"


def missing() -> str | None:
    """What of the tools is not there; None where all are."""
    for tool, package in (("mvn", "Maven"), ("javac", "a JDK")):
        if shutil.which(tool) is None:
            return f"{package} is not installed ({tool} is not on the path)"
    return None


def maven(
    *goals: str, module: str = "edge-runtime", options: Sequence[str] = (), timeout: float = 1500
) -> subprocess.CompletedProcess[str]:
    """Runs Maven on one module, quietly, and returns its exit code and output."""
    command = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), "-pl", module, *options, *goals]
    environment = {**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", _MAVEN_OPTS)}
    return subprocess.run(
        command, env=environment, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def class_path() -> str:
    """Class path of the compiled tests, ONNX Runtime included; `maven("test-compile")` comes first."""
    libraries = (TARGET / "test-classpath.txt").read_text().strip()
    return os.pathsep.join([str(TARGET / "test-classes"), str(TARGET / "classes"), libraries])
