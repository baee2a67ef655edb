"""Maven and the JVM, for the tests and the benchmark of the Kotlin library.

Responsible for the commands, their memory limits and the class path. Not responsible for what they run.
Maven downloads dependencies once into its local repository and needs no network afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from android_demo.errors import BuildError

PROJECT = Path(__file__).resolve().parent
REPO = PROJECT.parent
MODULE = PROJECT / "edge-runtime"
TARGET = MODULE / "target"
EXPECTED = TARGET / "expected.json"

_MAVEN_OPTS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx700m"


def missing() -> str | None:
    """The first required tool that is not installed, in words; None where all are."""
    for tool, package in (("mvn", "Maven"), ("javac", "a JDK")):
        if shutil.which(tool) is None:
            return f"{package} is not installed ({tool} is not on the path)"
    return None


def maven(
    *goals: str, module: str = "edge-runtime", options: Sequence[str] = (), timeout: float = 1500
) -> subprocess.CompletedProcess[str]:
    """Runs Maven on one module; standard error is part of standard output. timeout: in seconds."""
    command = ["mvn", "-q", "-B", "-f", str(PROJECT / "pom.xml"), "-pl", module, *options, *goals]
    environment = {**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", _MAVEN_OPTS)}
    return subprocess.run(
        command, env=environment, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def compile_tests() -> None:
    """Compiles the library with its tests; raises BuildError."""
    if lacking := missing():
        raise BuildError(lacking)
    compiled = maven("test-compile")
    if compiled.returncode:
        raise BuildError(f"Maven failed:\n{compiled.stdout[-4000:]}")


def libraries() -> str:
    """Class path of the tests' dependencies, ONNX Runtime among them; requires `compile_tests`."""
    return (TARGET / "test-classpath.txt").read_text().strip()


def class_path() -> str:
    """Class path of the compiled tests, including ONNX Runtime; requires `compile_tests`."""
    return os.pathsep.join([str(TARGET / "test-classes"), str(TARGET / "classes"), libraries()])
