"""A service and a gateway while everything goes wrong, for some seconds; `python -m tests.chaos` runs for
minutes."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import FAULTS, Chaos


@pytest.mark.slow
def test_only_right_answers_and_documented_errors() -> None:
    report = Chaos(seconds=14.0, seed=1).run()
    assert report["faults found"] == []
    assert report["HTTP: right answers"]
    assert report["link: right answers"]
    assert {f"faults made: {each}" for each in FAULTS} <= report.keys()
