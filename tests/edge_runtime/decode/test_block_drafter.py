"""A block drafter: what its graph runs, and that its drafts change no token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.bundle.manifest import BlockForm, Manifest
from edge_runtime.decode import block_drafter
from edge_runtime.decode.block_drafter import BlockDrafter
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.decode.speculate import Speculator
from edge_runtime.engine.base import BaseEngine, Logits
from edge_runtime.errors import BundleContractError, BundleSchemaError, UsageError
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet
from tests.edge_runtime.conftest import VOCAB, HashEngine, hash_logits

MASK = VOCAB + 3
FREE = {1: 1.0, 2: 1.0, 17: 1.0}


class MaskedEngine(BaseEngine):
    """A graph of hashes of the text before the block. With `target` it drafts what that model writes.

    wrong: the place of every block at which it drafts another token; None for none.
    """

    def __init__(self, block: int, *, target: int | None = None, wrong: int | None = None) -> None:
        super().__init__(context=512, vocab=MASK + 1)
        self.block, self.target, self.wrong = block, target, wrong
        self.texts: list[list[int]] = []
        self.chunks: list[list[int]] = []

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        self.chunks.append(list(ids))
        assert list(ids[-self.block + 1 :]) == [MASK] * (self.block - 1)
        text = [*self.tokens, *ids[: len(ids) - self.block + 1]]
        assert MASK not in text
        if not rows:
            return np.empty((0, self.vocab), np.float32)
        self.texts.append(text)
        assert list(rows) == list(range(len(ids) - self.block, len(ids) - self.block + len(rows)))
        logits = np.zeros((len(rows), self.vocab), np.float32)
        logits[:, MASK] = 100  # never drafted
        for row in range(len(rows)):
            if self.target is None:
                logits[row, : VOCAB + 3] = hash_logits([row, *text])
            else:
                logits[row, : VOCAB + 3] = hash_logits(text, self.target)
                logits[row, [VOCAB, VOCAB + 2]] = -100  # the text has no end
                text = [*text, int(logits[row, : VOCAB + 3].argmax())]
            if row == self.wrong:
                logits[row, : VOCAB + 3] = np.roll(logits[row, : VOCAB + 3], 1)
        return logits


def drafter(block: int = 5, **options: Any) -> BlockDrafter:
    return BlockDrafter(MaskedEngine(block, **options), BlockForm(block, MASK), VOCAB + 3)


def test_a_draft_is_one_pass_over_what_is_new_and_the_block() -> None:
    found = drafter(4)
    first = found.draft([1, 2, 3], 9)
    assert len(first) == 4
    assert found.engine.tokens == [1, 2]
    found.draft([1, 2, 3, 4, 5], 2)
    engine = found.engine
    assert isinstance(engine, MaskedEngine)
    assert engine.chunks == [[1, 2, 3, MASK, MASK, MASK], [3, 4, 5, MASK, MASK, MASK]]
    assert engine.texts == [[1, 2, 3], [1, 2, 3, 4, 5]]
    assert len(found.draft([1, 2, 7, 8], 3)) == 3  # another text: what is shared stays
    assert engine.chunks[-1] == [7, 8, MASK, MASK, MASK]
    assert found.passes == 3
    assert found.draft([9], 0) == ()
    assert found.draft([1] * 510, 4) == ()  # text and block exceed the context
    assert len(found.draft([1] * 509, 4)) == 4


def test_the_mask_and_ids_that_the_target_lacks_are_never_drafted() -> None:
    found = drafter(5)
    for size in range(1, 40):
        assert max(found.draft([i % VOCAB for i in range(size)], 5)) < VOCAB + 3


def test_long_texts_run_in_chunks_that_all_end_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    text = [int(i) for i in np.random.default_rng(0).integers(0, VOCAB, 100)]
    whole = drafter(4).draft(text, 4)
    monkeypatch.setattr(block_drafter, "CHUNK", 20)
    found = drafter(4)
    assert found.draft(text, 4) == whole
    engine = found.engine
    assert isinstance(engine, MaskedEngine)
    assert max(map(len, engine.chunks)) == 20
    assert [token for chunk in engine.chunks[:-1] for token in chunk[:-4]] == text[: 16 * 6]


@given(
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8),
    places=st.dictionaries(st.integers(0, 29), st.integers(0, VOCAB - 1), max_size=12),
    length=st.none() | st.integers(30, 40),
    block=st.integers(2, 8),
    target=st.none() | st.just(0),
    wrong=st.none() | st.integers(0, 7),
    seconds=st.sampled_from([0.0, 0.5, 100.0]),
)
def test_no_draft_changes_a_token_or_a_score(
    make_anchors: Callable[..., AnchorSet],
    prompt: list[int],
    places: dict[int, int],
    length: int | None,
    block: int,
    target: int | None,
    wrong: int | None,
    seconds: float,
) -> None:
    anchors = make_anchors(places, canvas=40, length=length)
    expected = list(fill(HashEngine(), prompt, anchors))
    blocks = drafter(block, target=target, wrong=wrong)
    speculator = Speculator(FREE, blocks, seconds)
    stats = FillStats()
    options = FillOptions(drafter=speculator, max_draft=block)
    assert list(fill(HashEngine(), prompt, anchors, options, stats)) == expected
    assert stats.accepted <= stats.drafted
    if seconds == 100.0:
        assert not blocks.passes, "a draft that cannot pay is not made"


def test_a_perfect_drafter_saves_passes_in_gaps_and_behind_the_last_anchor(
    make_anchors: Callable[..., AnchorSet],
) -> None:
    for places in ({}, {0: 1, 3: 2, 9: 3, 10: 4}):
        anchors = make_anchors(places, canvas=40, length=40)
        plain, drafted = FillStats(), FillStats()
        expected = list(fill(HashEngine(), [1, 2], anchors, FillOptions(), plain))
        options = FillOptions(drafter=Speculator(FREE, drafter(8, target=0)), max_draft=8)
        assert list(fill(HashEngine(), [1, 2], anchors, options, drafted)) == expected
        assert drafted.accepted == drafted.drafted
        assert drafted.passes <= 6 < plain.passes


def test_the_draft_length_that_pays_counts_the_drafts_own_pass() -> None:
    linear = {1: 1.0, 2: 1.2, 9: 2.6}
    free = Speculator(linear, drafter(8))
    dear = Speculator(linear, drafter(8), seconds=3.0)
    assert dear.size(8) == 0 < free.size(8)
    for _ in range(40):
        for one in (free, dear):
            one.draft([1, 2], 8)
            one.observe(True)
    assert dear.size(8) == free.size(8) == 8, "at a rate near 1 eight tokens pay for their draft"


def as_drafter(folder: Path, form: dict[str, Any]) -> Path:
    """The bundle in a folder declared to be a block drafter."""
    data = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**data, "schema": 2, "drafter": form}))
    return folder


def test_a_drafters_bundle_is_told_from_a_model_that_answers(
    plain_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    model = plain_bundle(tmp_path / "a-model")
    made = as_drafter(plain_bundle(tmp_path / "a-drafter"), {"block": 8, "mask": 303})
    manifest = Bundle.open(made).manifest
    assert manifest.drafter == BlockForm(8, 303)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert "drafter" not in Bundle.open(model).manifest.to_json()
    with pytest.raises(UsageError, match="found a block drafter"):
        EdgeRuntime.open(made)
    contract = manifest.contract
    with pytest.raises(UsageError, match="expected the bundle of a block drafter"):
        BlockDrafter.open(model, contract, 320)
    with pytest.raises(UsageError, match="at least 400 rows"):
        BlockDrafter.open(made, contract, 400)
    other = Bundle.open(plain_bundle(tmp_path / "other", vocab_size=310)).contract
    with pytest.raises(BundleContractError, match="expected the contract of the model that it drafts for"):
        BlockDrafter.open(made, other, 320)
    found = find_bundles(contract.identity[:2], environment={"EDGE_BUNDLES": str(tmp_path)}, shipped=model)
    assert found == [model], "a drafter, though first by name, answers no payload"


@pytest.mark.parametrize("form", [{"block": 1, "mask": 3}, {"block": 8}, {"block": 8, "mask": -1}])
def test_an_impossible_form_is_refused(
    form: dict[str, int], plain_bundle: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(BundleSchemaError, match="drafter"):
        Bundle.open(as_drafter(plain_bundle(tmp_path / "drafter"), form))


def test_a_drafter_beside_options_that_exclude_it(plain_bundle: Callable[..., Path], tmp_path: Path) -> None:
    model = plain_bundle(tmp_path / "model")
    for settings, mode in (({}, "off"), ({"deterministic": True}, "auto")):
        edge = EdgeRuntime.open(model, **settings)
        with pytest.raises(UsageError, match="drafter: expected none beside"):
            edge.options(speculate=mode, drafter=drafter())
