"""Speculation: drafts never change a token, and are made only where they pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.decode.speculate import Speculator, chunk_costs, lookup
from edge_runtime.engine.base import BaseEngine, Logits
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet

FREE = {1: 1.0, 2: 1.0, 9: 1.0}
LINEAR = {1: 1.0, 2: 2.0, 9: 9.0}


class Echo(BaseEngine):
    """A model that follows its last two tokens by a fixed table, so that its text soon repeats."""

    def __init__(self, seed: int, context: int = 512) -> None:
        super().__init__(context=context, vocab=15)
        table = np.random.default_rng(seed).standard_normal((15, 15, 15)).astype(np.float32)
        self.table = table
        self.table[..., 12:] -= 3  # special tokens are rare

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        text = [0, *self.tokens, *ids]
        wanted = [self.table[text[self.length + row], text[self.length + row + 1]] for row in rows]
        return np.stack(wanted) if wanted else np.empty((0, 15), np.float32)


class Whim:
    """Drafts anything, as the test draws it."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.seen: list[bool] = []

    def draft(self, text: Sequence[int], wanted: int) -> Sequence[int]:
        return self.data.draw(st.lists(st.integers(0, 14), max_size=wanted + 2))

    def observe(self, right: bool) -> None:
        self.seen.append(right)


PROBLEMS: dict[str, Any] = {
    "prompt": st.lists(st.integers(0, 14), min_size=1, max_size=8),
    "places": st.dictionaries(st.integers(0, 29), st.integers(0, 11), max_size=15),
    "length": st.none() | st.integers(30, 40),
    "scored": st.booleans(),
    "seed": st.integers(0, 300),
}


@given(data=st.data(), max_draft=st.integers(0, 6), **PROBLEMS)
def test_no_guess_changes_a_token_or_a_score(
    make_anchors: Callable[..., AnchorSet],
    data: st.DataObject,
    max_draft: int,
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    scored: bool,
    seed: int,
) -> None:
    anchors = make_anchors(places, canvas=40, length=length)
    plain = FillOptions(score_anchors=scored)
    expected = list(fill(Echo(seed), prompt, anchors, plain))
    whim, stats, engine = Whim(data), FillStats(), Echo(seed)
    guessing = FillOptions(score_anchors=scored, drafter=whim, max_draft=max_draft, max_chunk=9, max_rows=4)
    assert list(fill(engine, prompt, anchors, guessing, stats)) == expected
    assert stats.accepted == sum(whim.seen) <= stats.drafted
    # What the cache holds is what was written, so the next request may build on it.
    settled = [*prompt, *(token.id for token in expected)]
    again = FillOptions(score_anchors=scored, drafter=Speculator(FREE))
    assert list(fill(engine, prompt, anchors, again)) == expected
    assert list(engine.tokens)[: len(prompt)] == settled[: len(prompt)] or not engine.length


@given(**PROBLEMS)
def test_right_guesses_save_passes(
    make_anchors: Callable[..., AnchorSet],
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    scored: bool,
    seed: int,
) -> None:
    anchors = make_anchors(places, canvas=40, length=length)
    plain, guessed = FillStats(), FillStats()
    expected = list(fill(Echo(seed), prompt, anchors, FillOptions(score_anchors=scored), plain))

    class Oracle:
        def draft(self, text: Sequence[int], wanted: int) -> Sequence[int]:
            at = len(text) - len(prompt)
            return [token.id for token in expected[at : at + wanted]]

        def observe(self, right: bool) -> None:
            assert right

    options = FillOptions(score_anchors=scored, drafter=Oracle(), max_draft=1000)
    assert list(fill(Echo(seed), prompt, anchors, options, guessed)) == expected
    assert guessed.passes <= min(plain.passes, 2)  # one for everything, one more for the end token


