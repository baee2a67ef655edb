"""Parts of the paper's experiments; the whole of them is measured in `tests.lab.test_run`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from lab.conditions import plan
from lab.experiments.paper import adaptive, budget, pivotal
from lab.experiments.paper.commit_order import correlations
from lab.experiments.paper.pearl import point
from lab.experiments.paper.quantised import overlap, repetition, round_to_nearest
from lab.runs import grid
from lab.tables import Answers


def test_small_parts() -> None:
    assert point([1, 2, 3, 4], [1, 0.9, 0.96, 1]) == 3
    assert point([1, 2], [1, 0.5]) is None
    assert (grid(64)[0], grid(64)[-1], grid(1)) == (1, 64, [1])
    assert overlap([1, 1, 2], [1, 2, 2, 3]) == 0.5
    assert repetition([1, 2, 3, 4] * 3) == pytest.approx(5 / 9)


def test_rounding_keeps_at_most_the_levels_of_its_bits() -> None:
    weight = torch.randn(6, 80, generator=torch.Generator().manual_seed(0))
    for bits in (8, 4):
        rounded = round_to_nearest(weight, bits)
        step = weight[:, :32].abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        assert ((rounded - weight)[:, :32].abs() <= step / 2 + 1e-6).all()
        assert len(rounded[0, :32].unique()) <= 2**bits - 1
    assert (round_to_nearest(weight, 4)[:, 64:] != weight[:, 64:]).any()


def test_correlations_are_over_the_answers_that_have_all_figures() -> None:
    rows = [{"s50": n, "length": (n * 7) % 11, "level": n % 3, "steps": None} for n in range(20)]
    found = correlations(Answers([*rows, {"s50": None, "length": 3, "level": 1, "steps": 2}]))
    assert found["S50 and length"].n == found["S50 and difficulty, length held fixed"].n == 20
    assert found["S50 and solution steps, word problems"].n == 0


# Budget by query


def test_rules_stop_an_observed_run_where_the_sampler_stops(dream_folder: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    config = plan("confidence", DenoiseConfig(canvas=20, total_steps=10, seed=3))
    seen, stops = budget.observe(model, [5, 9, 17], config, [2])
    assert set(stops) == {"complete", "prophet", "plateau"}
    for name, stop in stops.items():
        (alone,) = denoise(model, [[5, 9, 17]], plan("confidence", DenoiseConfig(20, 10, seed=3, stop=name)))
        if alone.stopped_by == name:
            assert stop == alone.steps
            assert seen[stop].predicted_answer == alone.predicted_answer
        else:
            assert stop == max(seen)
    (whole,) = denoise(model, [[5, 9, 17]], config)
    assert seen[max(seen)].answer == whole.answer, "nothing of a complete answer changes"


@pytest.mark.parametrize(("mean", "wanted"), [(5, 0.25), (4, 0.0), (8, 1.0), (2, 0.0), (9, 1.0)])
def test_a_fixed_budget_is_interpolated_at_the_mean_of_a_rule(mean: float, wanted: float) -> None:
    rows = [
        {"id": id_, "planned": step, "steps": step, "right": right}
        for id_, values in (("a", (0.0, 1.0)), ("b", (1.0, 1.0)))
        for step, right in zip((4, 8), values, strict=True)
    ]
    assert [row["right"] for row in budget.fixed_at(Answers(rows), mean).rows] == [wanted, 1.0]


# Steps by difficulty


@given(st.lists(st.tuples(st.integers(0, 3), st.tuples(*[st.integers(0, 1)] * 3)), max_size=20))
def test_as_many_get_more_steps_as_get_fewer_and_hindsight_wins_most(items: list[tuple[int, tuple]]) -> None:
    rows = Answers([{"hard": hard, "after": after} for hard, after in items])
    found = adaptive.handed_out(rows, [0, 1, 2], lambda row: row["hard"])
    places = [row["place"] for row in found.rows]
    assert places.count(0) == places.count(2) == len(items) // 2
    low = [value for (value, _), place in zip(items, places, strict=True) if place == 0]
    assert all(max(low) <= v for (v, _), place in zip(items, places, strict=True) if place == 2 and low)
    if len(items) % 2 == 0:
        best = adaptive.handed_out(rows, [0, 1, 2], lambda row: row["after"][2] - row["after"][0])
        assert sum(best.values("right")) >= sum(found.values("right"))


# Pivotal tokens


@pytest.mark.parametrize(
    ("tokens", "places"),
    [
        (["So", " the", " answer"], [0]),
        (["the", "re", "fore", ",", " Ada"], [0, 1, 2]),
        (["Some", " soup", " also"], [2]),
        (["In", " the", " end", " 5"], [0, 1, 2]),
        (["x", " be", "cause", " y", " then"], [1, 2, 4]),
        ([], []),
    ],
)
def test_connectives_are_found_in_all_of_their_tokens(tokens: list[str], places: list[int]) -> None:
    pieces = [token.encode() for token in tokens]
    assert pivotal.connectives(range(len(pieces)), pieces.__getitem__) == places
