"""Teaching a model for few passes: states, targets, the loss, and the command on the tests' pair."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cloud_anchor.shipped import PAIRS
from lab.__main__ import main
from lab.distil.answers import OwnAnswer, Targets, questions, read
from lab.distil.command import DistilOptions, curriculum
from lab.distil.states import hidden
from lab.distil.trainer import SelfDistillation
from lab.pairs.batches import TrainingBatch
from lab.pairs.problem import Problem
from lab.pairs.train import RECIPES as TRAINED
from tests.lab.pairs.tiny_pair import PAIR, RECIPES

DREAM = PAIRS["tiny"].weights / "tiny-dream"
shipped = pytest.mark.skipif(not DREAM.exists(), reason="the shipped weights are missing")


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 20), st.integers(1, 20), st.booleans())
def test_a_state_masks_the_canvas_only_and_follows_the_order_in_time(
    seed: int, start: int, size: int, tail: int, known: bool
) -> None:
    rng = np.random.default_rng(seed)
    passes = rng.integers(1, 6, size).tolist() if known else []
    end, length = start + size, start + size + tail
    state = hidden(start, end, length, passes, np.random.default_rng(seed))
    assert state.shape == (length,)
    assert not state[:start].any()
    assert state.any()


def test_a_trajectory_shows_what_was_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.distil.states.EMPTY", 0.0)
    monkeypatch.setattr("lab.distil.states.TRAJECTORY", 1.0)
    rng, passes = np.random.default_rng(0), [3, 1, 2, 1, 5, 4]
    seen: set[int] = set()
    for _ in range(200):
        state = hidden(2, 8, 10, passes, rng)
        visible = [when for when, masked in zip(passes, state[2:8].tolist(), strict=True) if not masked]
        open_ = [when for when, masked in zip(passes, state[2:8].tolist(), strict=True) if masked]
        assert state[8:].all()
        assert max(visible, default=0) <= min(open_)
        seen.add(len(visible))
    assert seen == set(range(6))


def problem(prompt: str, *expected: str, answer: str = "", subject: str | None = "Peru") -> Problem:
    return Problem("profile", "easy", prompt, answer, expected, prompt, subject=subject)


def is_right(asked: Problem, text: str) -> bool:
    return all(word in text.split() for word in asked.expected)


def own(asked: Problem, text: str, *ids: int) -> OwnAnswer:
    return OwnAnswer(asked, text, ids, tuple(range(1, len(ids) + 1)), is_right(asked, text))


def taught(targets: Targets, asked: Problem) -> str:
    return targets.taught(lambda rng, knows: asked, random.Random(0), True).answer


def test_a_subject_is_taught_the_shortest_own_answer_that_tells_all() -> None:
    sea, hill = problem("sea?", "sea"), problem("hill?", "hill")
    answers = [
        own(sea, "a sea", 1, 2),
        own(hill, "some hill and sea", 1, 2, 3, 4),
        own(sea, "sea hill so", 5, 6, 7),
    ]
    targets = Targets(answers, [problem("both?", "sea", "hill")], is_right)
    assert taught(targets, sea) == taught(targets, hill) == "sea hill so"
    other = problem("moon?", "moon", answer="a moon", subject="Chad")
    assert taught(targets, other) == "a moon"
    assert targets.orders(lambda text: [5, 6, 7] if text == "sea hill so" else [])[5, 6, 7] == (1, 2, 3)


def test_without_one_it_is_the_reference_worded_most_like_the_own_answers() -> None:
    sea = problem("sea?", "sea", answer="one finds hill and sea there")
    hill = problem("hill?", "hill", answer="there is a hill and sea too")
    answers = [own(sea, "there is a sea", 1), own(hill, "nothing", 2)]
    targets = Targets(answers, [hill], is_right)
    assert taught(targets, sea) == taught(targets, hill) == "there is a hill and sea too"


def test_questions_are_distinct_training_questions_of_which_few_are_about_one_subject() -> None:
    draw = PAIR.curriculum.families["description"]
    found = questions(draw, 12, 2, random.Random(0))
    assert found == questions(draw, 12, 2, random.Random(0))
    assert len({each.prompt for each in found}) == len(found) > 3
    assert not any(each.held_out for each in found)


def trainer_of(folder: Path, **named: Any) -> SelfDistillation:
    words = Tokenizer.from_file(str(DREAM / "tokenizer.json"))
    recipe = replace(RECIPES["tiny-dream"], steps=4, causal_steps=0, masked_tokens=256)
    given_: Mapping[str, Any] = {"orders": {}, "before": DREAM, "hold": 0.0} | named
    return SelfDistillation(PAIR, recipe, words, folder, seed=3, device="cpu", **given_)


def orders_of(batch: TrainingBatch) -> dict[tuple[int, ...], tuple[int, ...]]:
    rows = zip(batch.ids.tolist(), batch.start.tolist(), batch.end.tolist(), strict=True)
    return {tuple(row[start:end]): () for row, start, end in rows}


@shipped
def test_rows_without_an_own_answer_have_the_ordinary_loss(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    batch = trainer.batch()
    ordinary = super(SelfDistillation, trainer).loss(batch)
    assert torch.equal(trainer.loss(batch), ordinary)
    taught_ = trainer_of(tmp_path, orders=orders_of(batch))
    assert not torch.equal(taught_.loss(batch), ordinary)


@shipped
def test_other_rows_are_held_to_what_the_model_said_before(tmp_path: Path) -> None:
    batch = trainer_of(tmp_path).batch()
    plain = trainer_of(tmp_path).loss(batch)
    assert torch.allclose(trainer_of(tmp_path, hold=0.0).loss(batch), plain)
    held = trainer_of(tmp_path, hold=1.0)
    loss = held.loss(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    # Cross-entropy with itself is its entropy, which no change of the weights lowers at first order.
    assert max(float(p.grad.abs().max()) for p in held.model.parameters() if p.grad is not None) < 1e-3
    halfway = trainer_of(tmp_path, hold=0.5).loss(batch)
    assert torch.allclose(halfway, (plain + loss) / 2, rtol=1e-3)
    own_rows = trainer_of(tmp_path, orders=orders_of(batch)).loss(batch)
    assert torch.equal(trainer_of(tmp_path, orders=orders_of(batch), hold=1.0).loss(batch), own_rows)


def test_kinds_can_have_more_rows() -> None:
    targets = Targets([], [], is_right)
    plain = curriculum(PAIR, targets, DistilOptions())
    more = curriculum(PAIR, targets, DistilOptions(more=("arithmetic=3",)))
    before, after = plain.masked.families, more.masked.families
    assert before["description"] == after["description"] == DistilOptions().share
    assert sum(after.values()) == pytest.approx(1)
    rest = [kind for kind in before if kind not in ("description", "arithmetic")]
    assert after["arithmetic"] / after[rest[0]] == pytest.approx(3 * before["arithmetic"] / before[rest[0]])


@shipped
def test_the_command_writes_answers_teaches_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRAINED, "tiny", lambda: PAIR)
    common = ["distil", "tiny", "-o", str(tmp_path), "--answers", "3", "--canvas", "48", "--watched", "1"]
    common += "--every 1 --no-compile --device cpu --threads 1 --seed 2".split()
    assert main([*common, "--steps", "1"]) == 0
    answers = read(tmp_path / "description.answers.jsonl")
    assert len(answers) == 3
    assert all(len(each.passes) == len(each.ids) for each in answers)
    with (tmp_path / "description.answers.jsonl").open("a") as file:
        file.write('{"problem": {"family"')  # as an interruption leaves it
    assert main([*common, "--steps", "2"]) == 0
    assert read(tmp_path / "description.answers.jsonl") == answers
    curve = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert [(row["step"], row["commit"]) for row in curve] == [(s, 0.9) for s in range(3)]
    assert {"tokens_a_pass", "coverage", "coverage 10%", "agreement 10%"} <= set(curve[0])
    assert "step 2 of 2" in capsys.readouterr().err
    assert (tmp_path / "tiny-dream" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["tiny", "--share", "2"],
        ["tiny", "--more", "sum"],
        [str(PAIRS["tiny"].weights / "tiny-qwen")],  # of another shape
        ["no/such/model"],
    ],
)
def test_wrong_values_are_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAINED, "tiny", lambda: PAIR)
    assert main(["distil", *arguments]) in (2, 4)
