"""A gateway's state: questions that come over a link, the service's answers, and the frames that go back.

Responsible for one run of the service a question however often it comes, for the bounds of what is kept, for
refusals. Not responsible for sending (see `outbox`), for the service (see `service`) or for threads: a
function is given that runs a job.

    frame -> job (its text; the service's chain of payloads) -> answer frames -> outbox -> link

What strangers may cost is bounded: reading a text that is coded with the edge model takes a pass for each of
its tokens, an answer goes to an address that receives, and money has quotas.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from links.datagram import Datagram, Link
from links.frames.cookie import COOKIE_BYTES, Challenge, split_cookie
from links.frames.kinds import HEAD_BYTES, MAX_PARTS, FrameKind, peek_frame
from links.frames.question import Question, QuestionHead, decode_question, peek_question
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, answer_room, encode_reply
from links.gateway.limits import Allowance, Cookies, FailedFrames, Rate, ReadingLimits, one_less
from links.gateway.outbox import Outbox
from links.gateway.refusals import RETRY_SECONDS, refusal_of
from links.gateway.service import AnchorSource
from links.plain import messages
from links.quota import Quota
from payload import Shared
from payload.errors import ChecksumError, PayloadError
from payload.header import MIN_PAYLOAD_BYTES

log = logging.getLogger("links.gateway")

IDLE_SECONDS, BUSY_SECONDS = 0.5, 0.02
"""Longest wait for a frame, without a job and with one."""

COMPLAINTS = Rate(1 / 30, 1)
"""How often a peer is told that its frames are not read."""

NO_ANSWER = "No answer now. Please ask again in a minute."
"""The refusal in plain text."""

REPEATED_CHAINS = Rate(1 / 3, 1)
"""How often a peer gets all frames of an answer again; a device asks again after longer pauses."""


@dataclass(frozen=True)
class GatewayLimits:
    """kept: answers that are remembered, so that a repeat is no second run. running: jobs at once, and of one
    peer. reading: of these, questions that wait for the edge model or are read with it. outbox: frames that
    wait for the link; seconds: for which one may wait.
    """

    kept: int = 256
    running: int = 16
    running_of_peer: int = 4
    reading: int = 4
    reading_of_peer: int = 2
    outbox: int = 512
    seconds: float = 900.0


@dataclass(eq=False)
class KeptAnswer:
    """What a question has got so far.

    frames: of its answer, in order. done: no more will come. turn: number of frames sent on a link where each
    has to be asked for.
    """

    frames: list[bytes] = field(default_factory=list)
    done: bool = False
    turn: int = 0


Key = tuple[str | None, bytes]
"""Peer and question frame."""


class Unread(NamedTuple):
    """A question's text could not be read."""

    id: int
    error: Exception


class Message(NamedTuple):
    """A part of an answer in plain text."""

    data: bytes
    last: bool


