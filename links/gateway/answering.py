"""A gateway's state: questions that come over a link, the service's answers, and the frames that go back.

Responsible for one run of the service a question however often it comes, for the bounds of what is kept, for
refusals, and for sending no earlier than the link's duties allow. Not responsible for links, for HTTP or for
threads: a function is given that runs a job.

    frame -> question -> job (the service's chain of payloads) -> answer frames -> outbox -> link
"""

from __future__ import annotations

import logging
import queue
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from edge_runtime.client.client import Client, ReceivedPayload, ServiceDescription
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError, LinkError, UsageError
from links.datagram import Datagram, Link
from links.exchange import LEAST_WAIT
from links.frames import (
    MAX_PARTS,
    AnswerFrame,
    Question,
    Refusal,
    RefusalCode,
    answer_room,
    decode_question,
    encode_reply,
    peek_frame,
)
from links.kinds.emulated import Emulation
from links.seal import Seal, SealedLink
from payload import Codec, Shared
from payload.errors import (
    ChecksumError,
    ContractMismatchError,
    FingerprintError,
    OversizedPayloadError,
    PayloadError,
)
from payload.header import MIN_PAYLOAD_BYTES

log = logging.getLogger("links.gateway")

RETRY_SECONDS = 30
"""Told to a device where the service is busy and does not say for how long."""

IDLE_SECONDS, BUSY_SECONDS = 0.5, 0.02
"""Longest wait for a frame, without a job and with one."""

COMPLAINT_SECONDS = 30.0
"""A peer whose frames cannot be read is told so no more often than once in this time."""


class AnchorSource(Protocol):
    """Where the payloads of an answer come from."""

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        """A chain of at most `room` bytes each; raises CloudUnavailableError or CloudRefusedError."""


@dataclass(frozen=True)
class ServiceSource:
    """An anchor service over HTTP. Raises UsageError for one that makes no payloads within a budget."""

    client: Client
    about: ServiceDescription

    @classmethod
    def open(cls, client: Client, identity: str) -> ServiceSource:
        """identity: of the contract that its payloads have to be for; UsageError for another one."""
        about = client.service()
        if about.identity != identity:
            raise UsageError(
                f"edge: expected the bundle of the service's contract ({about.identity[:8]}), found one of "
                f"{identity[:8]}; name the bundle that the service was started with (--edge)"
            )
        if "edge-aware" not in about.selections:
            raise UsageError(
                f"{client.url}: expected a service with an edge model beside it, whose payloads keep to a "
                "number of bytes; found none. Start it with --edge."
            )
        return cls(client, about)

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        wanted = Codec.PREDICTIVE.label if question.predictive else Codec.COMPACT.label
        steps = None if question.fraction is not None else question.steps or self.about.steps
        return self.client.stream(
            question.text,
            fractions=None if question.fraction is None else [question.fraction],
            steps=None if steps is None else min(steps, self.about.total_steps),
            max_bytes=room,
            codec=wanted if wanted in self.about.codecs else Codec.COMPACT.label,
            select="edge-aware",
            contract=self.about.identity,
        )


@dataclass(frozen=True)
class GatewayLimits:
    """kept: answers that are remembered, so that a repeat is no second run. running: jobs at once, and of one
    peer. outbox: frames that wait for the link; seconds: for which one may wait.
    """

    kept: int = 256
    running: int = 16
    running_of_peer: int = 4
    outbox: int = 512
    seconds: float = 900.0


class OutgoingFrame(NamedTuple):
    """A frame that waits for the link. since: when it was made."""

    data: bytes
    peer: str | None
    since: float
    answer: KeptAnswer | None


@dataclass(eq=False)
class KeptAnswer:
    """What a question has got so far.

    frames: of its answer, in order. done: no more will come. waiting: of them in the outbox. turn: number of
    frames sent on a link where each has to be asked for.
    """

    frames: list[bytes] = field(default_factory=list)
    done: bool = False
    waiting: int = 0
    turn: int = 0
    asked: int = 1


Key = tuple[str | None, bytes]
"""Peer and question frame."""


