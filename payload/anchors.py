"""AnchorSet: the tokens a diffusion model has committed, and where.

Knows positions, ids and what they were taken from. Does not know bytes (see `wire`) or models.
"""

from __future__ import annotations

from dataclasses import dataclass

from payload.contract import Contract
from payload.errors import AnchorRangeError

MAX_CANVAS = 65_536
"""No response is longer than this: a bound that keeps a hostile payload from asking for memory."""

MAX_SESSION = 32
"""Bytes of a session's name."""

MAX_STEPS = 1 << 20
"""More denoising steps than any schedule has."""


@dataclass(frozen=True)
class AnchorSet:
    """Anchors of one response (paper section 3.1).

    positions:  0-based inside the response, strictly ascending, each < canvas.
    ids:        token ids, one a position, each in [0, contract.vocab_size): never special ids.
    canvas:     number of response positions the diffusion model worked on.
    length:     number of response tokens before the first end marker, where known.
    step, total_steps: denoising steps run and planned (0 of 0 where unknown).
    contract:   the identity these ids belong to.
    prompt:     the user's prompt as text, where the payload carries it.
    session:    an opaque name of up to MAX_SESSION bytes that ties payloads of one conversation together.
    confidence: how sure the diffusion model was, 0 (least) to 3 (most), one an anchor; empty where not told.
    """

    positions: tuple[int, ...]
    ids: tuple[int, ...]
    canvas: int
    contract: Contract
    length: int | None = None
    step: int = 0
    total_steps: int = 0
    prompt: str | None = None
    session: bytes | None = None
    confidence: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.positions) != len(self.ids):
            raise AnchorRangeError(
                f"expected one token id a position, "
                f"found {len(self.positions)} positions and {len(self.ids)} ids"
            )
        if not 0 < self.canvas <= MAX_CANVAS:
            raise AnchorRangeError(f"canvas: expected 1 to {MAX_CANVAS} positions, found {self.canvas}")
        end = self.canvas if self.length is None else self.length
        if not 0 <= end <= self.canvas:
            raise AnchorRangeError(
                f"length: expected at most the canvas of {self.canvas} positions, found {end}"
            )
        previous = -1
        for position, token in zip(self.positions, self.ids, strict=True):
            if position <= previous:
                raise AnchorRangeError(
                    f"anchor positions must ascend: expected more than {previous}, found {position}"
                )
            if position >= end:
                raise AnchorRangeError(
                    f"anchor position {position} is outside the response: expected less than {end}"
                )
            if not 0 <= token < self.contract.vocab_size:
                raise AnchorRangeError(
                    f"token id {token} at position {position} is outside the vocabulary: "
                    f"expected 0 to {self.contract.vocab_size - 1}"
                )
            previous = position
        if self.step < 0 or self.total_steps < 0 or max(self.step, self.total_steps) > MAX_STEPS:
            raise AnchorRangeError(
                f"steps: expected 0 to {MAX_STEPS}, found step {self.step} of {self.total_steps}"
            )
        if self.session is not None and not 0 < len(self.session) <= MAX_SESSION:
            raise AnchorRangeError(
                f"session: expected 1 to {MAX_SESSION} bytes, found {len(self.session)}; None is no session"
            )
        if self.confidence and len(self.confidence) != len(self.ids):
            raise AnchorRangeError(
                f"expected one confidence an anchor, found {len(self.confidence)} for {len(self.ids)} anchors"
            )
        if not all(0 <= level <= 3 for level in self.confidence):
            raise AnchorRangeError(
                f"confidence: expected levels 0 to 3, found {sorted(set(self.confidence))}"
            )

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def coverage(self) -> float:
        """Share of the response that is anchored: of its length where known, else of the whole canvas.

        Not of what lies before the last anchor: a leading run would then count as full coverage, whatever is
        still to come behind it.
        """
        return len(self.positions) / (self.canvas if self.length is None else max(self.length, 1))
