"""A chain of payloads: an edge-aware selection in payloads of so many bytes each, the largest gains first.

Responsible for which anchors each payload adds. Not responsible for the bytes of a payload (a function is
given) or for the selection itself (see `edge_aware`).

The first payload is useful by itself: it is the one that a budget of these bytes alone would get
(`edge_aware.within_bytes`), or where a token of that is none of the whole text, the largest gains that fit.
Each further one adds the largest gains left. With the last one the device has the whole selection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    chain = _Chain(run, walk, contract, max_bytes, written)
    if base is not None and not chain.adds_to(base.anchors):
        base = None
    found: list[tuple[Base, bool]] = []
    if base is None:
        chosen = within_bytes(scorer, run, walk, contract, config, max_bytes, chain.size)
        base = chain.first(edge_aware(run, chosen, contract))
        found.append((base, False))
    found += [(each, True) for each in islice(chain.rest(base), payloads - len(found))]
    # Where the base has everything already, a payload that adds nothing says so.
    return found or [(Base(written(base.anchors, base), base.anchors), True)]


@dataclass(frozen=True)
class _Chain:
    """Payloads of a walk's anchors; the arguments of `chain_within_bytes`."""

    run: Denoised
    walk: EdgeWalk
    contract: Contract
    max_bytes: int
    written: PayloadWriter

    def size(self, anchors: AnchorSet, base: Base | None = None) -> int:
        return len(self.written(anchors, base))

    def first(self, within: AnchorSet) -> Base:
        """The payload that stands alone; within: the anchors that fit its bytes by themselves."""
        if not self.adds_to(within):
            # Its tokens follow from a text with fewer anchors; others bind in the whole one: a guided run.
            within = self._largest_gains(None)
        return Base(self.written(within, None), within)

    def rest(self, base: Base) -> Iterator[Base]:
        """The payloads that add the walk's other anchors to a base."""
        while len(anchors := self._largest_gains(base)) > len(base.anchors):
            base = Base(self.written(anchors, base), anchors)
            yield base

    def _largest_gains(self, base: Base | None) -> AnchorSet:
        """The base's anchors and as many of the walk's largest gains as fit beside them."""
        known = base.anchors.by_position if base else {}
        text, ordinary = self.walk.text, self.contract.is_ordinary
        others = [p for p in by_gain(self.walk) if p not in known and ordinary(text[p])]

        def with_first(count: int) -> AnchorSet:
            added = {p: text[p] for p in others[:count]}
            return self.run.anchors({**known, **added}, self.contract, len(text))

        def fits(count: int) -> bool:
            return self.size(with_first(count), base) <= self.max_bytes

        if others and fits(len(others)):
            return with_first(len(others))
        return with_first(largest_count(len(others), fits))

    def adds_to(self, before: AnchorSet) -> bool:
        """True where a payload of the walk's anchors can add to one of the anchors `before`."""
        whole, text = edge_aware(self.run, self.walk, self.contract), self.walk.text
        return (
            before.canvas == whole.canvas
            and before.length in (None, whole.length)
            and all(p < len(text) and text[p] == token for p, token in before.by_position.items())
        )
