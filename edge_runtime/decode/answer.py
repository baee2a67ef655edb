"""An answer being decoded: its tokens by iteration, its statistics and the cloud's part beside them.

Responsible for the object that every way of answering returns. Not responsible for making tokens (see
`forced`, `refine`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from edge_runtime.client.question import ServiceReport
from edge_runtime.decode.forced import FillStats, Source, Token
from edge_runtime.decode.refine import Retract
from payload import AnchorSet

T_co = TypeVar("T_co", bound=Token | Retract, covariant=True)


class Answer(Iterator[T_co]):
    """The tokens of one answer, in order: iterate over it once. It may be closed at any time.

    tokens:     those so far, without any that were taken back.
    prompt_ids: ids of the prompt that is answered.
    stats:      cost so far, complete after the last token.
    revisable:  True where the stream may also take tokens back (`refine.Retract`).
    service:    the part of the service that sends the anchors; None for a payload at hand.
    ended:      whether it was read to its end, failed, or was closed; `at_end` is called then.
    dropped:    turns of a conversation that no longer fitted the context, oldest first.
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
        not_sure_from: float | None = None,
    ) -> None:
        self.tokens: list[Token] = []
        self.prompt_ids = prompt_ids
        self.stats = stats
        self.revisable = revisable
        self.service = service
        self.ended = False
        self.dropped = 0
        self.at_end: Callable[[], None] | None = None
        self._items = items
        self._anchors = anchors
        self._doubt, self._not_sure_from = doubt, not_sure_from

    @property
    def anchors(self) -> AnchorSet:
        """The anchors of the answer: the latest so far where a service sends them, or none."""
        return self._anchors()

    @property
    def doubt(self) -> float | None:
        """One minus the diffusion model's mean probability of the anchors (see `payload.extras`).

        Of the latest payload where a service sends them. None where the payload does not carry it.
        """
        return self._doubt if self.service is None else self.service.doubt

    @property
    def not_sure(self) -> bool | None:
        """Whether that doubt is from the bundle's limit on; None where either is not known."""
        doubt, limit = self.doubt, self._not_sure_from
        return None if doubt is None or limit is None else doubt >= limit

    @property
    def alone(self) -> bool:
        """Whether a service was wanted and has given nothing, so that the device has answered by itself."""
        return bool(self.service and self.service.failure and not self.service.payload_bytes)

    @property
    def source(self) -> str:
        """Whose tokens the answer has: "on_device", "in_cloud" or "mixed"."""
        anchored = sum(token.source is Source.ANCHOR for token in self.tokens)
        return "on_device" if not anchored else "in_cloud" if anchored == len(self.tokens) else "mixed"

    def __next__(self) -> T_co:
        try:
            item = next(self._items)
        except BaseException:
            self._end()
            raise
        if isinstance(item, Retract):
            del self.tokens[item.position :]
        else:
            self.tokens.append(item)
        return item

    def close(self) -> None:
        """Ends the answer here; the engine is ready for the next one."""
        self._items.close()
        self._end()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            if self.at_end is not None:
                self.at_end()