class Gateway:
    """Answers the questions on one link. `receive` and `poll` are for one thread.

    context: what both sides of a question frame hold (`EdgeRuntime.question_context`).
    start:   runs a job, which may take as long as the service does, in any thread. Its result is taken up by
             the next `poll`.
    runs:    questions that the service was asked. repeats: frames that asked the same again.
    ignored: frames that are no question, or damaged. refused: refusals sent.
    """

    def __init__(
        self,
        link: Link,
        context: Shared,
        source: AnchorSource,
        start: Callable[[Callable[[], None]], None],
        limits: GatewayLimits | None = None,
    ) -> None:
        self.link, self.context, self.source = link, context, source
        self.limits = limits or GatewayLimits()
        self.runs = self.repeats = self.ignored = self.refused = 0
        self._start = start
        self._kept: OrderedDict[Key, KeptAnswer] = OrderedDict()
        self._running: Counter[str | None] = Counter()
        self._results: queue.SimpleQueue[tuple[Key, AnswerFrame | Refusal]] = queue.SimpleQueue()
        self._outbox: deque[OutgoingFrame] = deque()
        self._complaints: OrderedDict[str | None, float] = OrderedDict()

    @property
    def room(self) -> int:
        """Bytes of a payload in an answer frame of this link, whatever its part."""
        return answer_room(self.link.largest, MAX_PARTS - 1)

    @property
    def running(self) -> int:
        """Number of jobs."""
        return self._running.total()

    def receive(self, datagram: Datagram) -> None:
        """Take a frame that has arrived."""
        key = datagram.peer, datagram.data
        answer = self._kept.get(key)
        if answer is not None:
            self._kept.move_to_end(key)
            self.repeats += 1
            answer.asked += 1
            self._send_answer(key, answer)
            return
        try:
            question = decode_question(datagram.data, self.context)
        except PayloadError as error:
            self._complain(datagram, error)
            return
        self._ask(key, question)

    def _ask(self, key: Key, question: Question) -> None:
        """Have the service answer a question that has not been asked before."""
        room = self.room if question.room is None else min(question.room, self.room)
        peer, limits = key[0], self.limits
        if room < MIN_PAYLOAD_BYTES:
            self._refuse(peer, Refusal(question.id, RefusalCode.TOO_LONG))
            return
        if self._running.total() >= limits.running or self._running[peer] >= limits.running_of_peer:
            self._refuse(peer, Refusal(question.id, RefusalCode.OVERLOADED, RETRY_SECONDS))
            return
        self._kept[key] = KeptAnswer()
        self._forget()
        self._running[peer] += 1
        self.runs += 1
        log.info("question %d of %s: %d bytes", question.id, peer, len(key[1]))
        self._start(lambda: self._run(key, question, room))

    def _forget(self) -> None:
        """Drop the oldest answers beyond the limit, those in the making excepted."""
        excess = len(self._kept) - self.limits.kept
        for key in [key for key, answer in self._kept.items() if answer.done][: max(0, excess)]:
            del self._kept[key]

    def _run(self, key: Key, question: Question, room: int) -> None:
        """The job: everything that it finds goes to `poll` as a result."""
        part = 0
        try:
            for received in self.source.payloads(question, room):
                # A chain that is longer than frames can count ends early: what was sent stays useful.
                ended = received.last or part == MAX_PARTS - 1
                self._results.put((key, AnswerFrame(question.id, part, ended, received.data)))
                part += 1
                if ended:
                    return
            reply = Refusal(question.id, RefusalCode.FAILED)
        except Exception as error:
            reply = refusal_of(error, question.id, self.context.contract.identity)
        self._results.put((key, reply))

    def poll(self) -> float | None:
        """Take up the results of jobs and send what may be sent; returns the seconds after which a frame that
        waits may go, None where none does.
        """
        while not self._results.empty():
            self._take_up(*self._results.get())
        return self._flush()

    def _take_up(self, key: Key, reply: AnswerFrame | Refusal) -> None:
        answer = self._kept[key]
        last = isinstance(reply, Refusal) or reply.last
        if last:
            answer.done = True
            self._running[key[0]] -= 1
            if not self._running[key[0]]:
                del self._running[key[0]]
        if isinstance(reply, Refusal):
            if answer.frames:  # the first payloads are useful without the others: the device has them
                log.warning("question %d of %s: the service broke off: %s", reply.id, key[0], reply.code.name)
                return
            self._refuse(key[0], reply)
            if reply.code in (RefusalCode.OVERLOADED, RefusalCode.FAILED):
                del self._kept[key]  # the same frame may find it recovered
            else:
                answer.frames.append(encode_reply(reply))
            return
        answer.frames.append(encode_reply(reply))
        if last:
            sizes = [len(frame) for frame in answer.frames]
            log.info("answer %d to %s: frames of %s bytes", reply.id, key[0], sizes)
        if self.link.profile.window is None or len(answer.frames) == 1:
            self._put(answer.frames[-1], key[0], answer)
            answer.turn += 1

    def _send_answer(self, key: Key, answer: KeptAnswer) -> None:
        """The frames of a kept answer once more; none while some of them wait to leave."""
        if not answer.frames or answer.waiting:
            return
        frames = answer.frames
        if self.link.profile.window is not None:  # one frame for each of the device's: the next in turn
            frames = [frames[answer.turn % len(frames)]]
            answer.turn += 1
        for frame in frames:
            self._put(frame, key[0], answer)

    def _refuse(self, peer: str | None, refusal: Refusal) -> None:
        self.refused += 1
        log.info("refused %d of %s: %s", refusal.id, peer, refusal.code.name)
        self._put(encode_reply(refusal), peer, None)

    def _complain(self, datagram: Datagram, error: PayloadError) -> None:
        """Say why a frame cannot be read, where it is likely to be a question for this gateway."""
        self.ignored += 1
        try:
            head = peek_frame(datagram.data)
        except PayloadError:
            return
        if not head.kind.is_question or isinstance(error, ChecksumError):
            return  # another program's, or damaged: it will be sent again
        now, peer = self.link.clock.now, datagram.peer
        if now - self._complaints.get(peer, -COMPLAINT_SECONDS) < COMPLAINT_SECONDS:
            return
        self._complaints[peer] = now
        self._complaints.move_to_end(peer)
        while len(self._complaints) > self.limits.kept:
            self._complaints.popitem(last=False)
        self._refuse(peer, refusal_of(error, head.id, self.context.contract.identity))

    def _put(self, data: bytes, peer: str | None, answer: KeptAnswer | None) -> None:
        if len(self._outbox) >= self.limits.outbox:
            log.warning("the link is too slow for what is asked: a frame is dropped")
            return
        if answer is not None:
            answer.waiting += 1
        self._outbox.append(OutgoingFrame(data, peer, self.link.clock.now, answer))

    def _flush(self) -> float | None:
        """Send what the link's duties let go, of each peer in order; seconds until the next one may."""
        held: deque[OutgoingFrame] = deque()
        soonest: float | None = None
        now = self.link.clock.now
        behind: set[str | None] = set()
        while self._outbox:
            frame = self._outbox.popleft()
            wait = self.link.pause(len(frame.data), frame.peer)
            if (wait > 0 or frame.peer in behind) and now - frame.since <= self.limits.seconds:
                held.append(frame)
                behind.add(frame.peer)
                soonest = wait if soonest is None else min(soonest, wait)
                continue
            if frame.answer is not None:
                frame.answer.waiting -= 1
            if wait > 0:
                continue  # too old
            try:
                self.link.send(frame.data, frame.peer)
            except LinkError as error:
                log.warning("%s", error)
        self._outbox = held
        return soonest


