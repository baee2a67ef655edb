"""Literals: what a grammar forces on a canvas, so that the diffusion model sees it before its first pass.

Responsible for the tokens that are certain whatever the model writes: the forced beginning of the answer, and
each further forced run once all before it is committed. Not responsible for what else the grammar allows: the
device holds the answer to that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from edge_runtime.grammar.matcher import CompiledGrammar, Matcher


class Literals:
    """The place up to which one canvas is committed without a gap, in the grammar of its answer.

    Where the model has committed a token that the grammar forbids, nothing more is certain: the device places
    such tokens anew (see `edge_runtime.grammar.alignment`).
    """

    def __init__(self, grammar: CompiledGrammar) -> None:
        self._matcher: Matcher | None = grammar.matcher()
        self._forced: deque[int] = deque()
        self._at = 0

    def copy(self) -> Literals:
        """The same place of a canvas that goes its own way from here."""
        other = Literals.__new__(Literals)
        other._matcher = self._matcher and self._matcher.copy()
        other._forced, other._at = self._forced.copy(), self._at
        return other

    def pins(self, canvas: Sequence[int], mask_id: int) -> dict[int, int]:
        """Forced tokens by their position, of those that are masked. canvas: its ids, permanent ones as they
        were in the calls before.
        """
        found: dict[int, int] = {}
        while self._matcher is not None and self._at < len(canvas):
            self._forced.extend(() if self._forced else self._matcher.forced())
            id_ = canvas[self._at]
            if id_ == mask_id:
                if not self._forced:
                    break
                id_ = found[self._at] = self._forced[0]
            if self._forced and self._forced[0] == id_:
                self._forced.popleft()
            else:
                self._forced.clear()
            if not (self._matcher.allows(id_) and self._matcher.take(id_)):
                self._matcher = None
            self._at += 1
        return found
