"""The command of one frame each way, with the shipped pair and few questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.experiments.one_frame import LinkExchange, summaries, summary_of


def exchange(
    total: int = 40, complete: bool = True, runs: int = 1, text: str = "a", frames: int = 1
) -> LinkExchange:
    return LinkExchange(30, total - 30, frames, 1, 1.0, 0.0, 3.0, complete, runs, text, text == "a")


def test_the_bar_is_missed_by_what_it_is_about() -> None:
    good, http = [exchange() for _ in range(100)], [("a", True)] * 100

    def meets(loss: float, changed: list[LinkExchange]) -> bool:
        return summary_of("sms", loss, [*good[len(changed) :], *changed], http, good).meets_bar

    assert meets(0.0, [])
    assert meets(0.0, [exchange(frames=2)] * 5)
    assert not meets(0.0, [exchange(frames=2)] * 6)
    assert not meets(0.0, [exchange(total=101)])
    assert not meets(0.0, [exchange(runs=2)])
    assert not meets(0.0, [exchange(text="b")] * 2)
    assert meets(0.1, [exchange(frames=3)] * 90)
    assert meets(0.1, [exchange(complete=False, text="b")])
    assert not meets(0.1, [exchange(complete=False)] * 2)
    assert not meets(0.1, [exchange(runs=2)])
    assert not meets(0.1, [exchange(text="b")])


def test_it_measures_every_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "run one_frame --prompts 3 --links lorawan-sf10 --loss 0.3 --attempts 12 --sealed -o".split()
    assert main([*command, str(tmp_path)]) == 0
    records = [json.loads(line) for line in (tmp_path / "items" / "one_frame.jsonl").open()]
    plain, lossy = summaries(records)
    assert (plain.questions, plain.one_frame, plain.answered) == (3, 1.0, 1.0)
    assert plain.up + plain.down == pytest.approx(plain.total)
    assert plain.right == plain.right_http
    assert (lossy.answered, lossy.twice, lossy.other, lossy.meets_bar) == (1.0, 0, 0, True)
    tables = json.loads((tmp_path / "tables.json").read_text())["tables"]
    assert [len(table["rows"]) for table in tables.values()] == [1, 1]
    capsys.readouterr()
    assert main([*"run one_frame --prompts 1 --loss 1.5 -o".split(), str(tmp_path)]) == 2
    assert "--loss: expected shares above 0 and below 1" in capsys.readouterr().err
