"""What a report begins with, and progress without a terminal."""

from __future__ import annotations

import pytest

from lab import run
from lab.experiment import About, Experiment, Models, Setup
from lab.options import NoOptions, Options
from lab.report import build, named, run_description


def test_pages_call_f1_agreement() -> None:
    assert (
        named("| F1, under 20 | word F1 | F1 (sets) |")
        == "| agreement, under 20 | agreement | agreement (sets) |"
    )
    assert named("SHAF1 f1") == "SHAF1 f1"


def test_the_batch_of_a_bfloat16_figure_is_recorded() -> None:
    """Answers in bfloat16 depend on it."""
    experiment = Experiment("x", "X", lambda *_: [], lambda *_: [], models=Models.NONE, together=8)

    def described(**options: str) -> str:
        settings = run.settings_of(Setup(Options(**options), NoOptions(), Models.NONE), experiment, [])
        return " ".join(run_description(build([experiment], About(model="tiny"), settings, {}, {})))

    assert "in bfloat16, 8 answers a batch" in described(dtype="bfloat16")
    assert "a batch" not in described()


def test_progress_names_the_phase_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "EVERY", 0.0)
    items = [object(), object()]
    run.track(items, iter(["full runs", items[0], "fill", items[1]]))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "0 of 2 items",
        "1 of 2 items",
        "1 of 2 items",
        "2 of 2 items",
    ]
    assert lines[0].endswith("now full runs")
    assert lines[-1].endswith("now fill")
    assert "left" in lines[1]
