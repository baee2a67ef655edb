"""What a client asks for, once it is checked; what a service is; and who fulfils the one with the other.

Knows plain values that can cross processes, and the interface between the HTTP side and whatever runs the
model: an engine in this process (`local`) or replicas on other machines (`cloud_anchor.serve.ray_app`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from cloud_anchor.serve.jobs import Ready
from cloud_anchor.serve.settings import Limits

Message = tuple[str, str]
"""Role and content."""


@dataclass(frozen=True)
class AnchorRequest:
    """One request. None everywhere means: as the service is set up.

    fractions: of the planned steps, one payload after each. steps: the same as a number, for one payload.
    contract:  identity of the device's contract, where it wants to be sure.
    deadline:  seconds from when the order reaches the engine.
    whole:     no payload adds to another one.
    """

    messages: tuple[Message, ...]
    fractions: tuple[float, ...] = ()
    steps: int | None = None
    order: str | None = None
    stop: str | None = None
    select: str | None = None
    max_bytes: int | None = None
    model: str | None = None
    contract: str | None = None
    deadline: float | None = None
    whole: bool = False


@dataclass(frozen=True)
class ServiceInfo:
    """What a service says about itself at /v1/contract.

    canvas, total_steps: of a full run. steps: run where a request does not say.
    prompt_tokens: most of a prompt, the template's included.
    selections: what `select` may be; the first is the default. budget: whether `max_bytes` can be asked for.
    """

    model: str
    identity: str
    contract: dict[str, Any]
    canvas: int
    total_steps: int
    steps: int
    prompt_tokens: int
    selections: tuple[str, ...]
    budget: bool
    orders: tuple[str, ...]
    stops: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)


class Backend(Protocol):
    """Fulfils orders. `facts` holds from `open` on."""

    facts: ServiceInfo

    async def open(self) -> None:
        """Gets ready; called once, in the event loop that serves."""

    def payloads(self, order: AnchorRequest) -> AsyncGenerator[Ready]:
        """A payload a mark; raises ServiceError. Closing the generator takes the request out of the batch."""

    def state(self) -> str | None:
        """None where it can work, else what is the matter."""

    def figures(self) -> dict[str, float]:
        """What it is doing now, by the names of the metrics."""

    async def close(self) -> None:
        """Finishes what was taken and lets go of everything."""
