"""The options of the command lines, and what they resolve to."""

from __future__ import annotations

import pytest

from cloud_anchor.anchor import AnchorOptions
from cloud_anchor.errors import RequestError
from cloud_anchor.options import PipelineOptions
from cloud_anchor.sampling.config import DenoiseConfig, resolve_commit
from cloud_anchor.serve.__main__ import ServeOptions
from common.cli import CommandParser

PLAN = DenoiseConfig(canvas=40, total_steps=20)


def parse(*arguments: str) -> PipelineOptions:
    parser = CommandParser()
    parser.declare(PipelineOptions)
    return parser.parse(PipelineOptions, arguments)


def test_the_plan_applies_where_nothing_is_given() -> None:
    assert parse().config(PLAN) == DenoiseConfig(canvas=40, total_steps=20, steps=2)
    given = parse("--canvas", "8", "--total-steps", "100", "--steps", "7").config(PLAN)
    assert (given.canvas, given.total_steps, given.steps) == (8, 100, 7)


@pytest.mark.parametrize(
    ("arguments", "paper", "predictions"),
    [
        ((), ("quota", None), (0.9, "complete")),
        (("--stop", "plateau"), ("quota", "plateau"), (0.9, "plateau")),
        (("--order", "entropy"), ("quota", None), ("quota", None)),
        (("--commit", "quota"), ("quota", None), ("quota", None)),
        (("--commit", "0.5"), (0.5, None), (0.5, None)),
    ],
)
def test_the_commit_rule_is_resolved_by_the_selection(
    arguments: tuple[str, ...], paper: tuple[object, object], predictions: tuple[object, object]
) -> None:
    config = parse(*arguments).config(PLAN)
    for sends, expected in ((False, paper), (True, predictions)):
        found = resolve_commit(config, sends_predictions=sends)
        assert (found.commit, found.stop) == expected
        assert resolve_commit(found, sends_predictions=not sends) == found, "it is resolved once"


@pytest.mark.parametrize(
    "arguments", [("--threshold", "2"), ("--select", "best"), ("--steps", "0"), ("--commit", "0")]
)
def test_wrong_values_are_found_without_a_model(arguments: tuple[str, ...]) -> None:
    with pytest.raises(RequestError, match=f"^{arguments[0][2:]}: "):
        parse(*arguments).check()


def test_a_commit_rule_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--commit", "sometimes")
    assert "'sometimes'" in capsys.readouterr().err


@pytest.mark.parametrize("options", [AnchorOptions, ServeOptions])
def test_every_option_is_on_one_screen(options: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = CommandParser(prog="anchor")
    parser.declare(options)
    assert len(parser._actions) - 2 <= 28, "--help and --version are not counted"
    shown = parser.format_help().splitlines()
    assert len(shown) <= 50
    assert max(map(len, shown)) <= 80
