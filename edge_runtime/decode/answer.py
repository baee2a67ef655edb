"""An answer being decoded: its tokens by iteration, its statistics beside them.

Responsible for the object that every way of answering returns. Not responsible for making tokens (see
`forced`, `refine`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from edge_runtime.client.question import ServiceReport
from edge_runtime.decode.forced import FillStats
from payload import AnchorSet

T_co = TypeVar("T_co", covariant=True)


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
        """One minus the diffusion model's mean probability of the anchors (see `payload.extras`).

        Of the latest payload where a service sends them. None where the payload does not carry it.
        """
        return self._doubt if self.service is None else self.service.doubt

    def __next__(self) -> T_co:
        return next(self._items)

    def close(self) -> None:
        """Ends the answer here; the engine is ready for the next one."""
        self._items.close()
