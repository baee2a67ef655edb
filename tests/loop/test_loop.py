"""The whole way on the shipped pair, through the commands a user would type."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud_anchor.anchor import main as anchor
from cloud_anchor.demo import main as demo
from cloud_anchor.model.checkpoint import read_examples
from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS, names_a_subject
from edge_runtime.chat import main as chat
from edge_runtime.fill import main as fill
from edge_runtime.runtime import EdgeRuntime
from lab.pairs.tiny.tasks import held_out_problems
from tests.shipped import TINY_BUNDLE

pytestmark = pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)
PROMPT = next(p for p in held_out_problems(40) if p.family == "description").prompt


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[list[str]], int], str], str]:
    """What a command prints for a user without a configuration of his own."""
    for name in ("EDGE_MODEL", "EDGE_BUNDLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/nonexistent")

    def command(main: Callable[[list[str]], int], *arguments: str) -> str:
        code = main([*arguments])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return command


def test_prompt_to_payload_to_text(run: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "payload.bin"
    run(anchor, "--model", "tiny", "--prompt", PROMPT, "--fraction", "0.1", "-o", str(file))
    answer = json.loads(run(fill, str(file), "--json"))
    anchors = EdgeRuntime.open(TINY_BUNDLE).read(file.read_bytes()).anchors
    tokens = {t["position"]: t for t in answer["tokens"]}
    assert answer["anchors"] == len(anchors) > 0
    for position, token in zip(anchors.positions, anchors.ids, strict=True):
        assert (tokens[position]["id"], tokens[position]["source"]) == (token, "anchor")
    assert sum(t["source"] == "fill" for t in answer["tokens"]) == len(answer["tokens"]) - len(anchors)
    assert answer["passes"] < len(answer["tokens"])
    assert len(answer["text"].split()) > 20


def test_the_demo_and_the_chat_say_what_the_pair_knows(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knows = EdgeRuntime.open(PAIRS[DEFAULT_MODEL].bundle).bundle.manifest.knows
    path = tmp_path / "payload.bin"
    told = run(demo, "--prompt", "hello", "-o", str(path))
    assert f"I know {knows}." in told
    assert not path.exists()
    monkeypatch.setattr("sys.stdin", typed := io.StringIO())
    monkeypatch.setattr(typed, "isatty", lambda: True)
    assert knows in run(chat, "--edge", "testbed-qwen")
    for each in read_examples(PAIRS[DEFAULT_MODEL].checkpoint):
        assert names_a_subject(DEFAULT_MODEL, each)


def test_the_demo_takes_a_question_in_ones_own_words(
    run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    question = (
        "Write a Python function solve: the sum of the squares of the numbers in a list xs that are negative."
    )
    path = tmp_path / "payload.bin"
    shown = run(demo, "--prompt", question, "-o", str(path))
    assert "function solve: the sum" in shown
    found = re.findall(r"\[(\w) \* \1 for \1 in xs if \1 < 0\]", shown)
    assert len(found) == 2, "by the device, in the full run"
    assert re.search(r"^doubt +0\.\d\d ", shown, re.MULTILINE)
    steps = re.search(r"(\d+) steps run of (\d+) asked for, (\d+) of (\d+)", shown)
    assert steps
    ran, asked, saved, whole = map(int, steps.groups())
    assert (1 <= ran <= asked, saved) == (True, whole - ran)
    assert path.stat().st_size < 200
