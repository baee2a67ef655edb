"""What a report begins with, what it folds, and progress without a terminal."""

from __future__ import annotations

import pytest

from lab import run
from lab.experiment import About, Experiment, Models, Setup
from lab.options import NoOptions, Options
from lab.report import ANSWERS, answers, build, named, run_description, statements
from lab.tables import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Claim

CLAIMS = [
    Claim("Anchors raise the edge model's F1 over its own (Table 2).", UNDECIDED, "0.5 against 0.5"),
    Claim("Anchors raise the edge model's F1 over its own (Table 2).", HOLDS, "0.6 against 0.5"),
    Claim("Anchors take fewer bytes than the full answer in the same codec.", FAILS, "50 against 20"),
    Claim("Another one.", NOT_MEASURED, "none"),
]


def test_the_first_answers_are_decided_ones_and_at_most_five() -> None:
    assert len(ANSWERS) == 5
    assert [claim.found for _, claim in answers(CLAIMS)] == ["0.6 against 0.5", "50 against 20"]


def test_what_is_open_is_folded_behind_what_is_decided() -> None:
    text = "\n".join(statements(CLAIMS))
    shown, _, folded = text.partition("<details><summary>2 statements")
    assert "0.6 against 0.5" in shown
    assert "0.5 against 0.5" not in shown
    assert "0.5 against 0.5" in folded
    assert text.endswith("</details>")
    assert statements([]) == []


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