def refusal_of(error: Exception, id: int, identity: str) -> Refusal:
    """The refusal that tells a device of an error. identity: of this side's contract."""
    code, retry = RefusalCode.FAILED, None
    if isinstance(error, ContractMismatchError) or _code(error) == "contract_mismatch":
        return Refusal(id, RefusalCode.OTHER_CONTRACT, identity=identity[:8])
    if isinstance(error, FingerprintError):
        code = RefusalCode.OTHER_PREDICTIONS
    elif isinstance(error, OversizedPayloadError):
        code = RefusalCode.TOO_LONG
    elif isinstance(error, PayloadError):
        code = RefusalCode.NOT_UNDERSTOOD
    elif isinstance(error, CloudRefusedError) and _code(error) in ("prompt_too_long", "invalid_request"):
        code = RefusalCode.TOO_LONG  # everything else that a question may state is in the service's range
    elif isinstance(error, CloudUnavailableError) and (error.retry_after or _code(error) in BUSY):
        code, retry = RefusalCode.OVERLOADED, max(1, round(error.retry_after or RETRY_SECONDS))
    if code is RefusalCode.FAILED:
        log.error("no answer: %s", error)
    return Refusal(id, code, retry)


BUSY = ("overloaded", "stopping", "not_ready", "out_of_memory", "deadline_exceeded")
"""Codes of a service that may answer later."""


def _code(error: Exception) -> str | None:
    return error.code if isinstance(error, CloudRefusedError | CloudUnavailableError) else None


def serve_link(gateway: Gateway, stopped: Callable[[], bool]) -> None:
    """Answer until `stopped`, which is looked at at least every IDLE_SECONDS. Raises LinkError."""
    while not stopped():
        wait = gateway.poll()
        longest = BUSY_SECONDS if gateway.running else IDLE_SECONDS
        found = gateway.link.receive(longest if wait is None else min(wait, longest))
        if found is not None:
            gateway.receive(found)


def emulated_gateway(
    emulation: Emulation,
    context: Shared,
    source: AnchorSource,
    seconds: float = 1.0,
    limits: GatewayLimits | None = None,
    seals: Sequence[Seal] = (),
) -> Gateway:
    """A gateway on an emulated link, in its time. seconds: that the service takes for an answer. seals: those
    of its devices, where frames are sealed.
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

    gateway = Gateway(sealed or emulation.gateway, context, source, start, limits)
    emulation.gateway.listen(arrived)
    return gateway
