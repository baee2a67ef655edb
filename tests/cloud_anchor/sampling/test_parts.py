"""The sampler's parts, each on its own: filters, orders, schedules, commit rules, results."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling import commits, filters, schedules, scores, stops
from cloud_anchor.sampling.config import DenoiseConfig, steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.select import committed, confident
from lab.runs import canvas_at
from payload import Contract, Extras
from tests.cloud_anchor.cloud_reference import keep_nucleus

CONTRACT = Contract(100, "0" * 64, {"<|endoftext|>": 100, "<|im_start|>": 101, "<|im_end|>": 102}, "1" * 64)
MASK = 103


def run_of(
    ids: list[int],
    predicted: list[int] | None = None,
    confidence: list[float] | None = None,
    ending: list[float] | None = None,
) -> Denoised:
    size = len(ids)
    ending = ending or [float(token in (100, 102)) for token in ids]
    canvas = torch.tensor([ids])
    end = torch.isin(canvas, torch.tensor([100, 102]))
    return Denoised(
        prompt_ids=(1,),
        ids=ids,
        when=[0 if token == MASK else 1 for token in ids],
        predicted=predicted or [5 if token == MASK else token for token in ids],
        confidence=confidence or [1.0] * size,
        ending=ending,
        predicted_length=int(stops.likely_length(canvas == MASK, end, torch.tensor([ending]))),
        steps=1,
        total_steps=10,
        mask_id=MASK,
        eos_ids=frozenset({100, 102}),
    )


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    width=st.sampled_from([5, 63, 64, 65, 300]),
    spread=st.sampled_from([0.01, 1.0, 8.0]),
    top_p=st.floats(0.05, 0.999),
)
def test_nucleus_without_sorting_everything_is_the_same(
    seed: int, width: int, spread: float, top_p: float
) -> None:
    logits = torch.randn(7, width, generator=torch.Generator().manual_seed(seed)) * spread
    expected = keep_nucleus(logits, top_p) > torch.finfo(torch.float32).min
    differs = (filters.nucleus(logits, top_p) ^ expected).nonzero()
    # Sums in another order may disagree on a token that ends exactly at top_p.
    ordered = logits.softmax(-1).sort(descending=True).values.cumsum(-1)
    for row, _ in differs.tolist():
        assert (ordered[row] - top_p).abs().min() < 1e-6


def test_filters_keep_what_they_say() -> None:
    logits = torch.randn(20, 90, generator=torch.Generator().manual_seed(1)) * 3
    expected = keep_nucleus(logits / 0.7, 0.9).softmax(-1)
    torch.testing.assert_close(filters.filtered_probabilities(logits, 0.7, 0.9), expected, rtol=0, atol=0)
    torch.testing.assert_close(filters.filtered_probabilities(logits, 0, None), logits.softmax(-1))


def test_a_refused_draw_takes_the_likeliest() -> None:
    fair = torch.full((4, 10), 0.1)
    broken = fair.clone()
    broken[1] = 0.11
    broken[:, 3] += 1e-7

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    assert filters.draw(broken, [4], [generator()]).tolist() == [3, 3, 3, 3]
    mixed = filters.draw(torch.cat([broken, fair]), [4, 4], [generator(), generator()])
    assert mixed[4:].tolist() == filters.draw(fair, [4], [generator()]).tolist(), (
        "the other answer still draws"
    )


def test_orders_by_their_formulas() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    proposal = scores.Proposal(logits, logits.softmax(-1), torch.tensor([0, 2]))
    p = [math.e**2, math.e, 1]
    p = [value / sum(p) for value in p]
    assert scores.maskgit_plus(proposal).tolist() == pytest.approx([p[0], 1 / 3])
    assert scores.entropy(proposal).tolist() == pytest.approx(
        [sum(q * math.log(q) for q in p), -math.log(3)], abs=1e-6
    )
    assert scores.confidence(proposal).tolist() == pytest.approx([math.log(p[0]), -math.log(3)])


def test_confidence_tells_apart_what_filters_make_equal() -> None:
    logits = torch.tensor([[3.0, 0.0, 0.0], [6.0, 0.0, 0.0]])
    probabilities = filters.filtered_probabilities(logits, 0.2, 0.95)
    proposal = scores.Proposal(logits, probabilities, torch.tensor([0, 0]))
    assert scores.entropy(proposal)[0] == scores.entropy(proposal)[1]
    assert scores.confidence(proposal)[0] < scores.confidence(proposal)[1]


@pytest.mark.parametrize(
    ("canvas", "proposed", "length", "free"),
    [
        ("____", "abEE", 2, "1100"),  # no end before the words
        ("a___", "aEEE", 1, "0100"),  # the end of the answer, not its tail
        ("_b__", "aEEE", 2, "1010"),
        ("abE_", "abEE", 2, "0001"),  # nothing else is left
        ("_bE_", "abEE", 2, "1000"),
        ("_bEc", "abEc", 2, "1000"),
        ("____", "EEEE", 0, "1000"),  # an empty answer ends at once
        ("_E__", "EEbb", 1, "1000"),  # nothing after a committed end
        ("a___", "aEbE", 3, "0010"),  # an end before the likely one waits for the words
        ("a___", "aEEE", 3, "0100"),  # until there are none
    ],
)
def test_ends_wait_until_the_answer_needs_them(canvas: str, proposed: str, length: int, free: str) -> None:
    def ids(text: str) -> torch.Tensor:
        return torch.tensor([[{"_": MASK, "E": 100}.get(c, ord(c) - 96) for c in text]])

    masked = ids(canvas) == MASK
    ends = torch.tensor([100, 102])
    found = scores.suppress_eos(masked, ids(proposed), ids(canvas), ends, torch.tensor([length]))
    assert "".join("01"[int(flag)] for flag in found[0].tolist()) == free


@pytest.mark.parametrize("schedule", [schedules.DREAM, schedules.LLADA, replace(schedules.DREAM, block=7)])
@given(total=st.integers(1, 300), canvas=st.integers(1, 600))
@settings(deadline=None, max_examples=40)
def test_schedules_end_with_nothing_masked(schedule: schedules.Schedule, total: int, canvas: int) -> None:
    masked = torch.ones(1, canvas, dtype=torch.bool)
    for step in range(total):
        end, share = schedule.at(step, total, canvas)
        assert 0 <= share <= 1
        open_ = masked & (torch.arange(canvas) < end)
        count = commits.quotas(open_, share[None], up=schedule.round_up)
        masked &= ~commits.best(torch.zeros(1, canvas), open_, count)
    assert not masked.any()


def test_whole_products_are_not_rounded_up() -> None:
    for steps in range(1, 300):
        left = 256
        for share in schedules.linear(steps):
            count = int(commits.quotas(torch.ones(1, left, dtype=torch.bool), share[None], up=True))
            left -= count
            assert count in (256 // steps, 256 // steps + 1)
        assert left == 0


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_best_takes_the_highest_and_the_lower_position_of_ties(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    values = st.lists(st.sampled_from([-2.0, -1.0, 0.0]), min_size=size, max_size=size)
    score = data.draw(values)
    allowed = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    quota = data.draw(st.integers(0, size))
    expected = sorted(sorted((i for i in range(size) if allowed[i]), key=lambda i: (-score[i], i))[:quota])
    found = commits.best(torch.tensor([score]), torch.tensor([allowed]), torch.tensor([quota]))
    assert found[0].nonzero().squeeze(1).tolist() == expected


def test_above_a_threshold_commits_all_at_once_and_at_least_one() -> None:
    scores = torch.tensor([[0.95, 0.2, 0.99, 0.91], [0.3, 0.5, 0.1, 0.2]])
    allowed = torch.tensor([[True, True, True, False], [True, True, True, True]])
    assert commits.above(scores, allowed, 0.9).tolist() == [
        [True, False, True, False],
        [False, True, False, False],
    ]


@pytest.mark.parametrize(
    ("ids", "length"),
    [
        ([1, 2, 100, 100], 2),
        ([1, MASK, 100, 100], None),  # the answer may end before
        ([1, MASK, 3, 102], 3),
        ([100, MASK, MASK, MASK], 0),
        ([1, 2, MASK, 100], None),
        ([1, 2, 3, 4], 4),  # the canvas is full
        ([1, 2, 3, MASK], None),
    ],
)
def test_length_is_known_where_commits_say_so(ids: list[int], length: int | None) -> None:
    assert run_of(ids).length == length


def test_coverage_and_s50_count_the_answer_only() -> None:
    run = run_of([1, 2, 3, 4, 100, 100])
    run.when[:] = [2, 1, 3, 3, 1, 1]
    run = Denoised(**{**vars(run), "steps": 4})
    assert run.coverage == [0.25, 0.5, 1.0, 1.0]
    assert run.s50 == 2
    assert [commit.positions for commit in run.history] == [[1, 4, 5], [0], [2, 3], []]
    assert canvas_at(run, 1) == [MASK, 2, MASK, MASK, 100, 100]


def test_paper_selection_is_what_is_committed_before_the_end() -> None:
    run = run_of([1, MASK, 3, 101, 100, 7])
    anchors = committed(run, CONTRACT)
    assert (anchors.positions, anchors.ids, anchors.length) == ((0, 2), (1, 3), 4)
    assert anchors.canvas == 6
    assert run.extras("why") == Extras("why", step=1, total_steps=10)
    assert len(committed(run_of([MASK, MASK]), CONTRACT)) == 0


def test_confident_selection_takes_predictions() -> None:
    run = run_of([MASK, 2, MASK, MASK], [9, 2, 8, 7], [0.9, 1.0, 0.4, 0.1], [0.0, 0.0, 0.2, 0.9])
    assert confident(run, CONTRACT, 0.0).ids == (9, 2, 8)
    sure = confident(run, CONTRACT, 0.5)
    assert (sure.positions, sure.ids, sure.length) == ((0, 1), (9, 2), 3)


@pytest.mark.parametrize(
    "options",
    [
        {"canvas": 0},
        {"steps": 0},
        {"steps": 129},
        {"order": "best"},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"commit": "all"},
        {"commit": 1.5},
        {"stop": "entropy"},
    ],
)
def test_wrong_options_are_named(options: dict[str, object]) -> None:
    with pytest.raises(RequestError, match=f"^{next(iter(options))[:3]}"):
        DenoiseConfig(**options)  # type: ignore[arg-type]


def test_a_fraction_is_whole_steps() -> None:
    assert [steps_for(share, 128) for share in (0.1, 0.15, 0.25, 1.0, 0.001)] == [12, 19, 32, 128, 1]
    assert steps_for(0.29, 100) == 29, "not 28 by rounding error"
    with pytest.raises(RequestError):
        steps_for(1.5, 128)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_predicted_length_is_the_likeliest_cut(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    done = data.draw(st.lists(st.sampled_from("w__e"), min_size=size, max_size=size))
    chance = {"w": st.just(0.0), "e": st.just(1.0), "_": st.floats(0.01, 0.99)}
    ending = [data.draw(chance[kind]) for kind in done]
    run = run_of([{"w": 3, "_": MASK, "e": 100}[kind] for kind in done], ending=ending)
    if run.length is not None:
        assert run.predicted_length == run.length
        return
    last_word = max((p + 1 for p, kind in enumerate(done) if kind == "w" and p < run.first_end), default=0)

    def chance_of(cut: int) -> float:
        before = sum(math.log(1 - e) for e, kind in zip(run.ending[:cut], done, strict=False) if kind == "_")
        return before + sum(
            math.log(e) for e, kind in zip(run.ending[cut:], done[cut:], strict=True) if kind == "_"
        )

    cuts = range(last_word, run.first_end + 1)
    assert chance_of(run.predicted_length) == pytest.approx(max(map(chance_of, cuts)))
    assert run.predicted_length in cuts


def test_one_doubtful_position_does_not_end_the_answer() -> None:
    run = run_of([MASK] * 5, ending=[0.0, 0.6, 0.1, 0.8, 0.9])
    assert run.predicted_length == 3


def look_of(
    canvas: str,
    when: list[int] | None = None,
    gap: float = 0.0,
    step: int = 8,
    total: int = 10,
) -> stops.StepView:
    """_ masked, w a word, E an end; the predictions expect words up to the first end."""
    masked = torch.tensor([[c == "_" for c in canvas]])
    end = torch.tensor([[c == "E" for c in canvas]])
    size = len(canvas)
    zeros = torch.zeros(1, size)
    ending = torch.tensor([[float(c == "E") or 0.1 * (c == "_") for c in canvas]])
    return stops.StepView(
        masked=masked,
        end=end,
        when=torch.tensor([when or [0 if c == "_" else 1 for c in canvas]]),
        step=torch.tensor([step]),
        total=total,
        predict=lambda: stops.StepPredictions(
            zeros.long(), zeros, ending, torch.full((1, size), gap) * masked
        ),
    )


@pytest.mark.parametrize(
    ("canvas", "done"),
    [("wwE_", True), ("w_E_", False), ("E___", True), ("www_", False), ("wwww", True), ("____", False)],
)
def test_an_answer_is_complete_when_nothing_before_its_end_is_open(canvas: str, done: bool) -> None:
    assert stops.complete(look_of(canvas)).tolist() == [done]


@pytest.mark.parametrize(
    ("step", "gap", "done"),
    [(3, 7.4, False), (3, 7.6, True), (5, 4.9, False), (5, 5.1, True), (8, 2.4, False), (8, 2.6, True)],
)
def test_prophet_asks_for_less_as_steps_go_by(step: int, gap: float, done: bool) -> None:
    assert stops.prophet(look_of("w__w", gap=gap, step=step)).tolist() == [done]
    assert stops.prophet(look_of("wwww", gap=0.0, step=step)).tolist() == [True], "nothing is open"


def test_plateau_is_no_growth_after_half_is_known() -> None:
    assert stops.plateau(look_of("wwww__", when=[1, 1, 2, 2, 0, 0])).tolist() == [True]
    assert stops.plateau(look_of("wwww__", when=[1, 1, 2, 7, 0, 0])).tolist() == [False], "still growing"
    assert stops.plateau(look_of("ww____", when=[1, 1, 0, 0, 0, 0])).tolist() == [False], "hardly begun"
    assert stops.plateau(look_of("wwww__", when=[1, 1, 1, 1, 0, 0], step=2)).tolist() == [False]
