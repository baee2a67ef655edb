"""AnchorSet: the tokens a diffusion model has committed, and where.

Knows positions, ids and what they were taken from. Does not know bytes (see `wire`) or models.
"""

from __future__ import annotations

from dataclasses import dataclass

from payload.contract import Contract
from payload.errors import AnchorRangeError

MAX_CANVAS = 65_536
"""No response is longer than this: a bound that keeps a hostile payload from asking for memory."""


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
    """

    positions: tuple[int, ...]
    ids: tuple[int, ...]
    canvas: int
    contract: Contract
    length: int | None = None
    step: int = 0
    total_steps: int = 0
    prompt: str | None = None

    def __post_init__(self) -> None:
        if len(self.positions) != len(self.ids):
            raise AnchorRangeError(
                f"expected one token id a position, found {len(self.positions)} positions and {len(self.ids)} ids"
            )
        if not 0 < self.canvas <= MAX_CANVAS:
            raise AnchorRangeError(f"canvas: expected 1 to {MAX_CANVAS} positions, found {self.canvas}")
        end = self.canvas if self.length is None else self.length
        if not 0 <= end <= self.canvas:
            raise AnchorRangeError(f"length: expected at most the canvas of {self.canvas} positions, found {end}")
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

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def coverage(self) -> float:
        """Share of the response that is anchored: of its length where known, else up to the last anchor."""
        end = self.length if self.length is not None else (self.positions[-1] + 1 if self.positions else 0)
        return len(self.positions) / end if end else 0.0
