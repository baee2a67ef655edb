"""A device and a cloud that talk over a network, each following a list of actions, in simulated time.

Responsible for the two sides' actions and for what the device's screen shows when. Not responsible for what a
method does (see `lab.rivals`) or for when messages arrive (see `transport`).

A program is a list of actions, one after the other. `Send` does not wait, `Receive` waits for the next
message, `Work` takes its time, and `Write` puts tokens on the screen. Writing changes the text from the first
token that differs: what is shown and is not in the new text is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_runtime.decode.forced import common_prefix
from lab.links.framing import HTTP
from lab.links.networks import Network
from lab.links.transport import Connection, Flow
from links.clock import EventClock

CLOUD, EDGE, DEVICE = "cloud", "edge", "device"
"""Who works: the cloud's own model, the edge model in the cloud, the edge model on the device."""

REQUEST, RESPONSE, PART = "request", "response", "part"
BINARY, EVENTS = "application/octet-stream", "text/event-stream"


@dataclass(frozen=True)
class Send:
    """A message with a body of so many bytes.

    kind:     a request, a whole response, or a part of a streamed one; "" for bytes as they are.
    envelope: bytes around the body where HTTP carries text: JSON, base64, the lines of an event. Other
              framings send the body alone.
    accept:   media type. first, last: of the parts.
    """

    body: int
    kind: str
    envelope: int = 0
    accept: str = BINARY
    first: bool = True
    last: bool = True


@dataclass(frozen=True)
class Receive:
    """Wait for the next message."""


@dataclass(frozen=True)
class Work:
    """Passes of a model, one after the other, and tokens that they run beyond one each.

    rows: texts in one pass; they count for the cloud's compute, not for the time.
    """

    who: str
    passes: int
    tokens: int = 0
    rows: int = 1


@dataclass(frozen=True)
class Write:
    """Put a text on the screen, token by token.

    ids:     the text. costs: passes of the device's model for each token.
    whole:   whether the text is an answer, or a beginning of one.
    yields:  whether it ends where a message has arrived.
    """

    ids: tuple[int, ...]
    costs: tuple[int, ...]
    whole: bool = True
    yields: bool = False


Action = Send | Receive | Work | Write
Program = Sequence[Action]
_KINDS: Mapping[str, Callable[..., Action]] = {kind.__name__: kind for kind in (Send, Receive, Work, Write)}


def action_json(action: Action) -> list[Any]:
    """An action as a list: its name and its fields in order."""
    return [type(action).__name__, *vars(action).values()]


def action_of(data: Sequence[Any]) -> Action:
    """The action of `action_json`."""
    return _KINDS[data[0]](*(tuple(value) if isinstance(value, list) else value for value in data[1:]))


@dataclass(frozen=True)
class Speeds:
    """Seconds of a pass by who works, and of a further known token in a pass of the device."""

    cloud: float
    edge: float
    device: float
    token: float

    def seconds(self, work: Work) -> float:
        each = {CLOUD: self.cloud, EDGE: self.edge, DEVICE: self.device}[work.who]
        return work.passes * each + (work.tokens * self.token if work.who == DEVICE else 0.0)


@dataclass(frozen=True)
class Outcome:
    """What happened in one conversation; times in seconds, None where it did not.

    first, standing: when a token is shown, and when one is that stays first. last: when the text is the last
    one and whole. texts: (time, whole text on the screen, or None from when there is none).
    up, down: bytes. failed: whether the connection or the patience ended first.
    """

    first: float | None
    standing: float | None
    last: float | None
    texts: list[tuple[float, tuple[int, ...] | None]]
    up: int
    down: int
    failed: bool


