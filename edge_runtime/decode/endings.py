"""When an answer ends: the paper's end marker (section 3.3), and what holds end tokens back.

Knows the rule only. Does not know how tokens are made.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from edge_runtime.errors import ContextError
from payload import AnchorSet

END_MARKER_COVERAGE = 0.4
"""Above this share of anchored positions the last anchor is taken for the answer's end (section 3.3)."""


class Stop(StrEnum):
    """Why an answer ended."""

    LENGTH = "length"
    """The payload states the length."""
    LAST_ANCHOR = "last anchor"
    """Coverage is above `END_MARKER_COVERAGE` and the last anchor has been emitted."""
    EOS = "end token"
    """The model ended the answer after the last anchor."""
    LIMIT = "limit"
    """The most tokens asked for, or the canvas, or the context, are used up."""


class Ending(NamedTuple):
    """Where an answer ends: before position `end`, because of `stop`. No end token counts before `hold`."""

    end: int
    stop: Stop
    hold: int


def ending(anchors: AnchorSet, room: int, max_tokens: int | None = None) -> Ending:
    """The stop rule for an answer of which at most `room` tokens fit the context.

    End tokens are held back while anything the cloud has committed remains: an anchor, or the known length.
    Raises ContextError where the anchors do not fit.
    """
    committed = anchors.positions[-1] + 1 if anchors.positions else 0
    hold = committed if anchors.length is None else anchors.length
    limit = anchors.canvas if max_tokens is None else max_tokens
    if min(hold, limit) > room:
        raise ContextError(
            f"expected an answer of at most {room} tokens after this prompt, "
            f"found one of {min(hold, limit)} in the payload. Raise --context or shorten the prompt."
        )
    if anchors.length is not None:
        end, stop = anchors.length, Stop.LENGTH
    elif anchors.coverage > END_MARKER_COVERAGE:
        end, stop = committed, Stop.LAST_ANCHOR
    else:
        end, stop = anchors.canvas, Stop.LIMIT
    return Ending(end, stop, hold) if end <= min(limit, room) else Ending(min(limit, room), Stop.LIMIT, hold)
