"""The command of one frame each way, with the shipped pair and few questions."""

from __future__ import annotations

import json

import pytest

from lab.experiments.one_frame import LinkExchange, main, summary_of


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


def test_it_prints_the_figures_of_every_link(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--prompts", "3", "--links", "lorawan-sf10", "--loss", "0.3", "--attempts", "12"]
    assert main([*arguments, "--sealed", "--json"]) == 0
    plain, lossy = json.loads(capsys.readouterr().out)
    assert (plain["questions"], plain["one_frame"], plain["answered"]) == (3, 1.0, 1.0)
    assert plain["up"] + plain["down"] == pytest.approx(plain["total"])
    assert plain["right"] == plain["right_http"]
    assert (lossy["answered"], lossy["twice"], lossy["other"], lossy["meets_bar"]) == (1.0, 0, 0, True)
    assert main(["--prompts", "1", "--loss", "1.5"]) == 2
