"""bfloat16 against float32: what is committed on the shipped pair."""

from __future__ import annotations

import json

import pytest

from cloud_anchor.model.checkpoint import TINY
from common.progress import Silent
from lab.formats.number_formats import PARALLEL, compare_formats, main
from lab.pairs.tiny.tasks import held_out_problems

pytestmark = pytest.mark.skipif(not (TINY / "model.safetensors").is_file(), reason="no shipped weights")


def test_bfloat16_commits_what_float32_does() -> None:
    prompts = [problem.prompt for problem in held_out_problems(6)]
    plans = (("quota", 0.1), (PARALLEL, 1.0))
    quota, parallel = compare_formats("tiny", prompts, "bfloat16", plans, Silent())
    for row in (quota, parallel):
        assert 0 <= row.steps <= row.tokens <= row.committed <= 1
    assert quota.tokens > 0.6
    assert parallel.tokens > 0.9
    assert parallel.f1 > 0.9
    (same,) = compare_formats("tiny", prompts[:2], "float32", plans[:1], Silent())
    assert (same.committed, same.tokens, same.steps, same.answers, same.f1) == (1, 1, 1, 1, 1)


def test_the_command_names_a_wrong_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dtype", "int3", "--prompts", "1"]) == 2
    assert "dtype: expected float32" in capsys.readouterr().err


def test_the_command_prints_its_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.formats.number_formats.PLANS", (("quota", 0.1),))
    assert main(["--prompts", "1", "--json"]) == 0
    assert {"commits", "tokens", "f1"} <= json.loads(capsys.readouterr().out)[0].keys()
