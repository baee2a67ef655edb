"""What a service is asked, and what came of it.

Responsible for what a client and an answer know of each other. Not responsible for the answer (see `cloud`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from edge_runtime.text.chat import Prompt
from payload import AnchorSet, Base


@dataclass
class ServiceReport:
    """The part of an anchor service in an answer; filled in as payloads arrive.

    payload_bytes: sizes of the payloads received and decoded.
    sent:          bytes of the questions.
    fell_back:     the reason why payloads of codec compact were asked for in place of predictive ones; None
                   where that was not necessary.
    failure:       the reason why there is none, or not all of them; None where all arrived.
    crossed:       over a link, its frames, airtime and money in words; else None.
    left_out:      messages of the conversation for which the request had no room, the oldest.
    doubt_before:  the device's doubt at which it asked; None where it did not ask for that.
    settled:       whether nothing that comes later can change the text.
    doubt:         how unsure the diffusion model was of the latest payload's anchors; see `Answer.doubt`.
    """

    payload_bytes: list[int] = field(default_factory=list)
    sent: int = 0
    fell_back: str | None = None
    failure: str | None = None
    doubt: float | None = None
    settled: bool = False
    doubt_before: float | None = None
    crossed: str | None = None
    left_out: int = 0


class Question(Protocol):
    """A question on its way (see `cloud.CloudQuestion`).

    contract: identity of the contract that payloads are wanted for.
    stream:   whether payloads are wanted as they are made, or the last alone.
    """

    prompt: Prompt
    contract: str
    stream: bool
    report: ServiceReport

    def take(self, data: bytes, base: Base | None = None) -> AnchorSet:
        """Reads a payload that has come and continues with its anchors; raises PayloadError."""
