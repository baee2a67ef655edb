"""The Kotlin edge runtime on the desktop JVM, compared with the Python one.

Maven runs the tests; these tests read its reports, as Maven also succeeds where a test was never run. Every
answer that Python has filled must have been filled there, with the same ids.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from android_demo import jvm
from tests.android.make_expectations import write_expectations
from tests.shipped import TINY_BUNDLE

pytestmark = [
    pytest.mark.skipif(jvm.missing() is not None, reason=str(jvm.missing())),
    pytest.mark.skipif(
        not (TINY_BUNDLE / "bundle.json").is_file(), reason="the shipped bundle has not been made"
    ),
]

FILLS = "every fill has the ids of the Python runtime's"
TURNS = "every turn has the ids of the Python session's"
VECTORS = "every vector of the format"
MODULES = ("edge-runtime", "edge-runtime-coroutines")
SKIPS_ALLOWED = 2
"""The tokenizers of Qwen and SmolLM2, which are not part of the repository."""


@pytest.fixture(scope="module")
def results() -> Counter[tuple[str, str]]:
    """Number of results by (test method, result); dynamic tests count individually."""
    write_expectations(jvm.EXPECTED)
    folders = [jvm.PROJECT / module / "target" / "surefire-reports" for module in MODULES]
    for old in (report for folder in folders for report in folder.glob("TEST-*.xml")):
        old.unlink()
    # The tests start the service and `edge_runtime.fill` with this interpreter.
    run = jvm.maven("test", module=",".join(MODULES), options=(f"-Dpython={sys.executable}",))
    found = sum((count(folder) for folder in folders), Counter[tuple[str, str]]())
    assert run.returncode == 0, run.stdout[-6000:]
    return found


def count(reports: Path) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for report in reports.glob("TEST-*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            children = {child.tag for child in case}
            result = (
                "skipped"
                if "skipped" in children
                else "failed"
                if children & {"failure", "error"}
                else "passed"
            )
            found[case.attrib["name"].partition("(")[0], result] += 1
    return found


def test_every_fill_has_the_ids_of_the_python_runtime(
    results: Counter[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = len(json.loads(jvm.EXPECTED.read_bytes())["fills"])
    equal = results[FILLS, "passed"]
    with capsys.disabled():
        print(f"\nKotlin fills with the ids of Python's: {equal} of {wanted}")
    assert equal == wanted >= 50


def test_every_turn_has_the_ids_of_the_python_session(results: Counter[tuple[str, str]]) -> None:
    wanted = sum(len(row["turns"]) for row in json.loads(jvm.EXPECTED.read_bytes())["conversations"])
    assert results[TURNS, "passed"] == wanted == 160


def test_every_vector_of_the_format_is_decoded_equally(results: Counter[tuple[str, str]]) -> None:
    vectors = json.loads((jvm.REPO / "tests" / "vectors" / "payload_vectors.json").read_text())["vectors"]
    assert results[VECTORS, "passed"] == len(vectors)


def test_the_service_predictive_payloads_downloads_and_flows_were_tried(
    results: Counter[tuple[str, str]],
) -> None:
    for name in (
        "a collector that leaves ends the answer, and the model is free at once",
        "killed at 20 random points, no more than one chunk is fetched twice each time",
        "50 payloads of the shipped pair give Python's tokens",
        "fetched and streamed, the text is that of the Python command",
        "a stream refines the answer, and one that is killed half-way leaves what it sent",
    ):
        assert results[name, "passed"] == 1


def test_nothing_failed_and_nothing_was_skipped(results: Counter[tuple[str, str]]) -> None:
    by_result: Counter[str] = Counter()
    for (_, result), number in results.items():
        by_result[result] += number
    assert by_result["failed"] == 0
    assert by_result["skipped"] <= SKIPS_ALLOWED
    assert by_result["passed"] > 200
