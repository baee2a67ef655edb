"""What a device takes back that writes out early payloads of an answer, one after the other.

Responsible for the payloads' arrival, each when the one before it is written out, which is the worst for the
reader, and for counting. Not responsible for what is retracted (see `edge_runtime.decode.refine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from edge_runtime.decode.forced import FillOptions
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.engine.base import Engine
from payload import AnchorSet


class TakenBack(NamedTuple):
    """Tokens retracted; those of them in whose place another token came, or none; and the text at the end."""

    retracted: int
    changed: int
    text: list[int]


def taken_back(
    engine: Engine, prompt_ids: Sequence[int], payloads: Sequence[AnchorSet], max_tokens: int
) -> TakenBack:
    """Writes out each payload in turn, of one contract, at most `max_tokens` tokens."""
    options = FillOptions(score_anchors=False, max_tokens=max_tokens)
    old: list[int] = []  # the text before the last Retract
    text: list[int] = []
    retracted = changed = 0
    for each in fill_refined(engine, prompt_ids, _InTurn(payloads), payloads[0].contract, options):
        if isinstance(each, Retract):
            changed += _differing(old, text)
            old, text = text, text[: each.position]
            retracted += len(old) - len(text)
        elif each.position >= 0:
            text.append(each.id)
    return TakenBack(retracted, changed + _differing(old, text), text)


class _InTurn(AnchorFeed):
    """Payloads of which each comes when the text waits for it."""

    def __init__(self, payloads: Sequence[AnchorSet]) -> None:
        super().__init__()
        self._coming = iter(payloads)
        self.put(next(self._coming))

    def newer(self, version: int, timeout: float | None = None) -> tuple[int, AnchorSet] | None:
        if self.version == version:
            following = next(self._coming, None)
            if following is None:
                self.close()
            else:
                self.put(following)
        return super().newer(version, timeout)


def _differing(before: Sequence[int], after: Sequence[int]) -> int:
    """In how many places of a text the other has another token, or none."""
    return sum(token != now for token, now in zip_longest(before, after[: len(before)]))
