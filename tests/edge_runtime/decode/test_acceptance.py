"""Speculative acceptance leaves the target's distribution as it is, whatever the drafter proposes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.decode.acceptance import GREEDY, Acceptance, Distribution, Draft, Sampling, distribution
from edge_runtime.decode.draft_model import DraftModel
from edge_runtime.decode.forced import FillOptions, FillStats, Source, fill
from edge_runtime.decode.refine import AnchorFeed, fill_refined
from edge_runtime.decode.speculate import Drafter
from edge_runtime.engine.base import BaseEngine, Logits
from edge_runtime.errors import EngineError, UsageError
from payload import AnchorSet, Contract

VOCAB = 4
END = 4
SPECIAL = {"<|im_end|>": END, "<|endoftext|>": END + 1}
CONTRACT = Contract(VOCAB, "0" * 64, SPECIAL, "1" * 64)
NOTHING = AnchorSet.empty(64, CONTRACT)
PROMPT = [1, 3]
DRAWS = 5000
SETTINGS = [Sampling(0.7), Sampling(1.0), Sampling(1.0, 0.8)]


@cache
def logits_after(text: tuple[int, ...], seed: int) -> Logits:
    """float32[VOCAB + 2]: any text has its own; <|endoftext|> never comes."""
    logits = np.random.default_rng([seed, *text]).standard_normal(VOCAB + 2).astype(np.float32) * 1.5
    logits[END] -= 1
    logits[END + 1] = -np.inf
    return logits


class Random(BaseEngine):
    """A model of random, but fixed, logits."""

    def __init__(self, seed: int) -> None:
        super().__init__(context=64, vocab=VOCAB + 2)
        self.seed = seed

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        text = (*self.tokens, *ids)
        return np.stack([logits_after(text[: self.length + row + 1], self.seed) for row in rows])


class Fixed:
    """Always drafts the same tokens, and does not draw them."""

    def draft(self, text: Sequence[int], wanted: int) -> Sequence[int]:
        return [2, 0, 1][:wanted]

    def observe(self, right: bool) -> None:
        pass


class Whimsical:
    """Draws from distributions that have nothing to do with the target, some of them with zeros."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def draft(self, text: Sequence[int], wanted: int) -> Draft:
        odds = self.random.dirichlet(np.full(VOCAB + 2, 0.4), wanted)
        odds[:, self.random.integers(VOCAB)] = 0
        odds /= odds.sum(1, keepdims=True)
        return Draft([int(self.random.choice(VOCAB + 2, p=row)) for row in odds], list(odds))

    def observe(self, right: bool) -> None:
        pass


DRAFTERS: dict[str, Callable[[Sampling], Drafter]] = {
    "deterministic": lambda sampling: Fixed(),
    "autoregressive": lambda sampling: DraftModel(
        Random(8), Sampling(sampling.temperature, sampling.top_p, seed=77)
    ),
    "random": lambda sampling: Whimsical(5),
}


def exactly(sampling: Sampling) -> dict[tuple[int, ...], float]:
    """Probabilities of all answers of at most 3 tokens; written from the definition, without `fill`."""
    found: dict[tuple[int, ...], float] = {}
    for tokens in itertools.product(range(VOCAB + 1), repeat=3):
        answer = tokens[: tokens.index(END) + 1] if END in tokens else tokens
        share = 1.0
        for at, token in enumerate(answer):
            logits = logits_after((*PROMPT, *answer[:at]), 0).astype(np.float64)
            if sampling.temperature:
                p = np.exp(logits / sampling.temperature)
                p /= p.sum()
                if sampling.top_p:
                    # A token is kept where those likelier than it do not exceed top-p on their own.
                    p = np.array([x if p[p > x].sum() <= sampling.top_p else 0 for x in p])
                    p /= p.sum()
            else:
                p = (logits == logits.max()).astype(float)
            share *= p[token]
        found[answer] = share
    assert math.isclose(sum(found.values()), 1)
    return found


