"""The rivals: the router on a scripted engine, and every method on questions of the shipped pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from edge_runtime.engine.base import Engine, Logits
from lab.__main__ import main
from lab.experiments.rivals import routed

END = 9


class Scripted(Engine):
    """Token by place in the answer, with its probability."""

    def __init__(self, script: Sequence[tuple[int, float]]) -> None:
        super().__init__(context=64, vocab=10)
        self.script = script

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        token, chance = self.script[self.length + len(ids) - 2]  # a prompt of two
        row = np.full((1, 10), np.log((1 - chance) / 9), np.float32)
        row[0, token] = np.log(chance)
        return row


def test_the_cloud_is_asked_where_the_device_is_unsure() -> None:
    texts: list[list[int]] = []

    def ask(text: Sequence[int]) -> int:
        texts.append(list(text))
        return 7

    def answers(script: Sequence[tuple[int, float]], room: int, ask: Callable[[Sequence[int]], int]) -> Any:
        runtime = SimpleNamespace(engine=Scripted(script))
        edge, contract = SimpleNamespace(runtime=runtime), SimpleNamespace(eos_ids=frozenset({END}))
        case: Any = SimpleNamespace(edge=edge, contract=contract, prompt_ids=[1, 2], canvas=room)
        return routed(case, ask)

    found = answers([(3, 0.9), (4, 0.4), (5, 0.6), (END, 0.9)], 9, ask)
    assert (*found, texts) == ([3, 7, 5], [7], [[3]])
    assert answers([(3, 0.9)] * 4, 4, ask)[0] == [3, 3, 3, 3]
    assert answers([(3, 0.2)], 4, lambda text: END) == ([], [END])


def test_every_method_answers_the_same_questions(tmp_path: Path) -> None:
    assert main(["run", "rivals", "--prompts", "2", "--fractions", "0.1", "-o", str(tmp_path)]) == 0
    table = json.loads((tmp_path / "tables.json").read_text())["tables"]["methods"]["rows"]
    found = {
        row["method"]: {name: cell["mean"] for name, cell in row.items() if isinstance(cell, dict)}
        for row in table
    }
    whole = [figures for method, figures in found.items() if method.startswith("whole answer")]
    assert {figures["F1"] for figures in whole} == {1.0}
    sizes = [figures["bytes"] for figures in whole]
    assert sizes[0] > sizes[2] > sizes[3], "text, under zstd, coded"
    ours = found["ours, 10% of the steps"]
    assert 0 < ours["bytes"] < sizes[2]
    assert ours["right, less ours"] == 0
    routing = found["routing, token by token"]
    assert routing["requests"] == routing["cloud passes"] > 0
    assert found["device alone"]["bytes"] == found["device alone"]["requests"] == 0
