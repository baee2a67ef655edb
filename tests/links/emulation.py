"""An emulated link: airtime, delays, duties, loss, duplicates and reordering, on a virtual clock.

Responsible for when a frame arrives, if it does. Not responsible for the figures of a link (see
`profiles`). The same seed gives the same losses; collisions are not emulated, a share of losses stands
for them.

    emulation = Emulation(LINK_PROFILES["sbd"], loss=0.1, seed=1)
    device, gateway = emulation.device(), emulation.gateway
    gateway.listen(lambda datagram: gateway.send(reply(datagram.data), datagram.peer))
    device.send(question)
    answer = device.receive(timeout=60)  # at once; emulation.clock.now tells how long it took
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from edge_runtime.errors import LinkError
from links.datagram import Datagram, Link
from links.exchange import LEAST_WAIT
from links.gateway.answering import Gateway, GatewayLimits, serve_link
from links.gateway.service import AnchorSource
from links.profiles import LinkProfile
from links.seal import Seal, SealedLink
from payload import Shared

GATEWAY = "gateway"
HELD = 3.0
"""A frame that is reordered takes so much longer than the longest one that is not."""


class EventClock:
    """Events by time, those of one time in the order in which they were set. now: seconds from the start."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Call `event` this many seconds from now, 0 or more."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self, until: float) -> None:
        """Run the events up to this time; the clock then stands at the last of them."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def wait(self, seconds: float, done: Callable[[], bool]) -> bool:
        """Run events until `done`, at most for so many seconds, which then have passed; returns `done()`."""
        until = self.now + seconds
        while not done():
            if not self._events or self._events[0][0] > until:
                self.now = max(self.now, until)
                return done()
            when, _, event = heapq.heappop(self._events)
            self.now = max(self.now, when)
            event()
        return True


class Emulation:
    """A gateway, any number of devices, and the link between them.

    loss, duplicates, reordering: shares of the frames, of each sender by itself, 0 to 1. A frame that is
    reordered arrives later by 3 times the longest delay of the profile and the frame's own airtime.
    """

    def __init__(
        self,
        profile: LinkProfile,
        *,
        loss: float = 0.0,
        duplicates: float = 0.0,
        reordering: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.profile = profile
        self.clock = EventClock()
        self.loss, self.duplicates, self.reordering = loss, duplicates, reordering
        self.seed = seed
        self._ends: dict[str, EmulatedLink] = {}
        self.gateway = EmulatedLink(self, GATEWAY, service=True)

    def device(self, name: str = "device") -> EmulatedLink:
        """A device's end; `name` is the address that the gateway sees."""
        assert name not in (*self._ends, GATEWAY)
        end = self._ends[name] = EmulatedLink(self, name, service=False)
        return end

    def end(self, name: str | None) -> EmulatedLink:
        """The end at an address; None: the gateway's."""
        if name is None or name == GATEWAY:
            return self.gateway
        if name not in self._ends:
            raise LinkError(f"{self.profile.name}: expected the address of a device, found {name!r:.80}")
        return self._ends[name]


class EmulatedLink(Link):
    """One end of an emulation.

    name: its address. lost: number of its frames that did not arrive.
    """

    def __init__(self, emulation: Emulation, name: str, *, service: bool) -> None:
        super().__init__(emulation.profile, clock=emulation.clock, service=service)
        self.name = name
        self.lost = 0
        self._emulation, self._clock = emulation, emulation.clock
        self._rng = random.Random(f"{emulation.seed}/{name}")
        self._inbox: deque[Datagram] = deque()
        self._waiting: dict[str, deque[bytes]] = {}  # of the gateway: frames for a device's next window
        self._listener: Callable[[Datagram], None] | None = None
        self._free = 0.0
        self._closed = False

    def listen(self, handler: Callable[[Datagram], None] | None) -> None:
        """Have every frame handed to `handler` when it arrives, in place of `receive`; None: no more.

        The handler runs while another end waits in `receive`, and must not wait itself; what it wants to do
        later it sets with `clock.after`.
        """
        self._listener = handler

    def pause(self, size: int, peer: str | None = None) -> float:
        airtime = self.cost(size).airtime
        return self._meter.earliest(max(self._clock.now, self._free), airtime, peer) - self._clock.now

    def _spend(self, airtime: float, peer: str | None) -> None:
        """Counted when the frame leaves (see `_leave`)."""

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        self._open()
        to = self._emulation.end(peer)
        if self.service and self.profile.window is not None:
            self._waiting.setdefault(to.name, deque()).append(frame)
        else:
            self._leave(frame, to)

    def _leave(self, frame: bytes, to: EmulatedLink) -> None:
        """Put a frame on the air as soon as the transmitter and its duties let it."""
        emulation, airtime = self._emulation, self.cost(len(frame)).airtime
        begin = self._meter.earliest(max(self._clock.now, self._free), airtime, to.name)
        self._free = begin + airtime
        self._meter.record(begin, airtime, to.name)
        # As many draws whatever comes of them: the fate of a frame does not hang on that of others.
        lost, twice, late, *shares = (self._rng.random() for _ in range(5))
        least, most = self.profile.delay
        held = HELD * (most + airtime) if late < emulation.reordering else 0.0
        arrives = begin + airtime - self._clock.now
        if lost < emulation.loss:
            self.lost += 1
            return
        if self.profile.window is not None and not self.service:
            self._clock.after(arrives + self.profile.window, lambda: emulation.gateway._window(self.name))
        for share in shares[: 2 if twice < emulation.duplicates else 1]:
            wait = arrives + held + least + (most - least) * share
            self._clock.after(wait, lambda: to._arrived(Datagram(frame, self.name)))

    def _window(self, device: str) -> None:
        """A device listens: one frame that waits for it goes out."""
        if waiting := self._waiting.get(device):
            self._leave(waiting.popleft(), self._emulation.end(device))

    def _arrived(self, datagram: Datagram) -> None:
        if self._closed:
            return
        found = datagram if self.service else Datagram(datagram.data, None)
        if self._listener is None:
            self._inbox.append(found)
        else:
            self.received.add(len(found.data), self.cost(len(found.data)))
            self._listener(found)

    def _next(self, timeout: float) -> Datagram | None:
        self._open()
        self._clock.wait(timeout, lambda: bool(self._inbox) or self._closed)
        self._open()
        return self._inbox.popleft() if self._inbox else None

    def _open(self) -> None:
        if self._closed:
            raise LinkError(f"{self.profile.name}: the link is closed; open another one")

    def close(self) -> None:
        self._closed = True


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


@contextmanager
def running(gateway: Gateway) -> Iterator[None]:
    """A gateway that answers from a thread, as by the command."""
    stop = threading.Event()
    thread = threading.Thread(target=serve_link, args=(gateway, stop.is_set), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
