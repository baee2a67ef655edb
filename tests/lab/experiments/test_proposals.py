"""The phases of what the paper proposes: their parts, and verdicts that follow the figures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeWalk
from edge_runtime.decode.endings import Stop, ending
from lab.canvases import denoise_steps
from lab.conditions import ANCHORS, ORDERS, PARALLEL, PRODUCT, Situation, plan
from lab.experiments.paper import PHASES, adaptive, budget, ends, influence, pivotal, resilience
from lab.tables import Answers, show
from tests.lab.experiments.proposal_records import ABOUT, PROPOSED, budgets, errors, levels
from tests.lab.test_conditions import situations

NEW = ("budget", "adaptive", "pivotal", "influence", "resilience", "ends")


def test_tables_show_every_cell_and_need_no_records() -> None:
    for phase, _, made in PROPOSED:
        for table in PHASES[phase].tables(made(True), ABOUT):
            assert all(set(row) <= set(table.columns) for row in table.rows)
            labels = [tuple(cell for cell in row.values() if isinstance(cell, str)) for row in table.rows]
            assert len(set(labels)) == len(labels), "two runs are compared by the labels of their rows"
            assert all(
                isinstance(show(row.get(column)), str) for row in table.rows for column in table.columns
            )
    for phase in NEW:
        assert not [table.rows for table in PHASES[phase].tables([], ABOUT) if table.rows]
        assert {claim.verdict for claim in PHASES[phase].claims([], ABOUT)} <= {"undecided"}


def test_the_plots() -> None:
    for name, records in (("budget", budgets(True)), ("resilience", errors(True))):
        (picture,) = PHASES[name].plots(records, ABOUT)
        assert picture.data.startswith(b"\x89PNG")


# Budget by query


def test_rules_stop_an_observed_run_where_the_sampler_stops(dream_folder: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    config = plan("confidence", DenoiseConfig(canvas=20, total_steps=10, seed=3))
    rules = {name: rule for name, rule in budget.RULES.items() if name in ("complete", "prophet", "entropy")}
    found = budget.observe(model, [5, 9, 17], config, [2], rules)
    for name in rules:
        (alone,) = denoise(model, [[5, 9, 17]], plan("confidence", DenoiseConfig(20, 10, seed=3, stop=name)))
        if alone.stopped_by == name:
            assert found.stops[name] == alone.steps
            assert found.at(alone.steps).predicted_answer == alone.predicted_answer
        else:
            assert found.stops[name] == found.last
    for state in denoise_steps(model, [[5, 9, 17]], config):
        (last,) = state.results(model, config)
        if state.steps[0] == 2:
            assert found.at(2).predicted_answer == last.predicted_answer
    assert found.at(10).answer == last.answer, "nothing of a complete answer changes"


def test_a_fixed_budget_is_interpolated_at_the_mean_of_a_rule() -> None:
    rows = [
        {"id": id_, "planned": step, "steps": step, "right": right}
        for id_, values in (("a", (0.0, 1.0)), ("b", (1.0, 1.0)))
        for step, right in zip((4, 8), values, strict=True)
    ]
    for mean, wanted in ((5, 0.25), (4, 0.0), (8, 1.0), (2, 0.0), (9, 1.0)):
        found = budget.fixed_at(Answers(rows), mean, "right")
        assert [row["right"] for row in found.rows] == [wanted, 1.0]


def test_an_answer_counts_as_early_where_it_stays_right() -> None:
    rights = {"a": (1, 0, 1), "b": (0, 1, 1), "c": (1, 1, 0)}
    rows = [
        {"id": id_, "plan": "p", "budget": budget.FIXED, "planned": step, "right": float(right)}
        for id_, values in rights.items()
        for step, right in zip((2, 4, 8), values, strict=True)
    ]
    found = {step: budget.early(Answers(rows), "p", step).values("early") for step in (2, 4, 8)}
    assert found == {2: [0, 0], 4: [0, 1], 8: [1, 1]}, "c is not right in the end"


# Steps by difficulty


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(0, 3), max_size=20))
def test_as_many_get_more_steps_as_get_fewer(signals: dict[str, float]) -> None:
    low, high = adaptive.halves(signals)
    assert len(low) == len(high) == len(signals) // 2
    assert not low & high
    assert all(signals[a] <= signals[b] for a in low for b in high)


def test_hindsight_is_the_most_that_an_allocation_can_win() -> None:
    for good in (True, False):
        found = adaptive.Allocation(levels(good), ABOUT, PARALLEL, "25%")

        def mean(answers: Answers) -> float:
            return sum(answers.values("right")) / len(answers)

        best = mean(found.by_hindsight("right"))
        ways = [found.by(s, "right", turned=t) for s in adaptive.SIGNALS for t in (True, False)]
        assert best >= max(map(mean, [*ways, found.by_lot("right"), found.same(found.ids, "right")]))
        steps = found.by(adaptive.LEVEL, "right").values("step")
        assert sum(steps) / len(steps) == pytest.approx(31.5)
    assert adaptive.steps_of(ABOUT, "10%") == [6, 12, 19]


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


# Influence


def test_rankings_value_every_token_that_is_sent() -> None:
    walk = EdgeWalk([7, 8, 9], [0, 2], {0: 0.5, 2: 1.5}, 1, 3)
    found = influence.rankings(walk, {0: 4, 2: 0}, {0: 3}, seed=1)
    assert all(set(values) == {0, 2} for values in found.values())
    best = {name: max(values, key=values.__getitem__) for name, values in found.items()}
    assert best[influence.GAIN] == 2
    assert best[influence.INFLUENCE] == best[influence.BOTH] == best[influence.EARLY] == 0


# Errors


@given(situations(), st.integers(0, 9))
def test_as_many_anchors_are_wrong_as_was_said(at: Situation, seed: int) -> None:
    anchors = at.anchors(at.committed)
    for count in (1, 2):
        if count > len(anchors):
            continue
        wrong = resilience.wrong_tokens(at, anchors, count, random.Random(seed))
        assert wrong.positions == anchors.positions
        assert sum(a != b for a, b in zip(wrong.ids, anchors.ids, strict=True)) == count
        moved = resilience.wrong_places(at, anchors, count, random.Random(seed))
        if moved is not None:
            assert sorted(moved.ids) == sorted(anchors.ids)
            assert len(set(anchors.positions) - set(moved.positions)) == count


@given(st.binary(min_size=1, max_size=40), st.integers(1, 4), st.integers(0, 99))
def test_as_many_bytes_are_changed_as_was_said(data: bytes, count: int, seed: int) -> None:
    out = resilience.changed(data, count, random.Random(seed))
    assert len(out) == len(data)
    assert sum(a != b for a, b in zip(out, data, strict=True)) == min(count, len(data))


# End marker


@given(situations(), st.integers(1, 24))
def test_the_estimated_length_decides_whether_the_rule_applies(at: Situation, size: int) -> None:
    anchors = at.anchors(at.committed)
    if not len(anchors):
        return
    found = ending(ends.by_estimate(anchors, size), 10_000)
    applies = len(anchors) / size > 0.4
    assert ends.applies(anchors, size) == applies
    assert found.stop is (Stop.LENGTH if applies else Stop.LIMIT)
    if applies:
        assert found.end == anchors.positions[-1] + 1


def test_names_of_selections_are_those_of_the_conditions() -> None:
    assert set(resilience.SELECTIONS) == {ANCHORS, PRODUCT}
    assert pivotal.SELECTIONS.keys() >= {ANCHORS}
    groups: Sequence[str] = adaptive.PLANS
    assert set(groups) == {*ORDERS, PARALLEL}
