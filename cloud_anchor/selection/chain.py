"""A chain of payloads: an edge-aware selection in payloads of bounded size, the largest gains first.

Responsible for which anchors each payload adds. Not responsible for the bytes of a payload (a function is
given) or for the selection itself (see `edge_aware`).

The first payload is useful by itself: it is the one that a budget of these bytes alone would get
(`edge_aware.within_bytes`), or where a token of that is none of the whole text, the largest gains that fit.
Each further one adds the largest gains left. With the last one the device has the whole selection.
"""

from __future__ import annotations

from collections.abc import Callable

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
    whole, text = edge_aware(run, walk, contract), walk.text

    def adds_to(before: AnchorSet) -> bool:
        """True where a payload of the walk's anchors can add to one of the anchors `before`."""
        return (
            before.canvas == whole.canvas
            and before.length in (None, whole.length)
            and all(p < len(text) and text[p] == token for p, token in before.by_position.items())
        )

    def largest_gains(base: Base | None) -> AnchorSet:
        """The base's anchors and as many of the walk's largest gains as fit beside them."""
        known = base.anchors.by_position if base else {}
        others = [p for p in by_gain(walk) if p not in known and contract.is_ordinary(text[p])]

        def with_first(count: int) -> AnchorSet:
            return run.anchors({**known, **{p: text[p] for p in others[:count]}}, contract, len(text))

        def fits(count: int) -> bool:
            return len(written(with_first(count), base)) <= max_bytes

        all_fit = others and fits(len(others))
        return with_first(len(others) if all_fit else largest_count(len(others), fits))

    found: list[tuple[Base, bool]] = []
    if base is None or not adds_to(base.anchors):

        def size(anchors: AnchorSet) -> int:
            return len(written(anchors, None))

        chosen = within_bytes(scorer, run, walk, contract, config, max_bytes, size)
        first = edge_aware(run, chosen, contract)
        if not adds_to(first):
            # Its tokens follow from a text with fewer anchors; others bind in the whole one.
            first = largest_gains(None)
        base = Base(written(first, None), first)
        found.append((base, False))
    while len(found) < payloads and len(anchors := largest_gains(base)) > len(base.anchors):
        base = Base(written(anchors, base), anchors)
        found.append((base, True))
    # Where the base has everything already, a payload that adds nothing says so.
    return found or [(Base(written(base.anchors, base), base.anchors), True)]
