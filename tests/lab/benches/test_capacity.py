"""Planning from measured times: the table of cloud_anchor/serve/CAPACITY.md is what its commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

import cloud_anchor.serve
from lab.benches import capacity
from lab.benches.capacity import plan

PAGE = Path(cloud_anchor.serve.__file__).with_name("CAPACITY.md")


def test_plans_follow_from_the_times() -> None:
    times = {1: 42.0, 8: 168.0}  # 8 answers of 10 steps in 1.68 s
    small, large = (
        [cell.strip() for cell in plan(rate, times, 10, 0.7, 2.0).split("|")[1:-1]] for rate in (1, 1000)
    )
    assert small[:4] == ["1", "2", "8", "0.42"]
    assert large[:4] == ["1000", "300", "8", "1.68"]
    assert large[6:] == ["0.210", "600", "167"]
    assert plan(1000, {1: 42.0}, 13, 0.7, 0.0).endswith("| - | - |")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--step", "x", "1"],
        ["--step", "1", "-2"],
        ["--step", "1", "1", "--rate", "0"],
        ["--step", "1", "1", "--steps", "0"],
    ],
)
def test_wrong_inputs_of_the_plan(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        capacity.main(arguments)
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_the_table_of_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text()
    commands = [
        line[2:] for line in page.splitlines() if line.startswith("$ python -m lab.benches.capacity ")
    ]
    assert commands
    for command in commands:
        assert capacity.main(command.split()[3:]) == 0
        assert capsys.readouterr().out.strip() in page
