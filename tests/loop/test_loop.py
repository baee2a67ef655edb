"""The whole way on the shipped pair, through the command lines a user would type."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_anchor.shipped import PAIRS
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.runtime import EdgeRuntime
from lab.pairs.tiny.tasks import held_out_problems
from tests.shipped import TINY_BUNDLE

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)
PROMPT = next(p for p in held_out_problems(40) if p.family == "description").prompt


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command of the project, as a user without a configuration of his own runs it."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EDGE_")} | {
        "XDG_DATA_HOME": "/nonexistent"
    }
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done


@pytest.fixture(scope="module")
def payload_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loop") / "payload.bin"
    run("cloud_anchor.anchor", "--model", "tiny", "--prompt", PROMPT, "--fraction", "0.1", "-o", str(path))
    return path


def test_prompt_to_payload_to_text(payload_file: Path) -> None:
    answer = json.loads(run("edge_runtime.fill", str(payload_file), "--json").stdout)
    anchors = EdgeRuntime.open(TINY_BUNDLE).read(payload_file.read_bytes()).anchors
    tokens = {t["position"]: t for t in answer["tokens"]}
    assert answer["anchors"] == len(anchors) > 0
    for position, token in zip(anchors.positions, anchors.ids, strict=True):
        assert tokens[position]["id"] == token
        assert tokens[position]["source"] == "anchor"
    assert sum(t["source"] == "fill" for t in answer["tokens"]) == len(answer["tokens"]) - len(anchors)
    assert answer["passes"] < len(answer["tokens"])
    assert len(answer["text"].split()) > 20


def test_both_variants_and_the_environment_variable(payload_file: Path) -> None:
    for variant in Bundle.open(TINY_BUNDLE).manifest.variants:
        assert run(
            "edge_runtime.fill", str(payload_file), "--variant", variant, EDGE_MODEL=str(TINY_BUNDLE)
        ).stdout


def test_the_demo_says_how_many_steps_it_ran(tmp_path: Path) -> None:
    path = tmp_path / "payload.bin"
    shown = run("cloud_anchor.demo", "--model", "tiny", "-o", str(path), COLUMNS="80").stdout.decode()
    ran, asked, saved = map(
        int, re.search(r"(\d+) steps run of (\d+) asked for, (\d+) of 128", shown).groups()
    )
    assert 1 <= ran <= asked == 12
    assert saved == 128 - ran
    assert path.stat().st_size < 200


def test_the_demo_takes_a_question_in_ones_own_words(tmp_path: Path) -> None:
    question = (
        "Write a Python function solve: the sum of the squares of the numbers in a list xs that are negative."
    )
    done = run("cloud_anchor.demo", "--prompt", question, "-o", str(tmp_path / "p.bin"), COLUMNS="120")
    shown = done.stdout.decode()
    assert "function solve: the sum" in shown
    assert len(re.findall(r"\[(\w) \* \1 for \1 in xs if \1 < 0\]", shown)) == 2, (
        "by the device, in the full run"
    )
    assert re.search(r"^doubt +0\.\d\d ", shown, re.MULTILINE)
