"""Selection against the edge model: what is sent is enough and needed, and the walk is short."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import (
    EdgeAwareConfig,
    EdgeWalk,
    edge_aware,
    verify_draft,
    within_bytes,
)
from cloud_anchor.selection.scorer import Scorer
from edge_runtime.decode.forced import fill
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.errors import EngineError
from payload import AnchorSet, Contract

WORDS = 12
CONTRACT = Contract(
    WORDS, "0" * 64, {"<|endoftext|>": WORDS, "<|im_start|>": WORDS + 1, "<|im_end|>": WORDS + 2}, "1" * 64
)
EOS = CONTRACT.eos_ids
MASK = WORDS + 3


class HashEngine(Engine):
    """Logits that depend on every token before them and on nothing else, like a causal model's.

    noise: how far another processor's or precision's logits are from them at most.
    """

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__(context=4096, vocab=WORDS + 3)
        self.noise = noise

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        text = [*self.tokens, *ids]
        return np.stack([self._after(text[: self.length + row + 1]) for row in rows]).reshape(-1, self.vocab)

    def _after(self, prefix: Sequence[int]) -> Logits:
        random = np.random.default_rng(zlib.crc32(np.asarray(prefix, np.int64).tobytes()))
        logits = random.standard_normal(self.vocab) * 2
        return (logits + random.uniform(-self.noise, self.noise, self.vocab)).astype(np.float32)


def draft(
    predicted: list[int], confidence: list[float], canvas: int = 64, prompt: Sequence[int] = (1, 2, 3)
) -> Denoised:
    size = len(predicted)
    return Denoised(
        prompt_ids=tuple(prompt),
        ids=[MASK] * canvas,
        when=[0] * canvas,
        predicted=predicted + [0] * (canvas - size),
        confidence=confidence + [0.1] * (canvas - size),
        ending=[0.0] * size + [0.9] * (canvas - size),
        predicted_length=size,
        steps=6,
        total_steps=64,
        mask_id=MASK,
        eos_ids=EOS,
    )


@st.composite
def drafts(draw: st.DrawFn) -> Denoised:
    size = draw(st.integers(1, 40))
    return draft(
        draw(st.lists(st.integers(0, WORDS - 1), min_size=size, max_size=size)),
        draw(st.lists(st.sampled_from([0.1, 0.35, 0.6, 0.95]), min_size=size, max_size=size)),
    )


def keep(anchors: AnchorSet, positions: set[int]) -> AnchorSet:
    """The same AnchorSet with these positions only."""
    kept = {p: i for p, i in anchors.by_position.items() if p in positions}
    return AnchorSet.of(kept, anchors.canvas, anchors.contract, anchors.length)


def filled(anchors: AnchorSet, prompt: Sequence[int], noise: float = 0.0) -> list[int]:
    return [token.id for token in fill(HashEngine(noise), prompt, anchors)]


@settings(deadline=None, max_examples=50)
@given(drafts(), st.sampled_from([0.0, 0.3, 0.5, 0.9]), st.sampled_from([0.0, 0.5]), st.integers(1, 8))
@example(draft([3, 0, 5, 0, 0, 4], [0.6, 0.35, 0.35, 0.6, 0.6, 0.1]), 0.9, 0.5, 2)
def test_the_device_writes_the_intended_text(
    run: Denoised, threshold: float, guard: float, max_passes: int
) -> None:
    config = EdgeAwareConfig(threshold, guard, max_passes)
    found = verify_draft(Scorer(HashEngine(), EOS), run, CONTRACT, config)
    anchors = edge_aware(run, found, CONTRACT)
    assert found.passes <= max_passes
    bound = [p for p in range(run.predicted_length) if run.confidence[p] >= threshold]
    assert max(bound, default=-1) < len(found.text) <= run.predicted_length
    assert [found.text[p] for p in bound] == [run.predicted[p] for p in bound]
    assert filled(anchors, run.prompt_ids) == found.text
    # Nor do small differences between processors change it, up to the last token that binds or is sent.
    sure = max([*bound, *found.sent], default=-1) + 1
    assert filled(anchors, run.prompt_ids, noise=guard * 0.499)[:sure] == found.text[:sure]


@settings(deadline=None, max_examples=25)
@given(drafts(), st.sampled_from([0.0, 0.3, 0.9]))
def test_every_token_sent_is_needed(run: Denoised, threshold: float) -> None:
    config = EdgeAwareConfig(threshold, 0.0, 100)
    found = verify_draft(Scorer(HashEngine(), EOS), run, CONTRACT, config)
    anchors = edge_aware(run, found, CONTRACT)
    for position in found.sent:
        fewer = keep(anchors, set(found.sent) - {position})
        assert filled(fewer, run.prompt_ids) != found.text


@settings(deadline=None, max_examples=25)
@given(drafts())
def test_with_enough_passes_free_positions_are_the_edge_models_own(run: Denoised) -> None:
    found = verify_draft(Scorer(HashEngine(), EOS), run, CONTRACT, EdgeAwareConfig(0.5, 0.0, 100))
    own = HashEngine()
    for position in found.sent:
        if run.confidence[position] < 0.5:  # a special token, which no answer has
            text = [*run.prompt_ids, *found.text[:position]]
            own.rewind(0)
            logits = own.append(text, [len(text) - 1])[0]
            logits[list(EOS)] = -np.inf
            assert logits.argmax() >= WORDS
    free = sum(c < 0.5 for c in run.confidence[: run.predicted_length])
    assert found.passes <= free + 1


def test_all_binding_is_one_pass_and_the_draft_itself() -> None:
    run = draft([3, 1, 4, 1, 5, 9, 2, 6], [0.1] * 8)
    found = verify_draft(Scorer(HashEngine(), EOS), run, CONTRACT, EdgeAwareConfig(0.0, 0.0))
    assert (found.passes, found.text) == (1, run.predicted_answer)
    assert found.tokens == len(run.prompt_ids) + 7, "the last token predicts nothing that is wanted"


def test_a_second_pass_reads_only_what_a_change_touches() -> None:
    engine = HashEngine()
    scorer = Scorer(engine, EOS)
    prompt, text = [1, 2, 3], [3, 1, 4, 1, 5, 9, 2, 6]
    whole = scorer.score(prompt, text)
    changed = [*text[:5], 0, *text[6:]]
    rest = scorer.score(prompt, changed, 6)
    assert rest.tokens == 2, "the changed token and the one after it"
    again = Scorer(HashEngine(), EOS).score(prompt, changed)
    for name in ("greedy", "margin", "logprob", "best"):
        np.testing.assert_array_equal(getattr(rest, name), getattr(again, name)[6:])
        np.testing.assert_array_equal(getattr(whole, name)[:6][:5], getattr(again, name)[:5])


@settings(deadline=None, max_examples=40)
@given(drafts(), st.integers(4, 40), st.sampled_from([0.0, 0.5]))
def test_a_byte_budget_holds_and_the_text_is_what_the_device_writes(
    run: Denoised, budget: int, guard: float
) -> None:
    scorer, config = Scorer(HashEngine(), EOS), EdgeAwareConfig(0.0, guard)
    found = verify_draft(scorer, run, CONTRACT, config)

    def size(anchors: AnchorSet) -> int:
        return 5 + sum(1 + (token > 5) for token in anchors.ids)  # as a codec's, not the same for all

    def size_of(walk: EdgeWalk) -> int:
        return size(edge_aware(run, walk, CONTRACT))

    bare = verify_draft(scorer, run, CONTRACT, config, only=())
    assert filled(edge_aware(run, bare, CONTRACT), run.prompt_ids) == bare.text
    refusal = ""
    try:
        kept = within_bytes(scorer, run, found, CONTRACT, config, budget, size)
    except RequestError as error:
        refusal = str(error)
    if refusal:
        # Neither none nor all fits; a number in between may, for it can spare special tokens.
        assert size_of(bare) > budget < size_of(found)
        assert f"max bytes: expected at least {size_of(bare)}," in refusal
        assert f"found {budget}" in refusal
        return
    assert size_of(kept) <= budget
    if size_of(found) <= budget:
        assert kept == found
    # The edge model goes on differently without the tokens left out: the walk says how.
    assert filled(edge_aware(run, kept, CONTRACT), run.prompt_ids) == kept.text


def test_a_byte_budget_keeps_the_largest_gains() -> None:
    class Plain(HashEngine):
        """Never thinks of special tokens, which have to be told in any case."""

        def _after(self, prefix: Sequence[int]) -> Logits:
            logits = super()._after(prefix)
            logits[WORDS:] = -20
            return logits

    run = draft([3, 1, 4, 1, 5, 9, 2, 6], [0.9, 0.2, 0.5, 0.95, 0.3, 0.7, 0.1, 0.8])
    scorer, config = Scorer(Plain(), EOS), EdgeAwareConfig(0.0, 0.0)
    found = verify_draft(scorer, run, CONTRACT, config)
    best = sorted(found.sent, key=lambda p: -found.gains[p])
    for count in range(len(best) + 1):
        kept = within_bytes(scorer, run, found, CONTRACT, config, count, len)
        assert {p: kept.text[p] for p in best[:count]} == {p: found.text[p] for p in best[:count]}
        assert len(kept.sent) <= count


def test_an_empty_draft_has_an_empty_walk() -> None:
    scorer = Scorer(HashEngine(), EOS)
    runs = [draft([], []), draft([3, 1, 4], [0.1] * 3)]
    empty, other = (verify_draft(scorer, run, CONTRACT) for run in runs)
    assert empty == EdgeWalk([], [], {}, 0, 0)
    assert other == verify_draft(Scorer(HashEngine(), EOS), runs[1], CONTRACT)


@pytest.mark.parametrize("options", [(-0.1, 0.0, 1), (1.1, 0.0, 1), (0.5, -1.0, 1), (0.5, 0.0, 0)])
def test_dials_out_of_range(options: tuple[float, float, int]) -> None:
    with pytest.raises(RequestError):
        EdgeAwareConfig(*options)


def test_logits_that_are_no_numbers_are_refused() -> None:
    class Broken(HashEngine):
        def _after(self, prefix: Sequence[int]) -> Logits:
            return np.full(self.vocab, np.nan, np.float32)

    with pytest.raises(EngineError):
        Scorer(Broken(), EOS).score([1], [2, 3])
