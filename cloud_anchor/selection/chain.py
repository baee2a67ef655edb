"""A chain of payloads: an edge-aware selection in payloads of so many bytes each, the largest gains first.

Responsible for which anchors each payload adds. Not responsible for the bytes of a payload (a function is
given) or for the selection itself (see `edge_aware`).

The first payload is useful by itself: it is the one that a budget of these bytes alone would get
(`edge_aware.within_bytes`), or where a token of that is none of the whole text, the largest gains that fit.
Each further one adds the largest gains left. With the last one the device has the whole selection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import (
    EdgeAwareConfig,
    EdgeWalk,
    by_gain,
    edge_aware,
    largest_count,
    within_bytes,
)
from cloud_anchor.selection.scorer import Scorer
from payload import AnchorSet, Base, Contract

PayloadWriter = Callable[[AnchorSet, Base | None], bytes]
"""The bytes of a payload of these anchors that adds to a base, or with None stands alone."""


def chain_within_bytes(
    scorer: Scorer,
    run: Denoised,
    walk: EdgeWalk,
    contract: Contract,
    config: EdgeAwareConfig,
    max_bytes: int,
    written: PayloadWriter,
    base: Base | None = None,
    payloads: int = 16,
) -> list[tuple[Base, bool]]:
    """The payloads of a walk's anchors, each of at most `max_bytes`, and whether it adds to the one before.

    base:     the payload before the first of these, if there is one; where its anchors are not all of this
              walk's text, the first does not add to it.
    payloads: most of them. The chain also ends where not even one more anchor fits into a payload.

    A payload of one anchor is larger than some budgets, so a chain may end short of the selection. There is
    always at least one payload. Raises RequestError where a payload without anchors is larger than max_bytes.
    """
    whole = edge_aware(run, walk, contract)
    if base is not None and not _adds_to(base.anchors, whole, walk):
        base = None
    found: list[tuple[Base, bool]] = []
    if base is None:
        base = _first(scorer, run, walk, contract, config, max_bytes, written)
        found.append((base, False))
    rest = _rest(run, walk, contract, max_bytes, written, base)
    found += [(each, True) for each in islice(rest, payloads - len(found))]
    # Where the base has everything already, a payload that adds nothing says so.
    return found or [(Base(written(base.anchors, base), base.anchors), True)]


def _first(
    scorer: Scorer,
    run: Denoised,
    walk: EdgeWalk,
    contract: Contract,
    config: EdgeAwareConfig,
    max_bytes: int,
    written: PayloadWriter,
) -> Base:
    """The payload that stands alone."""
    whole = edge_aware(run, walk, contract)
    chosen = within_bytes(scorer, run, walk, contract, config, max_bytes, lambda a: len(written(a, None)))
    anchors = edge_aware(run, chosen, contract)
    if not _adds_to(anchors, whole, walk):
        # Its tokens follow from a text with fewer anchors, and others bind in the whole one: a guided run.
        anchors = _largest_gains({}, run, walk, contract, lambda a: len(written(a, None)) <= max_bytes)
    return Base(written(anchors, None), anchors)


def _rest(
    run: Denoised,
    walk: EdgeWalk,
    contract: Contract,
    max_bytes: int,
    written: PayloadWriter,
    base: Base,
) -> Iterator[Base]:
    """The payloads that add the walk's other anchors to a base."""
    while True:
        known = base.anchors.by_position
        before = base

        def fits(anchors: AnchorSet, before: Base = before) -> bool:
            return len(written(anchors, before)) <= max_bytes

        anchors = _largest_gains(known, run, walk, contract, fits)
        if len(anchors) == len(known):
            return
        base = Base(written(anchors, before), anchors)
        yield base


def _largest_gains(
    known: Mapping[int, int],
    run: Denoised,
    walk: EdgeWalk,
    contract: Contract,
    fits: Callable[[AnchorSet], bool],
) -> AnchorSet:
    """The known tokens and as many of the walk's largest gains as fit beside them."""
    others = [p for p in by_gain(walk) if p not in known and contract.is_ordinary(walk.text[p])]

    def with_first(count: int) -> AnchorSet:
        return run.anchors({**known, **{p: walk.text[p] for p in others[:count]}}, contract, len(walk.text))

    if others and fits(with_first(len(others))):
        return with_first(len(others))
    return with_first(largest_count(len(others), lambda count: fits(with_first(count))))


def _adds_to(before: AnchorSet, whole: AnchorSet, walk: EdgeWalk) -> bool:
    """True where a payload of the walk's anchors can add to one of the anchors `before`."""
    return (
        before.canvas == whole.canvas
        and before.length in (None, whole.length)
        and all(p < len(walk.text) and walk.text[p] == token for p, token in before.by_position.items())
    )
