"""The controls hold fixed what they say they hold fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.scorer import Scorer, SpanScores
from cloud_anchor.selection.select import Selection, select
from edge_runtime.decode.endings import Stop, ending
from lab.case import EdgeAnswer
from lab.conditions import (
    ANCHORS,
    CLAIMED,
    CONDITIONS,
    FIRST,
    PREFIX,
    PRODUCT,
    Situation,
    committed,
    draft,
    first_predictions,
    leading_run,
    prefix,
    random_positions,
    random_tokens,
    scattered,
    surest_predictions,
)
from lab.experiments.paper.ends import with_marker, without_marker
from lab.experiments.paper.gaps import gap_positions, gap_scores
from lab.experiments.passes import EQUAL, controls
from lab.runs import Run
from payload import AnchorSet, Contract
from tests.cloud_anchor.selection.test_edge_aware import CONTRACT as HASH_CONTRACT
from tests.cloud_anchor.selection.test_edge_aware import HashEngine
from tests.cloud_anchor.selection.test_edge_aware import draft as draft_of

WORDS, END, MASK, CANVAS, STEPS = 50, 50, 53, 24, 8
CONTRACT = Contract(
    WORDS, "0" * 64, {"<|endoftext|>": WORDS, "<|im_start|>": WORDS + 1, "<|im_end|>": WORDS + 2}, "1" * 64
)


class NoReader:
    together, context = 1, None

    def score(self, prompt: Sequence[int], text: Sequence[int], start: int = 0) -> SpanScores:
        raise AssertionError("these conditions do not ask the edge model")


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """A finished run of random commits, seen after some of its steps."""
    answer = draw(st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=CANVAS - 1))
    when = draw(st.lists(st.integers(1, STEPS), min_size=CANVAS, max_size=CANVAS))
    sure = draw(st.lists(st.floats(0, 1), min_size=len(answer), max_size=len(answer)))
    ids = answer + [END] * (CANVAS - len(answer))
    step = draw(st.integers(1, STEPS))
    run = Run((1, 2), ids, when, {step: (answer, sure)}, STEPS, MASK, frozenset({END}))
    return Situation(run.at(step), answer, CONTRACT, NoReader(), draw(st.integers(0, 9)))


@given(situations())
def test_controls_send_as_much_as_the_anchors(at: Situation) -> None:
    anchors = committed(at)
    assert anchors.by_position == at.committed
    for control in (random_tokens, random_positions, scattered, prefix):
        assert len(control(at)) == len(anchors)
    assert random_tokens(at).positions == anchors.positions
    assert sorted(random_positions(at).ids) == sorted(anchors.ids)
    assert prefix(at).ids == tuple(at.full[: len(anchors)])
    assert all(at.full[p] == token for p, token in zip(*_pairs(scattered(at)), strict=True))
    run = leading_run(at)
    assert run.ids == anchors.ids[: len(run)]
    assert run.positions == tuple(range(len(run)))
    assert len(run) not in at.committed


@given(situations(), st.integers(0, CANVAS))
def test_controls_of_a_number_of_tokens_send_so_many(at: Situation, count: int) -> None:
    predicted = at.early.predicted_answer
    assert prefix(at, count).positions == tuple(range(min(count, len(at.full))))
    assert len(scattered(at, count)) == min(count, len(at.full))
    assert first_predictions(at, count).ids == tuple(predicted[:count])
    surest = surest_predictions(at, count)
    assert len(surest) == min(count, len(predicted))
    assert surest.length == len(predicted)
    others = set(range(len(predicted))) - set(surest.positions)
    sure = at.early.confidence
    assert all(sure[kept] >= sure[other] for kept in surest.positions for other in others)


class FakeCase:
    """Sizes of five bytes and two a token; an answer is the tokens sent. told: the lengths that were sent."""

    def __init__(self) -> None:
        self.told: list[int | None] = []

    def size(self, anchors: AnchorSet, extras: object) -> int:
        return 5 + 2 * len(anchors)

    def fill(self, anchors: AnchorSet) -> EdgeAnswer:
        self.told.append(anchors.length)
        return EdgeAnswer(list(anchors.ids), 1)

    def alone(self) -> EdgeAnswer:
        return EdgeAnswer([], 0)

    def judged(self, ids: list[int], reference: list[int]) -> dict[str, object]:
        return {"reference": reference}


@given(situations(), st.integers(5, 60))
def test_controls_take_at_most_the_bytes_of_the_payload_and_all_that_fit(at: Situation, size: int) -> None:
    own = replace(at, full=[id_ + 1 for id_ in at.full])
    case = FakeCase()
    found = controls(case, at, own, size)  # type: ignore[arg-type]
    assert None not in case.told[-len(EQUAL) :], "each is told a length"
    most = {PREFIX: len(at.full), FIRST: at.early.predicted_length}
    for name in EQUAL:
        assert found[name]["bytes"] <= size
        assert found[name]["sent"] == min(most.get(name, 99), (size - 5) // 2) or name not in most
        assert found[name]["reference"] == at.full
    assert found[ANCHORS]["reference"] == own.full, "the paper's are held against the paper's own run"


@given(situations())
def test_special_ids_among_the_ordinary_ones_are_no_anchors(at: Situation) -> None:
    """As in SmolLM2, whose ids 0 to 16 are special."""
    low = Contract(WORDS, "0" * 64, {f"<{id_}>": id_ for id_ in range(40)}, "1" * 64, ("<2>",))
    there = replace(at, contract=low)
    assert all(id_ >= 40 for id_ in random_tokens(there).ids)
    assert random_tokens(there).positions == tuple(sorted(at.committed))
    wanted = {p: id_ for p, id_ in enumerate(at.full) if id_ >= 40}
    assert there.anchors(dict(enumerate(at.full))).by_position == wanted


@given(situations())
def test_every_prediction_is_sent(at: Situation) -> None:
    assert list(draft(at).ids) == at.early.predicted_answer
    assert draft(at).length == len(at.early.predicted_answer)


def test_the_products_condition_has_the_products_defaults() -> None:
    answer = [3, 1, 4, 1, 5, 9, 2, 6]
    run = draft_of(answer, [0.9, 0.2, 0.6, 0.1, 0.8, 0.3, 0.95, 0.4])
    scorer = Scorer(HashEngine(), HASH_CONTRACT.eos_ids)
    at = Situation(run, answer, HASH_CONTRACT, scorer, 0)
    expected = select(run, HASH_CONTRACT, Selection(), scorer)
    assert CONDITIONS[PRODUCT](at) == expected.anchors
    claimed = select(run, HASH_CONTRACT, Selection(config=EdgeAwareConfig(threshold=0.5)), scorer)
    assert CONDITIONS[CLAIMED](at) == claimed.anchors != expected.anchors


@given(situations())
def test_the_end_marker_is_on_or_off(at: Situation) -> None:
    anchors = committed(at)
    off = ending(without_marker(anchors), 10_000)
    assert off.stop is Stop.LIMIT
    on = ending(with_marker(anchors), 10_000)
    assert on.end == (max(anchors.positions) + 1 if anchors.positions else 0)
    assert without_marker(anchors).ids == with_marker(anchors).ids == anchors.ids


def test_gap_scores_are_those_of_the_gaps() -> None:
    def text(ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    reference = [1, 2, 3, 4, 5]
    gaps = gap_positions(5, {0, 3})
    assert gaps == [1, 2, 4]
    assert gap_scores(text, [1, 3, 2, 4, 5], reference, gaps) == (1, 1 / 3)
    # An answer that ends early is compared as far as it goes.
    assert gap_scores(text, [1, 2], reference, gaps) == (1, 1)
    assert gap_scores(text, [1], reference, gaps) == (1, 0)


def _pairs(anchors: AnchorSet) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return anchors.positions, anchors.ids