class _Side:
    """One side: its program, the messages that wait, and its time."""

    def __init__(
        self, clock: EventClock, program: Program, send: Callable[[Send], None], speeds: Speeds
    ) -> None:
        self._clock, self._program, self._send, self._speeds = clock, program, send, speeds
        self._at = self._inbox = 0
        self._busy = False
        self.screen: list[int] = []
        self.shown: list[tuple[float, int]] = []  # (time, tokens on the screen with it), of those that stand
        self.first: float | None = None
        self.texts: list[tuple[float, tuple[int, ...] | None]] = []

    @property
    def done(self) -> bool:
        return self._at >= len(self._program) and not self._busy

    def received(self) -> None:
        self._inbox += 1
        self.go_on()

    def go_on(self) -> None:
        while not self._busy and self._at < len(self._program):
            action = self._program[self._at]
            if isinstance(action, Receive) and not self._inbox:
                return
            self._at += 1
            match action:
                case Send():
                    self._send(action)
                case Receive():
                    self._inbox -= 1
                case Work():
                    self._wait(self._speeds.seconds(action), lambda: None)
                case Write():
                    self._begin(action)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._busy = True

        def over() -> None:
            self._busy = False
            then()
            self.go_on()

        self._clock.after(seconds, over)

    def _begin(self, write: Write) -> None:
        kept = common_prefix(self.screen, write.ids)
        if kept < len(self.screen):
            del self.screen[kept:]
            self.shown = [(when, size) for when, size in self.shown if size <= kept]
        if self.texts and self.texts[-1][1] is not None and self.texts[-1][1] != write.ids:
            self.texts.append((self._clock.now, None))
        self._go_on_writing(write)

    def _go_on_writing(self, write: Write) -> None:
        while (place := len(self.screen)) < len(write.ids):
            if write.yields and self._inbox:
                return
            if seconds := write.costs[place] * self._speeds.device:
                self._wait(seconds, lambda: self._written(write))
                return
            self._show(write)
        if write.whole and not (self.texts and self.texts[-1][1] == write.ids):
            self.texts.append((self._clock.now, write.ids))

    def _written(self, write: Write) -> None:
        self._show(write)
        self._go_on_writing(write)

    def _show(self, write: Write) -> None:
        now = self._clock.now
        self.screen.append(write.ids[len(self.screen)])
        self.shown.append((now, len(self.screen)))
        self.first = now if self.first is None else self.first


def converse(
    device: Program, cloud: Program, network: Network, loss: float, seed: str, speeds: Speeds
) -> Outcome:
    """Runs both programs until they end, the connection fails, or the network's patience is over.

    A program that sends nothing opens no connection. Otherwise the handshake of the network's framing begins
    at once; what the device sends waits for it, what it writes does not.
    """
    clock = EventClock()
    connection = Connection(clock, network, loss, seed)
    framing, up, down = network.framing, connection.up, connection.down
    unsent: list[Send] | None = []  # None when the connection is open

    def size(send: Send) -> int:
        body = send.body + (send.envelope if framing.kind == HTTP else 0)
        match send.kind:
            case "request":
                return framing.request(body, send.accept)
            case "response":
                return framing.response(body, send.accept)
            case "part":
                return framing.stream_part(body, send.accept, first=send.first, last=send.last)
        return body

    def ask(send: Send) -> None:
        if unsent is not None:
            unsent.append(send)
            return
        up.send(size(send), answerer.received)
        down.acknowledge(framing.acknowledgement(send.kind))

    def answer(send: Send) -> None:
        down.send(size(send), asker.received)
        up.acknowledge(framing.acknowledgement(send.kind))

    def shake(sizes: Sequence[int], flow: Flow, back: Flow) -> None:
        """The handshake's messages in turn; the request follows the last one at once."""
        nonlocal unsent
        if len(sizes) > 1:
            flow.send(sizes[0], lambda: shake(sizes[1:], back, flow))
            return
        for last in sizes:
            flow.send(last, lambda: None)
        waiting, unsent = unsent or [], None
        for send in waiting:
            ask(send)

    asker, answerer = _Side(clock, device, ask, speeds), _Side(clock, cloud, answer, speeds)
    if any(isinstance(action, Send) for action in device):
        shake(framing.handshake, up, down)
    asker.go_on()
    answerer.go_on()
    clock.run(network.patience)
    # A side that waits for a connection that has failed never ends.
    whole = asker.done and bool(asker.texts) and asker.texts[-1][1] is not None
    return Outcome(
        first=asker.first,
        standing=asker.shown[0][0] if asker.shown else None,
        last=asker.texts[-1][0] if whole else None,
        texts=asker.texts,
        up=up.sent,
        down=down.sent,
        failed=not asker.done,
    )
