"""What goes into decoding and what comes out: options, tokens, and what an answer has cost.

Not responsible for decoding (see `forced`) or for the object that a caller reads (see `answer`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from edge_runtime.decode.endings import Stop
from edge_runtime.decode.sampling import Sampling
from edge_runtime.engine.base import MAX_CHUNK, MAX_ROWS
from edge_runtime.grammar.matcher import CompiledGrammar


class Source(StrEnum):
    """The origin of a token."""

    ANCHOR = "anchor"
    FILL = "fill"
    GRAMMAR = "grammar"
    """Forced by the grammar, or written to end the answer as a sentence of it."""


class Token(NamedTuple):
    """One token of the stream.

    position: 0-based in the answer.
    logprob:  natural logarithm of P(token | everything before it) under the edge model; None where not
    scored.
    """

    id: int
    position: int
    source: Source
    logprob: float | None


@dataclass(frozen=True)
class FillOptions:
    """Decoding options. Only `sampling` and `grammar` change tokens, and `max_tokens` the end.

    max_tokens:    most tokens of the answer; None is the payload's canvas.
    score_anchors: report log P of each anchor, at the cost of the output head on its row.
    max_chunk, max_rows: most tokens and most rows of logits of one pass; they bound its memory.
    sampling:      None decodes greedily. Else tokens in gaps and behind the last anchor are drawn.
    grammar:       None, or what the answer is a sentence of (see `constrained`), whatever the anchors are.
    """

    max_tokens: int | None = None
    score_anchors: bool = True
    max_chunk: int = MAX_CHUNK
    max_rows: int = MAX_ROWS
    sampling: Sampling | None = None
    grammar: CompiledGrammar | None = None


@dataclass
class FillStats:
    """Cost of an answer, updated while it is decoded.

    passes:   calls of the model. computed: tokens that went through it.
    reused:   prompt tokens found in its cache.
    realigned, dropped, forced: with a grammar, anchors written behind their own place, anchors not written,
              and tokens written without the model; else None.
    prefill:  seconds to the end of the first pass. fill: seconds from there, the reader's own time included.
    stop:     the reason of the end; None before it.
    """

    passes: int = 0
    computed: int = 0
    reused: int = 0
    realigned: int | None = None
    dropped: int | None = None
    forced: int | None = None
    prefill: float = 0.0
    fill: float = 0.0
    stop: Stop | None = None
