"""Sampling: the nucleus, and answers that are drawn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.decode.forced import FillOptions, Source, fill
from edge_runtime.decode.sampling import Sampler, Sampling, distribution
from edge_runtime.errors import EngineError, UsageError
from tests.edge_runtime.hash_engine import CONTRACT, HashEngine, anchors_of


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


def test_tokens_are_drawn_by_their_shares() -> None:
    shares = np.array([0.5, 0.3, 0.2, 0])
    with np.errstate(divide="ignore"):
        logits = np.log(shares).astype(np.float32)
    sampler = Sampler(Sampling(1.0, seed=3))
    found = Counter(sampler.token(logits) for _ in range(20_000))
    for id_, share in enumerate(shares):
        assert found[id_] / 20_000 == pytest.approx(share, abs=0.015)


def test_anchors_stay_forced_and_a_seed_gives_one_text() -> None:
    anchors = anchors_of({0: 3, 4: 2}, canvas=8, length=8)
    texts = set()
    for seed in range(20):
        options = FillOptions(sampling=Sampling(1.0, seed=seed))
        tokens = list(fill(HashEngine(), [5], anchors, options))
        assert [(t.position, t.id) for t in tokens if t.source is Source.ANCHOR] == [(0, 3), (4, 2)]
        assert len(tokens) == 8
        assert not CONTRACT.eos_ids & {t.id for t in tokens}
        assert tokens == list(fill(HashEngine(), [5], anchors, options))
        texts.add(tuple(t.id for t in tokens))
    assert len(texts) > 10
    greedy = FillOptions(sampling=Sampling(0.0))
    assert list(fill(HashEngine(), [5], anchors, greedy)) == list(fill(HashEngine(), [5], anchors))


def test_faulty_input_is_named() -> None:
    with pytest.raises(EngineError):
        Sampler(Sampling(1.0)).token(np.full(3, np.nan, np.float32))
    for wrong in ({"temperature": -0.1}, {"top_p": 0.0}):
        with pytest.raises(UsageError):
            Sampling(**wrong)
