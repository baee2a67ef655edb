"""The end of an answer: the paper's end marker (section 3.3), and from where end tokens count.

Responsible for the rule only. Not responsible for making tokens (see `forced`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from edge_runtime.errors import ContextError
from payload import AnchorSet

END_MARKER_COVERAGE = 0.4
"""Above this share of anchored positions the last anchor ends the answer (section 3.3)."""


class Stop(StrEnum):
    """The reason why an answer ended."""

    LENGTH = "length"
    """The payload states the length."""
    LAST_ANCHOR = "last anchor"
    """Coverage is above `END_MARKER_COVERAGE` and the last anchor has been emitted."""
    EOS = "end token"
    """The model ended the answer after the last anchor."""
    GRAMMAR = "grammar"
    """The answer is a sentence of its grammar, which allows nothing more."""
    LIMIT = "limit"
    """The maximum of tokens, the canvas or the context is used up."""


class Ending(NamedTuple):
    """The answer ends before position `end`, because of `stop`. End tokens count from `eos_from` on."""

    end: int
    stop: Stop
    eos_from: int


def ending(anchors: AnchorSet, room: int, max_tokens: int | None = None) -> Ending:
    """The stop rule for an answer of which at most `room` tokens fit the context.

    End tokens are suppressed while anything the cloud has committed remains: an anchor, or the known length.
    Raises ContextError where the anchors do not fit.
    """
    committed = anchors.positions[-1] + 1 if anchors.positions else 0
    eos_from = committed if anchors.length is None else anchors.length
    limit = anchors.canvas if max_tokens is None else max_tokens
    if min(eos_from, limit) > room:
        raise ContextError(
            f"expected an answer of at most {room} tokens after this prompt, "
            f"found one of {min(eos_from, limit)} in the payload. Raise --context or shorten the prompt."
        )
    if anchors.length is not None:
        end, stop = anchors.length, Stop.LENGTH
    elif anchors.coverage > END_MARKER_COVERAGE:
        end, stop = committed, Stop.LAST_ANCHOR
    else:
        end, stop = anchors.canvas, Stop.LIMIT
    if end > min(limit, room):
        end, stop = min(limit, room), Stop.LIMIT
    return Ending(end, stop, eos_from)
