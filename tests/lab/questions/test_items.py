"""Items of each source, the judging of answers, and the sandbox that runs code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from lab.pairs.testbed.library import SourceMissingError
from lab.questions.items import Item, load_items
from lab.questions.judge import is_right, stated_letter, stated_number
from lab.questions.sandbox import passes

PROMPTS = Path(__file__).resolve().parents[4] / "shared" / "prompts"

ROWS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "How many?", "answer": "First <<1+1=2>>2.\nThen <<2+1,000=1002>>.\n#### 1,002"},
    "mmlu": {
        "question": "Which?",
        "choices": ["w", "x", "y", "z"],
        "answer": 2,
        "subject": "college_physics",
    },
    "arc": {"question": "Which?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
    "humaneval": {
        "prompt": "from typing import List\n\ndef add(xs: List[int]) -> int:\n",
        "entry_point": "add",
        "test": "def check(f):\n    assert f([1, 2]) == 3\n",
    },
}


def _item(tmp_path: Path, name: str) -> Item:
    file = tmp_path / f"{name}-challenge.jsonl"
    file.write_text(json.dumps(ROWS[name]) + "\n")
    return load_items([f"{name}={file}"], 1, 0)[0]


def test_rows_of_the_public_benchmarks_become_items(tmp_path: Path) -> None:
    gsm8k = _item(tmp_path, "gsm8k")
    assert (gsm8k.key, gsm8k.steps, gsm8k.difficulty) == ({"number": "1002"}, 2, "easy")
    mmlu = _item(tmp_path, "mmlu")
    assert (mmlu.key, mmlu.difficulty) == ({"letter": "C"}, "hard")
    assert "  C. y\n" in mmlu.prompt
    arc = _item(tmp_path, "arc")
    assert (arc.key, arc.level) == ({"letter": "B"}, 2)


@pytest.mark.skipif(not PROMPTS.exists(), reason="the prompt sets are not beside this repository")
def test_the_prompt_sets_are_read_in_turn_and_their_own_solutions_are_right() -> None:
    items = load_items([f"{name}={PROMPTS / name}.jsonl" for name in ("gsm8k", "mmlu", "humaneval")], 9, 3)
    assert [item.benchmark for item in items] == ["gsm8k", "mmlu", "humaneval"] * 3
    assert len({item.id for item in items}) == 9
    solutions = {}
    for line in (PROMPTS / "humaneval.jsonl").read_text().splitlines():
        row = json.loads(line)
        solutions[row["prompt"]] = row["canonical_solution"]
    for item in items:
        if item.kind == "code":
            assert is_right(item, item.prompt + solutions[item.prompt]), item.id
            assert is_right(item, f"Here:\n```python\n{item.prompt}{solutions[item.prompt]}```\nDone.")
            assert not is_right(item, f"{item.prompt}    return None\n")


def test_more_items_begin_with_the_same_ones() -> None:
    few, many = load_items(["tiny"], 6, 1), load_items(["tiny"], 10, 1)
    assert many[:6] == few
    assert load_items(["tiny"], 6, 2) != few
    assert all(item.steps for item in few if item.benchmark == "arithmetic")


def test_sources_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.jsonl", tmp_path / "good.jsonl"
    bad.write_text('{"question": "?"}\n')
    good.write_text(json.dumps(ROWS["gsm8k"]) + "\n")
    for source, count in (
        (f"gsm8k={tmp_path / 'none.jsonl'}", 1),
        (f"gsm8k={bad}", 1),
        ("gsm8k", 1),
        ("trivia", 1),
        (f"gsm8k={good}", 2),
    ):
        with pytest.raises(RequestError):
            load_items([source], count, 0)


def test_answers_are_found_in_texts(tmp_path: Path) -> None:
    assert stated_number("We have 3, so the answer is 1,204. That took 2 steps.") == "1204"
    assert stated_number("first 5 then -7.5") == "-7.5"
    assert stated_number("none") is None
    assert stated_letter("The answer is (C).") == "C"
    assert stated_letter("B. because it is large") == "B"
    assert stated_letter("A cat is here, so the answer is D") == "D"
    assert stated_letter("The answer is a metal, and it is (B)") == "B"
    assert stated_letter("A metal, so B") == "B"
    assert stated_letter("A metal.") is None
    assert stated_letter("the answer is a") == "A"
    item = _item(tmp_path, "gsm8k")
    assert is_right(item, "The answer is 1002.0")
    assert not is_right(item, "The answer is 12")
    assert is_right(_item(tmp_path, "mmlu"), "The answer is C")
    for problem in load_items(["tiny"], 8, 0):
        assert is_right(problem, problem.key["answer"])
        assert not is_right(problem, "no")


def test_one_kind_of_the_testbed_is_a_source() -> None:
    try:
        items = load_items(["testbed", "testbed:profile"], 28, 0)
    except SourceMissingError as missing:
        pytest.skip(str(missing))
    assert items[:2] == load_items(["testbed", "testbed:profile"], 2, 0)
    assert {item.benchmark for item in items[1::2]} == {"profile"}
    assert len({item.id for item in items}) == len({item.prompt for item in items}) == 28
    with pytest.raises(RequestError):
        load_items(["testbed:poem"], 1, 0)


def test_questions_of_the_testbed_are_items() -> None:
    try:
        items = load_items(["testbed"], 14, 0)
    except SourceMissingError as missing:
        pytest.skip(str(missing))
    assert len({item.benchmark for item in items}) == 7
    for item in items:
        again = replace(item, key=json.loads(json.dumps(item.key)))
        assert is_right(again, item.key["answer"])
        assert not is_right(again, "no")


def test_code_is_run_by_its_tests(tmp_path: Path) -> None:
    item = _item(tmp_path, "humaneval")
    assert is_right(item, "    return sum(xs)\n")
    assert is_right(item, "Sure:\n```python\ndef add(xs: List[int]) -> int:\n    return sum(xs)\n```")
    assert not is_right(item, "    return 4\n")
    assert not is_right(item, "    exit()\n")


def test_the_sandbox_has_limits(tmp_path: Path) -> None:
    assert passes("assert sum([1, 2]) == 3")
    assert not passes("import sys; sys.exit(0)")
    for escape in (
        f"open({str(tmp_path / 'x')!r}, 'w')",
        "open('/etc/hostname')",
        "import socket; socket.socket()",
        "import os; os.fork()",
        "import os; os.system('true') and 1 / 0; os.posix_spawn('/bin/true', ['true'], {})",
        "x = bytearray(1 << 30)",
        "import resource",
    ):
        assert not passes(escape), escape
    assert not (tmp_path / "x").exists()


def test_the_sandbox_ends_what_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.questions.sandbox.SECONDS", 1)
    assert not passes("while True: pass")