class Gateway:
    """Answers the questions on one link. `receive` and `poll` are for one thread.

    context: what both sides of a question frame hold (`EdgeRuntime.question_context`).
    start:   runs a job, which may take as long as the service does, in any thread. Its result is taken up by
             the next `poll`.
    runs:    questions that the service was asked. repeats: frames that asked the same again.
    ignored: frames that are no question, damaged or not read. refused: refusals sent. challenged: addresses
             asked to show that they receive, where anyone can write another's.
    predictive: whose questions are read with the edge model: True: anyone's; None: those of a link where
             frames are authenticated. The others are told to ask in another codec.
    quota:   of the money that frames cost; None for any. bundle: the name of the one that devices need.
    plain:   answers a question in plain text (see `Link.in_text`); None: such questions are ignored.
    """

    def __init__(
        self,
        link: Link,
        context: Shared,
        source: AnchorSource,
        start: Callable[[Callable[[], None]], None],
        limits: GatewayLimits | None = None,
        *,
        predictive: bool | None = None,
        quota: Quota | None = None,
        bundle: str = "",
        plain: Callable[[str], str] | None = None,
    ) -> None:
        self.link, self.context, self.source = link, context, source
        self._mine = context.contract.identity, bundle
        self.limits = limits or GatewayLimits()
        predictive = link.authenticated if predictive is None else predictive
        self.runs = self.repeats = self.ignored = self.refused = self.challenged = 0
        self._start, self._plain = start, plain
        self._kept: OrderedDict[Key, KeptAnswer] = OrderedDict()
        self._running: Counter[str | None] = Counter()
        self._results: queue.SimpleQueue[tuple[Key, JobResult]] = queue.SimpleQueue()
        self.outbox = Outbox(link, self.limits.outbox, self.limits.seconds, quota)
        self._cookies = Cookies() if link.forgeable else None
        self._failed = FailedFrames()
        self._complaints = Allowance(COMPLAINTS)
        self._chains = Allowance(REPEATED_CHAINS)
        self.reading = ReadingLimits(self.limits.reading, self.limits.reading_of_peer, predictive)
        self._model = threading.Lock()  # the edge model reads one text at a time

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
        peer = datagram.peer
        if self.link.in_text(peer):
            self._receive_text((peer, datagram.data))
            return
        try:
            frame, cookie = split_cookie(datagram.data)
        except PayloadError:
            self.ignored += 1
            return
        if self._cookies is not None and not self._cookies.shows(cookie, peer, self.link.clock()):
            self._challenge(peer, frame)
            return
        key = peer, frame
        if self._repeated(key):
            return
        try:
            head = peek_question(frame, self.context)
        except PayloadError as error:
            self._complain(key, error)
            return
        sender, now = self.link.sender(peer), self.link.clock()
        code = self._failed.why(frame) or self.reading.refuse(head, peer, sender, now)
        if code is not None:
            self.ignored += 1
            later = RETRY_SECONDS if code is RefusalCode.OVERLOADED else None
            self._refuse_rarely(key, Refusal(head.id, code, later))
            return
        self._ask(key, head)

    def _repeated(self, key: Key) -> bool:
        """Whether a question has been asked before; then its answer is sent again."""
        answer = self._kept.get(key)
        if answer is None:
            return False
        self._kept.move_to_end(key)
        self.repeats += 1
        self._send_answer(key, answer)
        return True

    def _receive_text(self, key: Key) -> None:
        """Have a question in plain text answered in plain text."""
        text = key[1].decode(errors="replace").strip()
        if self._plain is None or not text:
            self.ignored += 1
        elif not self._repeated(key):
            if self._full(key[0]):
                self._refuse_rarely(key, Refusal(0, RefusalCode.OVERLOADED, RETRY_SECONDS))
            elif self.outbox.affords(key[0], self.link.largest):
                self._begin(key, lambda: self._run_text(key, text))

    def _challenge(self, peer: str | None, frame: bytes) -> None:
        """Ask an address to show that it receives, with no more bytes than came from it."""
        head = peek_frame(frame)
        if self._cookies is None or not head.kind.is_question or len(frame) < HEAD_BYTES + COOKIE_BYTES:
            self.ignored += 1
            return
        self.challenged += 1
        challenge = Challenge(head.id, self._cookies.of(peer, self.link.clock()))
        self.outbox.put(encode_reply(challenge), peer)

    def _ask(self, key: Key, head: QuestionHead) -> None:
        """Have a question that has not been asked before read, and answered by the service."""
        room = self.room if head.room is None else min(head.room, self.room)
        if room < MIN_PAYLOAD_BYTES:
            self._refuse(key, Refusal(head.id, RefusalCode.TOO_LONG))
            return
        if self._full(key[0]):
            self._refuse(key, Refusal(head.id, RefusalCode.OVERLOADED, RETRY_SECONDS))
            return
        if not self.outbox.affords(key[0], 1):
            return  # a refusal would cost as much as an answer
        self.reading.begin(head.kind, key[0])
        self._begin(key, lambda: self._run(key, head, room))

    def _full(self, peer: str | None) -> bool:
        """Whether no job of a peer can begin."""
        return self.running >= self.limits.running or self._running[peer] >= self.limits.running_of_peer

    def _begin(self, key: Key, job: Callable[[], None]) -> None:
        self._kept[key] = KeptAnswer()
        self._forget()
        self._running[key[0]] += 1
        self._start(job)

    def _forget(self) -> None:
        """Drop the oldest answers beyond the limit, except those being made."""
        excess = len(self._kept) - self.limits.kept
        for key in [key for key, answer in self._kept.items() if answer.done][: max(0, excess)]:
            del self._kept[key]

    def _run(self, key: Key, head: QuestionHead, room: int) -> None:
        """The job: everything that it finds goes to `poll` as a result."""
        try:
            with self._model if head.kind is FrameKind.QUESTION_PREDICTIVE else nullcontext():
                question = decode_question(key[1], self.context)
        except Exception as error:
            self._results.put((key, Unread(head.id, error)))
            return
        self._results.put((key, question))
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
            reply = refusal_of(error, question.id, *self._mine)
        self._results.put((key, reply))

    def _run_text(self, key: Key, text: str) -> None:
        """The job for a question in plain text."""
        assert self._plain is not None
        try:
            parts = messages(self._plain(text), self.link.largest)
        except Exception as error:
            self._results.put((key, refusal_of(error, 0, *self._mine)))
            return
        for number, data in enumerate(parts, 1):
            self._results.put((key, Message(data, number == len(parts))))

    def poll(self) -> float | None:
        """Take up the results of jobs and send what may be sent; returns the seconds after which a frame that
        waits may go, None where none does.
        """
        while not self._results.empty():
            self._take_up(*self._results.get())
        return self.outbox.flush()

    def _take_up(self, key: Key, reply: JobResult) -> None:
        answer = self._kept[key]
        if isinstance(reply, Question | Unread):
            self.reading.end(peek_frame(key[1]).kind, key[0])
        if isinstance(reply, Question):
            self.runs += 1
            log.info("question %d of %s: %d bytes", reply.id, key[0], len(key[1]))
            return
        if isinstance(reply, Unread | Refusal) or reply.last:
            answer.done = True
            one_less(self._running, key[0])
        if isinstance(reply, Unread):
            del self._kept[key]
            refusal = refusal_of(reply.error, reply.id, *self._mine)
            if isinstance(reply.error, PayloadError):  # the same bytes will fail again
                self._failed.add(key[1], refusal.code)
            self.ignored += 1
            self._refuse_rarely(key, refusal)
            return
        if isinstance(reply, Refusal):
            if answer.frames:  # the first payloads are useful without the others: the device has them
                log.warning("question %d of %s: the service broke off: %s", reply.id, key[0], reply.code.name)
                return
            self._refuse(key, reply)
            if reply.code in (RefusalCode.OVERLOADED, RefusalCode.FAILED):
                del self._kept[key]  # the same frame may find it recovered
            else:
                answer.frames.append(self._encoded(key, reply))
            return
        self.runs += isinstance(reply, Message) and not answer.frames
        answer.frames.append(self._encoded(key, reply))
        if reply.last:
            sizes = [len(frame) for frame in answer.frames]
            log.info("answer to %s: frames of %s bytes", key[0], sizes)
        if self.link.profile.window is None or len(answer.frames) == 1:
            self.outbox.put(answer.frames[-1], key[0], answer)
            answer.turn += 1

    def _send_answer(self, key: Key, answer: KeptAnswer) -> None:
        """The frames of a kept answer once more; none while some of them wait to leave, or too soon."""
        if not answer.frames or self.outbox.holds(answer):
            return
        frames = answer.frames
        if self.link.profile.window is not None:  # one frame for each of the device's: the next in turn
            frames = [frames[answer.turn % len(frames)]]
            answer.turn += 1
        elif not self._chains.take(key[0], 1, self.link.clock()):
            return
        for frame in frames:
            self.outbox.put(frame, key[0], answer)

    def _refuse(self, key: Key, refusal: Refusal) -> None:
        self.refused += 1
        log.info("refused %d of %s: %s", refusal.id, key[0], refusal.code.name)
        self.outbox.put(self._encoded(key, refusal), key[0])

    def _encoded(self, key: Key, reply: AnswerFrame | Refusal | Message) -> bytes:
        """A reply as its peer reads it."""
        if isinstance(reply, Message):
            return reply.data
        return NO_ANSWER.encode() if self.link.in_text(key[0]) else encode_reply(reply)

    def _complain(self, key: Key, error: PayloadError) -> None:
        """Say why a frame cannot be read, where it is likely to be a question for this gateway."""
        self.ignored += 1
        try:
            head = peek_frame(key[1])
        except PayloadError:
            return
        if not head.kind.is_question or isinstance(error, ChecksumError):
            return  # another program's, or damaged: it will be sent again
        self._refuse_rarely(key, refusal_of(error, head.id, *self._mine))

    def _refuse_rarely(self, key: Key, refusal: Refusal) -> None:
        if self._complaints.take(key[0], 1, self.link.clock()):
            self._refuse(key, refusal)


JobResult = AnswerFrame | Message | Refusal | Question | Unread
"""In order: a question or that it is unread (none for plain text), then its answer's frames or a refusal."""


def serve_link(gateway: Gateway, stopped: Callable[[], bool]) -> None:
    """Answer until `stopped`, which is looked at at least every IDLE_SECONDS. Raises LinkError."""
    while not stopped():
        wait = gateway.poll()
        longest = BUSY_SECONDS if gateway.running else IDLE_SECONDS
        found = gateway.link.receive(longest if wait is None else min(wait, longest))
        if found is not None:
            gateway.receive(found)
