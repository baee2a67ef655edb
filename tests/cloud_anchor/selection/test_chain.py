"""Chains of payloads: each fits its budget and adds to the one before; the last gives the whole selection."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.chain import chain_within_bytes
from cloud_anchor.selection.edge_aware import (
    EdgeAwareConfig,
    by_gain,
    edge_aware,
    largest_count,
    verify_draft,
    within_bytes,
)
from cloud_anchor.selection.scorer import Scorer
from payload import AnchorSet, Base, Shared, decode, encode
from tests.cloud_anchor.selection.test_edge_aware import (
    CONTRACT,
    EOS,
    HashEngine,
    draft,
    drafts,
    filled,
)

PROMPT = [1, 2, 3]
CONFIG = EdgeAwareConfig()
RUN = draft([p * p * 7 % 101 % 12 for p in range(40)], [0.95, 0.6, 0.35, 0.8] * 10)
SCORER = Scorer(HashEngine(), EOS)
WALK = verify_draft(SCORER, RUN, CONTRACT, CONFIG)
WHOLE = edge_aware(RUN, WALK, CONTRACT)


def written(anchors: AnchorSet, base: Base | None) -> bytes:
    return encode(anchors, Shared(CONTRACT, PROMPT, base=base))


def read(chain: list[tuple[Base, bool]], before: Base | None = None) -> list[AnchorSet]:
    """The anchors after each payload, as a device reads them."""
    found = []
    for (data, _), delta in chain:
        anchors = decode(data, Shared(CONTRACT, PROMPT, base=before if delta else None))
        before = Base(data, anchors)
        found.append(anchors)
    return found


def chain(budget: int, before: Base | None = None, payloads: int = 64) -> list[tuple[Base, bool]]:
    return chain_within_bytes(SCORER, RUN, WALK, CONTRACT, CONFIG, budget, written, before, payloads=payloads)


@settings(max_examples=12, deadline=None)
@given(drafts(), st.sampled_from([0.0, 0.5]), st.integers(12, 24))
def test_a_chain_gives_the_whole_selection_in_payloads_of_the_budget(
    run: Denoised, threshold: float, budget: int
) -> None:
    scorer, config = Scorer(HashEngine(), EOS), EdgeAwareConfig(threshold)
    walk = verify_draft(scorer, run, CONTRACT, config)
    try:
        found = chain_within_bytes(scorer, run, walk, CONTRACT, config, budget, written, payloads=64)
    except RequestError:
        # Where the hash engine prefers special tokens, others have to be sent in any case.
        reject()
    assert all(len(base.data) <= budget for base, _ in found)
    assert [delta for _, delta in found] == [False] + [True] * (len(found) - 1)
    sets = read(found)
    for before, after in pairwise(sets):
        assert before.by_position.items() < after.by_position.items()
    assert edge_aware(run, walk, CONTRACT).by_position.items() <= sets[-1].by_position.items()
    assert filled(sets[-1], run.prompt_ids) == walk.text


def test_the_first_payload_is_the_one_of_the_budget_alone_where_its_tokens_stay() -> None:
    same = []
    for budget in range(12, 28, 2):
        ((_, first), _), *_ = chain(budget)
        chosen = within_bytes(SCORER, RUN, WALK, CONTRACT, CONFIG, budget, lambda a: len(written(a, None)))
        alone = edge_aware(RUN, chosen, CONTRACT)
        stays = all(WALK.text[p] == token for p, token in alone.by_position.items())
        assert (first == alone) == stays
        same.append(stays)
    assert {True, False} == set(same)


def test_the_largest_gains_come_first() -> None:
    sets = read(chain(12))
    assert len(sets) > 3
    left = [p for p in by_gain(WALK) if p not in sets[0].positions]
    for before, after in pairwise(sets):
        new = set(after.positions) - set(before.positions)
        assert new == set(left[: len(new)])
        left = left[len(new) :]
    assert not left


def test_what_fits_is_one_payload() -> None:
    only = chain(1000)
    assert only == [(Base(written(WHOLE, None), WHOLE), False)]
    # A second chain on top of the same selection has nothing to add.
    again = chain(1000, only[0][0])
    assert read(again, only[0][0]) == [WHOLE]


def test_a_chain_goes_on_from_a_payload_of_fewer_anchors_and_not_from_a_contradicted_one() -> None:
    first = by_gain(WALK)[0]
    before = AnchorSet.of({first: WALK.text[first]}, RUN.canvas, CONTRACT, len(WALK.text))
    base = Base(written(before, None), before)
    (added,) = chain(1000, base)
    assert added[1]
    assert read([added], base)[0] == WHOLE
    other = AnchorSet.of({first: (WALK.text[first] + 1) % 12}, RUN.canvas, CONTRACT, len(WALK.text))
    base = Base(written(other, None), other)
    (whole,) = chain(1000, base)
    assert not whole[1]
    assert read([whole])[0] == WHOLE


def test_a_chain_has_no_more_payloads_than_allowed_and_no_impossible_budget() -> None:
    assert len(chain(12, payloads=2)) == 2
    with pytest.raises(RequestError):
        chain(3)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 90))
def test_the_largest_count_fits_and_one_more_does_not(steps: list[int], budget: int) -> None:
    sizes = [sum(steps[:count]) for count in range(len(steps) + 1)]
    found = largest_count(len(steps), lambda count: sizes[count] <= budget)
    assert not found or sizes[found] <= budget
    assert found == len(steps) or sizes[found + 1] > budget
