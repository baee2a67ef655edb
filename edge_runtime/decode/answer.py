"""An answer being decoded: its tokens by iteration, its statistics beside them.

Responsible for the object that every way of answering returns. Not responsible for making tokens (see
`forced`, `refine`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from edge_runtime.budget import Spent
from edge_runtime.decode.forced import FillStats
from payload import AnchorSet

T_co = TypeVar("T_co", covariant=True)


@dataclass
class ServiceReport:
    """The part of an anchor service in an answer; filled in as payloads arrive.

    payload_bytes: sizes of the payloads received and decoded.
    fell_back:     the reason why payloads of codec compact were asked for in place of predictive ones, or
                   ones for no schema; None where that was not necessary.
    failure:       the reason why there is none, or not all of them; None where all arrived.
    spent:         what it has cost: requests, bytes of questions and payloads, money.
    crossed:       over a link, its frames, airtime and money in words; else None.
    left_out:      messages of the conversation for which the request had no room, the oldest.
    remembered:    whether the anchors are those of an earlier request, and nothing was asked.
    doubt_before:  the device's doubt at which it asked; None where it did not ask for that.
    settled:       whether nothing that comes later can change the text.
    doubt:         how unsure the diffusion model was of the latest payload's anchors; see `Answer.doubt`.
    """

    payload_bytes: list[int] = field(default_factory=list)
    fell_back: str | None = None
    failure: str | None = None
    doubt: float | None = None
    spent: Spent = field(default_factory=Spent)
    remembered: bool = False
    settled: bool = False
    doubt_before: float | None = None
    crossed: str | None = None
    left_out: int = 0


class Answer(Iterator[T_co]):
    """The tokens of one answer, in order: iterate over it once. It may be closed at any time.

    prompt_ids: ids of the prompt that is answered.
    stats:      cost so far, complete after the last token.
    revisable:  True where the stream may also take tokens back (`refine.Retract`).
    service:    the part of the service that sends the anchors; None for a payload at hand.
    """

    def __init__(
        self,
        items: Generator[T_co],
        prompt_ids: Sequence[int],
        anchors: Callable[[], AnchorSet],
        stats: FillStats,
        *,
        revisable: bool = False,
        service: ServiceReport | None = None,
        doubt: float | None = None,
    ) -> None:
        self.prompt_ids = prompt_ids
        self.stats = stats
        self.revisable = revisable
        self.service = service
        self._items = items
        self._anchors = anchors
        self._doubt = doubt

    @property
    def anchors(self) -> AnchorSet:
        """The anchors of the answer: the latest so far where a service sends them, or none.

        Of a predictive payload that is decoded while it is filled they are known after the last token; before
        that, raises PayloadError.
        """
        return self._anchors()

    @property
    def doubt(self) -> float | None:
        """One minus the diffusion model's mean probability of the anchors (see `payload.certainty`).

        Of the latest payload where a service sends them. None where the payload does not carry it.
        """
        return self._doubt if self.service is None else self.service.doubt

    def __next__(self) -> T_co:
        return next(self._items)

    def close(self) -> None:
        """Ends the answer here; the engine is ready for the next one."""
        self._items.close()
