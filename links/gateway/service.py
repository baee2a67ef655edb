"""Where a gateway's payloads come from: an anchor service, asked for chains within a number of bytes.

Responsible for the request that a question makes. Not responsible for HTTP (see `edge_runtime.client`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from edge_runtime.client.client import Client, ReceivedPayload, ServiceDescription
from edge_runtime.errors import UsageError
from links.frames import Question
from links.frames.conversation import messages_of
from payload import Codec


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
