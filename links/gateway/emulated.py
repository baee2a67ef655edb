"""A gateway on an emulated link: its questions, jobs and answers happen in the link's own time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from links.datagram import Datagram
from links.exchange import LEAST_WAIT
from links.gateway.answering import Gateway, GatewayLimits
from links.gateway.service import AnchorSource
from links.kinds.emulated import Emulation
from links.seal import Seal, SealedLink
from payload import Shared


def emulated_gateway(
    emulation: Emulation,
    context: Shared,
    source: AnchorSource,
    seconds: float = 1.0,
    limits: GatewayLimits | None = None,
    seals: Sequence[Seal] = (),
    predictive: bool | None = None,
) -> Gateway:
    """A gateway on an emulated link, in its time. seconds: that the service takes for an answer. seals: those
    of its devices, where frames are sealed. predictive: as of `Gateway`.
    """
    clock = emulation.clock
    sealed = SealedLink(emulation.gateway, seals) if seals else None

    def start(job: Callable[[], None]) -> None:
        def finish() -> None:
            job()
            wake()

        clock.after(seconds, finish)

    def wake() -> None:
        wait = gateway.poll()
        if wait is not None:
            clock.after(max(wait, LEAST_WAIT), wake)

    def arrived(datagram: Datagram) -> None:
        found = sealed.opened(datagram) if sealed else datagram
        if found is not None:
            gateway.receive(found)
            wake()

    gateway = Gateway(sealed or emulation.gateway, context, source, start, limits, predictive=predictive)
    emulation.gateway.listen(arrived)
    return gateway