def draw(sampling: Sampling, drafter: Drafter | None, count: int) -> Counter[tuple[int, ...]]:
    """`count` answers of at most 3 tokens, each with its own seed; END stands for an early end."""
    engine = Random(0)
    answers: Counter[tuple[int, ...]] = Counter()
    for seed in range(count):
        own = Sampling(sampling.temperature, sampling.top_p, seed)
        options = FillOptions(3, drafter=drafter, max_draft=3, sampling=own)
        answer = tuple(t.id for t in fill(engine, PROMPT, NOTHING, options))
        answers[answer if len(answer) == 3 else (*answer, END)] += 1
    return answers


def differs(found: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> bool:
    """Pearson's chi-square at the 0.1% level, over all answers; rare ones are put together."""
    count = found.total()
    if any(not expected.get(answer) for answer in found):
        return True
    frequent = {answer for answer, share in expected.items() if share * count >= 10}
    cells = [(found[answer], expected[answer] * count) for answer in frequent]
    rest = count - sum(wanted for _, wanted in cells)
    if rest > 1e-6:
        cells.append((count - sum(seen for seen, _ in cells), rest))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    freedom = max(len(cells) - 1, 1)
    # Wilson and Hilferty: the cube root of a chi-square is nearly normal; 3.09 is the 99.9% point.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic > limit


def variation(found: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Total variation distance of the frequencies from the expected distribution."""
    count = found.total()
    return sum(abs(found[answer] / count - share) for answer, share in expected.items()) / 2


def most_variation(expected: dict[tuple[int, ...], float], count: int) -> float:
    """Exceeded by `variation` of true draws less often than once in a thousand times.

    Its mean, from the mean absolute deviation of a binomial share, and the deviation from that which
    McDiarmid's inequality allows: one draw moves it by at most 1/count.
    """
    mean = sum(math.sqrt(2 * p * (1 - p) / (math.pi * count)) for p in expected.values()) / 2
    return mean + math.sqrt(math.log(1000) / (2 * count))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_distribution_is_the_targets_own(drafter: str, sampling: Sampling) -> None:
    expected = exactly(sampling)
    found = draw(sampling, DRAFTERS[drafter](sampling), DRAWS)
    assert not differs(found, expected)
    assert variation(found, expected) <= most_variation(expected, DRAWS)


@pytest.mark.parametrize("drafter", [None, *DRAFTERS])
def test_temperature_0_is_the_greedy_text(drafter: str | None) -> None:
    (answer,) = (answer for answer, share in exactly(GREEDY).items() if share)
    made = DRAFTERS[drafter](GREEDY) if drafter else None
    assert draw(GREEDY, made, 50) == {answer: 50}


@pytest.mark.statistical
@pytest.mark.parametrize("mistake", ["everything is accepted", "what is refused is drawn from p"])
def test_a_wrong_rule_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Acceptance, p: Distribution, drafted: int, odds: Distribution | None) -> int:
        if mistake == "everything is accepted":
            return drafted if p[drafted] > 0 else self.draw(p)
        q = 1.0 if odds is None else odds[drafted]
        return drafted if self._random.random() * q < p[drafted] else self.draw(p)

    sampling = Sampling(1.0)
    expected = exactly(sampling)
    assert not differs(draw(sampling, Whimsical(5), 4000), expected)
    monkeypatch.setattr(Acceptance, "_accept", wrong)
    found = draw(sampling, Whimsical(5), 4000)
    assert differs(found, expected)
    assert variation(found, expected) > most_variation(expected, 4000)


@given(st.integers(0, 500), st.integers(1, 6))
def test_the_targets_own_draft_is_accepted(seed: int, wanted: int) -> None:
    drafter = DraftModel(Random(0), Sampling(0.8, 0.9, seed=seed + 1000))
    stats = FillStats()
    options = FillOptions(6, drafter=drafter, max_draft=wanted, sampling=Sampling(0.8, 0.9, seed))
    tokens = list(fill(Random(0), PROMPT, NOTHING, options, stats))
    assert stats.passes <= math.ceil((len(tokens) + 1) / (wanted + 1)) + (stats.stop is not None)
    taken = sum(1 for _ in tokens) - stats.passes
    assert stats.accepted >= max(taken, 0)


def test_acceptance_rate_is_the_overlap_of_both_distributions() -> None:
    """One draft token is accepted with probability sum(min(p, q)) (arXiv 2211.17192, corollary 3.6)."""
    p_logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    q = np.array([0.2, 0.2, 0.6])
    rule, random = Acceptance(Sampling(1.0, seed=3)), np.random.default_rng(4)
    drafted = random.choice(3, 20_000, p=q)
    kept = sum(rule.token(p_logits, int(id_), q) == id_ for id_ in drafted)
    assert kept / 20_000 == pytest.approx(0.6, abs=0.015)


def test_anchors_stay_forced_beside_sampling() -> None:
    anchors = AnchorSet.of({0: 3, 4: 2}, 8, CONTRACT, 8)
    texts = set()
    for seed in range(20):
        stats = FillStats()
        options = FillOptions(sampling=Sampling(1.0, seed=seed), drafter=Fixed(), max_draft=3)
        tokens = list(fill(Random(0), PROMPT, anchors, options, stats))
        assert [(t.position, t.id) for t in tokens if t.source is Source.ANCHOR] == [(0, 3), (4, 2)]
        assert len(tokens) == 8
        assert END not in [t.id for t in tokens]
        assert tokens == list(fill(Random(0), PROMPT, anchors, options))
        texts.add(tuple(t.id for t in tokens))
    assert len(texts) > 10


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=2, max_size=9, unique=True),
    st.floats(0.1, 3),
    st.none() | st.floats(0.01, 1),
)
def test_the_nucleus_is_the_shortest_run_above_top_p(
    logits: list[float], temperature: float, top_p: float | None
) -> None:
    found = distribution(np.array(logits, np.float32), Sampling(temperature, top_p))
    whole = np.exp(np.array(logits, np.float64) / temperature)
    whole /= whole.sum()
    assert found.sum() == pytest.approx(1)
    kept = found > 0
    np.testing.assert_allclose(found[kept], whole[kept] / whole[kept].sum(), rtol=1e-6)
    if top_p is None:
        assert kept.all()
        return
    assert whole[kept].min() >= whole[~kept].max(initial=0)
    assert kept.all() or whole[kept].sum() > top_p
    assert whole[kept].sum() - whole[kept].min() <= top_p + 1e-9


def test_the_draft_model_stays_within_its_context_and_keeps_its_cache() -> None:
    drafter = DraftModel(Random(3))
    assert len(drafter.draft([1] * 60, 9).ids) == 5  # the last one is not run
    assert drafter.draft([1] * 65, 9) == Draft(())
    drafter = DraftModel(Random(3))
    first = drafter.draft([1, 2], 3)
    assert drafter.passes == 3
    again = drafter.draft([1, 2, *first.ids[:2]], 1)
    assert again.ids == first.ids[2:]


def test_faulty_input_is_named() -> None:
    logits = np.zeros(3, np.float32)
    rule = Acceptance(Sampling(1.0))
    for drafted, odds, message in (
        (3, None, "one of the target's 3 tokens, found token 3"),
        (0, np.array([0.5, 0.5]), "found token 0 of 2"),
        (0, np.array([0.0, 0.5, 0.5]), "found one that gives it the probability 0.0"),
    ):
        with pytest.raises(UsageError, match=message):
            rule.token(logits, drafted, odds)
    with pytest.raises(EngineError, match="not numbers"):
        rule.token(np.full(3, np.nan, np.float32))
    with pytest.raises(UsageError, match="temperature: expected a number from 0"):
        Sampling(-0.1)
    with pytest.raises(UsageError, match="top-p: expected above 0"):
        Sampling(1.0, 0.0)
    with pytest.raises(UsageError, match="a distribution for each of 2 tokens, found 1"):
        Draft([1, 2], [np.ones(3)])
    with pytest.raises(UsageError, match="sampling: expected no tolerance"):
        fill(Random(0), PROMPT, NOTHING, FillOptions(sampling=GREEDY, tolerance=0))
    with pytest.raises(UsageError, match="sampling: expected greedy decoding"):
        next(fill_refined(Random(0), PROMPT, AnchorFeed(), CONTRACT, FillOptions(sampling=GREEDY)))
