"""The options of the command lines, and what they resolve to."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from cloud_anchor import options
from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig, resolve_commit

PLAN = DenoiseConfig(canvas=40, total_steps=20)


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    options.add_model(parser)
    options.add_sampling(parser)
    options.add_selection(parser)
    return parser.parse_args(arguments)


def test_the_plan_applies_where_nothing_is_given() -> None:
    assert options.denoise_config(parse(), PLAN) == DenoiseConfig(canvas=40, total_steps=20, steps=2)
    given = options.denoise_config(parse("--canvas", "8", "--total-steps", "100", "--steps", "7"), PLAN)
    assert (given.canvas, given.total_steps, given.steps) == (8, 100, 7)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (("--alg", "entropy"), ("--order", "entropy")),
        (("--alg-temp", "0.3"), ("--order-temperature", "0.3")),
        (("--commit-above", "0.7"), ("--commit", "0.7")),
        (("--commit-above", "quota"), ("--commit", "quota")),
    ],
)
def test_older_names_still_work(older: tuple[str, str], newer: tuple[str, str]) -> None:
    config = options.denoise_config(parse(*newer), PLAN)
    assert options.denoise_config(parse(*older), PLAN) == config != options.denoise_config(parse(), PLAN)


def test_options_of_a_commit_rule() -> None:
    config = options.denoise_config(
        parse("--commit", "product", "--commit-weight", "0.5", "--commit-probability", "0.8"), PLAN
    )
    assert (config.rule, config.weight, config.commit_probability) == ("product", 0.5, 0.8)
    assert config.to_json().keys() - DenoiseConfig().to_json().keys() == {
        "commit_weight",
        "commit_probability",
    }
    assert options.denoise_config(parse("--commit", "eb", "--entropy-bound", "1"), PLAN).entropy_bound == 1


def test_older_names_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    shown = capsys.readouterr().out
    assert "--order" in shown
    assert not [name for name in ("--alg", "--commit-above") if name in shown]


@pytest.mark.parametrize(
    ("arguments", "paper", "predictions"),
    [
        ((), ("quota", None), (0.9, "complete")),
        (("--stop", "plateau"), ("quota", "plateau"), (0.9, "plateau")),
        (("--order", "entropy"), ("quota", None), ("quota", None)),
        (("--commit", "quota"), ("quota", None), ("quota", None)),
        (("--commit", "0.5"), (0.5, None), (0.5, None)),
        (("--commit", "eb"), ("eb", None), ("eb", None)),
        (("--commit", "product", "--commit-weight", "0.5"), ("product", None), ("product", None)),
    ],
)
def test_the_commit_rule_is_resolved_by_the_selection(
    arguments: tuple[str, ...], paper: tuple[object, object], predictions: tuple[object, object]
) -> None:
    config = options.denoise_config(parse(*arguments), PLAN)
    for sends, expected in ((False, paper), (True, predictions)):
        found = resolve_commit(config, sends_predictions=sends)
        assert (found.commit, found.stop) == expected
        assert resolve_commit(found, sends_predictions=not sends) == found, "it is resolved once"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--threshold", "2"), "threshold: expected 0 to 1"),
        (("--select", "best"), "select: expected paper or"),
        (("--steps", "0"), "steps: expected 1 to"),
        (("--commit", "0"), "commit: expected auto, quota, eb, apd, product or a probability"),
    ],
)
def test_wrong_values_are_found_without_a_model(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        options.check(parse(*arguments))


def test_a_commit_rule_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--commit", "sometimes")
    assert (
        "expected auto, quota, eb, apd, product or a probability, found 'sometimes'"
        in capsys.readouterr().err
    )


def test_options_do_not_import_torch() -> None:
    code = "import sys, cloud_anchor.anchor, cloud_anchor.options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