def test_repeating_text_takes_fewer_passes(make_anchors: Callable[..., AnchorSet]) -> None:
    plain, guessed = FillStats(), FillStats()
    anchors = make_anchors({0: 1}, canvas=200, length=200)
    expected = list(fill(Echo(1), [3], anchors, stats=plain))
    assert list(fill(Echo(1), [3], anchors, FillOptions(drafter=Speculator(FREE)), guessed)) == expected
    assert plain.passes == 199
    assert guessed.passes < 60


@pytest.mark.parametrize("variant", ["fp32", "int8", "int4"])
def test_guesses_change_no_token_of_a_real_model(tiny_bundle: Path, variant: str) -> None:
    bundle = Bundle.open(tiny_bundle, variant)
    engine = OrtEngine.open(bundle, threads=1)
    for seed in range(3):
        random = np.random.default_rng(seed)
        prompt = [int(i) for i in random.integers(0, 300, 20)] * 2
        anchors = AnchorSet((0, 5, 6, 40), (1, 2, 3, 4), 120, bundle.contract, 120)
        plain, guessed = FillStats(), FillStats()
        expected = list(fill(engine, prompt, anchors, stats=plain))
        options = FillOptions(drafter=Speculator(FREE))
        found = list(fill(engine, prompt, anchors, options, guessed))
        assert [t.id for t in found] == [t.id for t in expected]
        assert guessed.passes <= plain.passes


def slow_lookup(text: list[int], wanted: int) -> list[int]:
    for size in (4, 3, 2):
        for at in range(len(text) - size - 1, -1, -1):
            if len(text) > size and text[at : at + size] == text[-size:]:
                longer = list(text)
                for source in range(at + size, at + size + wanted):
                    longer.append(longer[source])
                return longer[len(text) :]
    return []


@given(
    st.lists(st.sampled_from([0, 1, 256, 1 << 24, 1 << 32]), max_size=40) | st.lists(st.integers(0, 2)),
    st.integers(1, 9),
)
def test_lookup_finds_the_latest_place_of_the_longest_ending(text: list[int], wanted: int) -> None:
    assert lookup(text, wanted) == slow_lookup(text, wanted)


def test_guesses_are_as_many_as_pay() -> None:
    assert Speculator(LINEAR).size(8) == 0
    assert Speculator(FREE).size(8) == 8
    believer = Speculator({1: 1.0, 2: 1.1, 3: 1.3, 5: 1.6, 9: 2.2})
    assert 0 < believer.size(8) < 8
    for _ in range(60):
        believer.observe(True)
    assert believer.size(8) == 8
    for _ in range(3000):
        believer.observe(False)
    assert believer.size(8) == 0
    for _ in range(500):  # text goes on, evidence fades
        believer.draft([1, 2, 3], 8)
    assert believer.size(8) > 0


def test_costs_are_measured_within_the_context(make_engine: Callable[..., Any]) -> None:
    engine = make_engine(context=20)
    costs = chunk_costs(engine, budget=0.01)
    assert list(costs) == [1, 2, 3, 5, 9]
    assert all(0 < cost < 1 for cost in costs.values())
    assert engine.length == 0


def test_costs_are_kept_with_the_prepacked_weights(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edge_runtime import runtime
    from edge_runtime.engine import prepack

    calls = []
    monkeypatch.setattr(runtime, "chunk_costs", lambda engine, sizes: calls.append(1) or dict(FREE))
    monkeypatch.setenv("EDGE_CACHE", str(tmp_path))
    plain = EdgeRuntime.open(tiny_bundle, threads=1)
    assert plain.speculator() is None  # small, so nothing is kept and nothing measured
    assert plain.speculator("off") is None
    assert plain.speculator("on") is not None
    monkeypatch.setattr(prepack, "MIN_BYTES", 0)
    for _ in range(3):
        edge = EdgeRuntime.open(tiny_bundle, threads=1)
        assert edge.engine
        assert edge.speculator() is not None
    assert edge.speculator("off") is None
    assert len(calls) == 2
