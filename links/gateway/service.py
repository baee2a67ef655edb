"""Where a gateway's payloads come from: an anchor service, or any chat server whose text is coded here.

Responsible for the request that a question makes, and for chains within a number of bytes. Not responsible
for HTTP (see `edge_runtime.client`) or for the payload of a text (see `edge_runtime.finished`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from edge_runtime.client.chat_server import ChatServer
from edge_runtime.client.client import Client, ReceivedPayload, ServiceDescription
from edge_runtime.decisions import Decider
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.finished import chain_of
from edge_runtime.form import Form
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import Prompt
from links.frames.conversation import decision_of, messages_of
from links.frames.question import Question
from payload import Codec
from payload.decisions import encode_decisions
from payload.errors import OversizedPayloadError, PayloadError


class AnchorSource(Protocol):
    """Where the payloads of an answer come from."""

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        """A chain of at most `room` bytes each; raises CloudUnavailableError or CloudRefusedError."""


@dataclass(frozen=True)
class ServiceSource:
    """An anchor service over HTTP. Raises UsageError for one that makes no payloads within a budget."""

    client: Client
    about: ServiceDescription
    confidence: bool = True

    @classmethod
    def open(cls, client: Client, identity: str, *, confidence: bool = True) -> ServiceSource:
        """identity: of the contract that its payloads have to be for; UsageError for another one.

        confidence: payloads say how sure the cloud is, in 2 bits a token.
        """
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
        return cls(client, about, confidence)

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        wanted = Codec.PREDICTIVE.label if question.predictive else Codec.COMPACT.label
        steps = None if question.fraction is not None else question.steps or self.about.steps
        return self.client.stream(
            messages_of(question.text),
            fractions=None if question.fraction is None else [question.fraction],
            steps=None if steps is None else min(steps, self.about.total_steps),
            max_bytes=room,
            codec=wanted if wanted in self.about.codecs else Codec.COMPACT.label,
            select="edge-aware",
            confidence=self.confidence,
            contract=self.about.identity,
        )


@dataclass(frozen=True)
class ChatSource:
    """A chat server, whose whole answer is coded with the devices' model. edge: its bundle."""

    server: ChatServer
    edge: EdgeRuntime

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        prompt = messages_of(question.text)
        text = self.text(prompt)
        codec = Codec.PREDICTIVE if question.predictive else Codec.COMPACT
        for data, delta, last in chain_of(self.edge, text, prompt, room, codec):
            yield ReceivedPayload(data, delta, last)

    def text(self, prompt: Prompt) -> str:
        """The server's answer; raises CloudUnavailableError where there is none."""
        text = "".join(self.server.answer(prompt)).strip()
        if not text:
            raise CloudUnavailableError(f"{self.server.client}: expected an answer, found none")
        return text


@dataclass(frozen=True)
class FormSource:
    """What is asked of a form goes to who reads it, everything else to another source. forms: by name."""

    forms: Mapping[str, Form]
    reader: Decider
    other: AnchorSource

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        if (asked := decision_of(question.text)) is None:
            return self.other.payloads(question, room)
        name, slots, text = asked
        form = self.forms.get(name)
        if form is None or not slots or slots[-1] >= len(form.slots):
            raise PayloadError(f"form {name}: expected one of {', '.join(self.forms) or 'none'} (--forms)")
        data = encode_decisions(form.identity, text, form.sizes, self.reader.decide(form, text, slots))
        if len(data) > room:
            raise OversizedPayloadError(f"answer: expected at most {room} bytes, found {len(data)}")
        return iter([ReceivedPayload(data, delta=False)])
