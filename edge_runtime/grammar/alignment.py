"""AnchorQueue: the anchors of an answer whose text has a grammar, each at its place or at the next that fits.

Responsible for the order of anchors, for how far they move, and for the counts. Not responsible for what the
grammar allows (see `matcher`).

A text with a grammar may be longer than the one that the cloud's canvas has: a key that it did not write, a
space that it did. So an anchor that is not allowed at its position waits for the next place where it is, for
at most `WINDOW` tokens; all behind it move by as much. Anchors of consecutive positions are parts of one text
and stay together: while one waits, those of its run wait behind it. Another run that is due and allowed ends
the waiting of the one before it. What cannot be placed is dropped, and the order of the text is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from payload import AnchorSet

WINDOW = 16
"""Most tokens that an anchor waits beyond its place."""


class AnchorQueue:
    """The anchors that have not been written yet.

    realigned: anchors written at another position than their own. dropped: anchors not written.
    shift: by how many positions the text has moved from the canvas, 0 or more.
    """

    def __init__(self, anchors: AnchorSet, window: int = WINDOW) -> None:
        self.realigned = self.dropped = self.shift = 0
        self._window = window
        self._runs: deque[deque[tuple[int, int]]] = deque()
        for position, id_ in anchors.by_position.items():
            if not self._runs or self._runs[-1][-1][0] != position - 1:
                self._runs.append(deque())
            self._runs[-1].append((position, id_))

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __bool__(self) -> bool:
        return bool(self._runs)

    def due(self) -> int | None:
        """The place of the next anchor, which may have passed; None behind the last."""
        return self._runs[0][0][0] + self.shift if self._runs else None

    def next(self, at: int, allowed: Callable[[int], bool]) -> int | None:
        """The id of the anchor to be written at position `at`, where there is one.

        allowed: whether the grammar allows an id there. Drops what has waited too long or is overtaken.
        """
        while (due := self.due()) is not None and due <= at:
            if allowed(self._runs[0][0][1]):
                return self._runs[0][0][1]
            if len(self._runs) > 1:
                position, id_ = self._runs[1][0]
                if position + self.shift <= at and allowed(id_):
                    self.dropped += len(self._runs.popleft())
                    return id_
            if at - due < self._window:
                return None
            self._pop()
            self.dropped += 1
        return None

    def took(self, at: int) -> None:
        """The anchor that `next` gave stands at position `at`."""
        position = self._pop()
        self.realigned += at != position
        self.shift = at - position

    def end(self) -> None:
        """The answer has ended: what is left is dropped."""
        self.dropped += len(self)
        self._runs.clear()

    def _pop(self) -> int:
        position, _ = self._runs[0].popleft()
        if not self._runs[0]:
            self._runs.popleft()
        return position
