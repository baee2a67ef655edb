"""Draft and verify against the same in sequence, written out plainly: one canvas a pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.drafts import verify
from cloud_anchor.sampling.masked import MaskedAnswers
from cloud_anchor.sampling.protocol import Batch
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.sampling.scores import suppress_eos
from cloud_anchor.sampling.state import State
from cloud_anchor.sampling.stops import likely_length
from lab.canvases import shown

WORDS, END, MASK = 9, 9, 10
CANVAS = 12
PROMPTS = [[3, 1], [4], [1, 5, 2]]

Value = TypeVar("Value")


class Dice:
    """A masked model whose logits are drawn once; every token on the canvas moves those of all places.

    pull: how much, so how often a prediction changes with what is committed. Each row is computed by itself.
    """

    mask_id, eos_ids, device = MASK, frozenset({END}), torch.device("cpu")
    ends = torch.tensor([END])

    def __init__(self, seed: int, pull: float) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.own = 3 * torch.randn(CANVAS, WORDS + 2, generator=generator)
        self.own[:, END] += torch.linspace(-4, 5, CANVAS)
        self.moves = pull * torch.randn(WORDS + 2, CANVAS, CANVAS, WORDS + 2, generator=generator)

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig, guide: Any) -> MaskedAnswers:
        return MaskedAnswers.start(cast(Any, self), prompts, config, guide)

    def batch(self, prompts: Sequence[Sequence[int]], canvas: int) -> Batch:
        return Batch(torch.tensor([[sum(prompt)] for prompt in prompts]), None, None)

    def without_unusable(self, logits: Tensor) -> Tensor:
        return logits.index_fill(-1, torch.tensor([MASK]), -torch.inf)

    def logits(self, batch: Batch, canvas: Tensor, wanted: Tensor, prefix: object = None) -> Tensor:
        rows = zip(batch.prompt[:, 0].tolist(), canvas.tolist(), wanted, strict=True)
        return torch.cat([self.row(prompt, ids)[where] for prompt, ids, where in rows])

    def row(self, prompt: int, ids: Sequence[int]) -> Tensor:
        found = self.own.roll(prompt, 1)
        for place, token in enumerate(ids):
            if token != MASK:
                found = found + self.moves[token, place]
        return found


def surest(model: Dice, prompt: int, seen: Sequence[int], ids: Sequence[int], size: int) -> list[int]:
    """Places of the canvas `ids` that may commit by the pass over `seen`, in its first open block of a size,
    the surest first.
    """
    chances = probabilities(model, prompt, seen)
    best, likeliest = chances.max(-1)
    canvas = torch.tensor([ids])
    masked, end = canvas == MASK, canvas == END
    length = likely_length(masked, end, torch.where(masked, chances[:, END], end.float()))
    first = list(seen).index(MASK) // size if MASK in seen else 0
    masked[:, (first + 1) * size :] = False
    free = suppress_eos(masked, likeliest[None], canvas, model.ends, length)[0].nonzero()[:, 0].tolist()
    return sorted(free, key=lambda place: (-float(best[place]), place))


def probabilities(model: Dice, prompt: int, seen: Sequence[int]) -> Tensor:
    return model.row(prompt, seen)[:, :MASK].softmax(-1)


def plainly(model: Dice, prompt: int, config: DenoiseConfig) -> tuple[list[int], list[int], list[float], int]:
    """The answer, each token's step and probability, and the number of drafts: one canvas a pass, one draft
    after the other.
    """
    ids, when, sure = [MASK] * CANVAS, [0] * CANVAS, [0.0] * CANVAS
    drafts, step, rows = list[dict[int, int]](), 0, 0
    while MASK in ids:
        step, rows = step + 1, rows + len(drafts)
        for draft in [*drafts, None]:
            seen, best = ids, probabilities(model, prompt, ids).max(-1)
            if draft is None or any(best.indices[place] != token for place, token in draft.items()):
                break
            ids = _with(draft, ids)
            when, sure = _with(dict.fromkeys(draft, step), when), _with(_sure(best, draft), sure)
        order = surest(model, prompt, seen, ids, config.block)
        taken = [place for place in order if best.values[place] >= config.commit_probability] or order[:1]
        ids = _with({place: int(best.indices[place]) for place in taken}, ids)
        when, sure = _with(dict.fromkeys(taken, step), when), _with(_sure(best, taken), sure)
        ahead, drafts = ids, []
        while len(drafts) + 1 < config.commit_depth:
            if not (more := surest(model, prompt, seen, ahead, config.block)[: len(taken)]):
                break
            drafts.append({place: int(best.indices[place]) for place in more})
            ahead = _with(drafts[-1], ahead)
    return ids, when, sure, rows


def _sure(best: Any, places: Iterable[int]) -> dict[int, float]:
    return {place: float(best.values[place]) for place in places}


def _with(some: Mapping[int, Value], row: Sequence[Value]) -> list[Value]:
    return [some.get(place, value) for place, value in enumerate(row)]


def config(**options: object) -> DenoiseConfig:
    return DenoiseConfig(canvas=CANVAS, total_steps=40, **options)  # type: ignore[arg-type]


def answers(model: Dice, options: DenoiseConfig, batch: int = 3) -> list[Denoised]:
    return denoise(cast(Any, model), PROMPTS, options, batch)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    pull=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    depth=st.integers(1, 5),
    probability=st.sampled_from([0.3, 0.6, 0.9, 1.0]),
    block=st.sampled_from([None, 5]),
)
def test_it_is_what_several_passes_in_sequence_commit(
    seed: int, pull: float, depth: int, probability: float, block: int | None
) -> None:
    model = Dice(seed, pull)
    options = config(commit="verify", commit_depth=depth, commit_probability=probability, block_length=block)
    for size in (3, 2):  # all at once, and the third in the place of the first that is done
        runs = answers(model, options, size)
        for prompt, run in zip(PROMPTS, runs, strict=True):
            ids, when, sure, rows = plainly(model, sum(prompt), options)
            assert (run.ids, run.when, run.steps, run.draft_rows) == (ids, when, max(when), rows)
            assert run.certainty == pytest.approx(sure, abs=1e-5)
            assert run.steps <= run.rows <= depth * run.steps


def test_some_drafts_hold_and_some_do_not() -> None:
    """As the other tests would say little of a model that confirms all, or nothing."""
    plain, deep = (
        [answers(Dice(seed, 0.4), config(commit="verify", commit_depth=depth))[0] for seed in range(8)]
        for depth in (1, 4)
    )
    steps = sum(run.steps for run in plain)
    assert sum(run.steps for run in deep) < steps < sum(run.rows for run in deep)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.05, 1), st.sampled_from([None, "complete", "prophet", "entropy"]))
def test_without_drafts_it_is_the_probability(seed: int, probability: float, stop: str | None) -> None:
    model, plain = Dice(seed, 0.4), config(commit=probability, stop=stop)
    one = config(commit="verify", commit_depth=1, commit_probability=probability, stop=stop)
    assert answers(model, one) == answers(model, plain)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_an_end_follows_a_word_on_every_draft(seed: int, depth: int) -> None:
    model = Dice(seed, 0.4)
    with shown(cast(Any, model)) as canvases:
        answers(model, config(commit="verify", commit_depth=depth))
    for ids in (row for canvas in canvases for row in canvas.tolist()):
        end = ids.index(END) if END in ids else 0
        assert end == 0 or ids[end - 1] != MASK


def test_what_a_grammar_pins_is_no_draft() -> None:
    model = Dice(1, 0.0)
    state = State.start(cast(Any, model), PROMPTS[:1], config())
    state.batch = model.batch(PROMPTS[:1], CANVAS)
    state.draft = model.row(4, [])[None, :, :MASK].argmax(-1)
    state.level[0, 2:4] = torch.tensor([1, 2])
    state.ids[0, 2] = pinned = int(state.draft[0, 2] + 1) % WORDS
    seen, logits = verify(cast(Any, model), state)
    assert seen.ids[0, 2:5].tolist() == [pinned, int(state.draft[0, 3]), MASK]
    assert seen.when[0, 2:5].tolist() == [0, 1, 0]
    assert len(logits) == CANVAS - 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"commit_depth": 0}, "commit depth: expected 1 to 8, found 0"),
        ({"commit_depth": 9}, "commit depth: expected 1 to 8, found 9"),
        ({"temperature": 0.5}, "temperature: expected 0 beside commit verify, found 0.5"),
        ({"order": "entropy"}, "order: expected confidence beside commit verify"),
        ({"prefix_every": 4}, "prefix every: expected 0 beside commit verify, found 4"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        config(commit="verify", **options)


def test_only_its_own_options_are_told() -> None:
    more = config(commit="verify").to_json().keys() - config().to_json().keys()
    assert more == {"commit_depth", "commit_probability"}
