"""AnchorSet: tokens of one response that the diffusion model has committed, and their positions.

Responsible for positions, ids and the bounds that they keep. Not responsible for bytes (see `wire`), for what
travels beside the anchors (see `extras`) or for models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from payload.contract import Contract
from payload.errors import AnchorRangeError

MAX_CANVAS = 65_536
"""Most positions of a response: bounds the memory that a hostile payload can make a reader allocate."""


@dataclass(frozen=True)
class AnchorSet:
    """Anchors of one response (paper section 3.1).

    positions:  0-based inside the response, strictly ascending, each < canvas.
    ids:        token ids, one per position, each in [0, contract.vocab_size) and no special id.
    canvas:     number of response positions the diffusion model worked on, 1 to MAX_CANVAS.
    contract:   the identity these ids belong to.
    length:     number of response tokens before the first end marker, where known.

    Raises AnchorRangeError where one of these does not hold.
    """

    positions: tuple[int, ...]
    ids: tuple[int, ...]
    canvas: int
    contract: Contract
    length: int | None = None

    def __post_init__(self) -> None:
        if len(self.positions) != len(self.ids):
            raise AnchorRangeError(
                f"expected one token id per position, "
                f"found {len(self.positions)} positions and {len(self.ids)} ids"
            )
        if not 0 < self.canvas <= MAX_CANVAS:
            raise AnchorRangeError(f"canvas: expected 1 to {MAX_CANVAS} positions, found {self.canvas}")
        end = self.canvas if self.length is None else self.length
        if not 0 <= end <= self.canvas:
            raise AnchorRangeError(
                f"length: expected at most the canvas of {self.canvas} positions, found {end}"
            )
        previous, reserved = -1, self.contract.reserved
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
            if token in reserved:
                raise AnchorRangeError(
                    f"token id {token} at position {position} is a special token: expected an ordinary one"
                )
            previous = position

    @classmethod
    def of(
        cls, tokens: Mapping[int, int], canvas: int, contract: Contract, length: int | None = None
    ) -> AnchorSet:
        """The AnchorSet of token ids by position, in any order."""
        positions = tuple(sorted(tokens))
        return cls(positions, tuple(tokens[position] for position in positions), canvas, contract, length)

    @classmethod
    def empty(cls, canvas: int, contract: Contract, length: int | None = None) -> AnchorSet:
        """An AnchorSet without anchors: the edge model answers alone."""
        return cls((), (), canvas, contract, length)

    def __len__(self) -> int:
        return len(self.positions)

    @cached_property
    def by_position(self) -> Mapping[int, int]:
        """Token ids by position, in ascending order of position."""
        return dict(zip(self.positions, self.ids, strict=True))

    @property
    def coverage(self) -> float:
        """Share of the response that is anchored: of its length where known, else of the whole canvas.

        It does not end at the last anchor: a leading run would then count as full coverage, whatever follows
        it.
        """
        return len(self.positions) / (self.canvas if self.length is None else max(self.length, 1))
