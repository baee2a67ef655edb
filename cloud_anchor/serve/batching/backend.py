"""Validated requests, the description of a service, and the backend interface between HTTP and models.

Responsible for plain values that can cross processes and for the interface `Backend`, which an engine in this
process (`local`) and replicas on other machines (`ray_app`) implement. Not responsible for HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from cloud_anchor.serve.batching.jobs import ServedPayload
from cloud_anchor.serve.errors import ServiceError
from cloud_anchor.serve.settings import Limits
from edge_runtime.text.chat import Message
from payload import Codec

CODECS = (Codec.COMPACT.label, Codec.PREDICTIVE.label, Codec.PORTABLE.label)
"""Labels of the codecs that a request may ask for; the first is the default."""


@dataclass(frozen=True)
class AnchorRequest:
    """One validated request. None stands for the service's default.

    fractions: shares of the planned steps in (0, 1], one payload after each. steps: a number
               of steps instead, for one payload.
    select:    selection of anchors.
    max_bytes: byte budget of a payload. codec: label of the codec of its body.
    chain:     what does not fit into one payload follows in further ones, each within max_bytes and adding to
               the one before (see `selection.chain`).
    confidence: carry how sure the diffusion model is of each anchor.
    contract:  identity of the device's contract, to be compared with the service's.
    deadline:  seconds from the time at which the request reaches the engine.
    self_contained: the first payload of every step can be decoded without the one before it.
    client:    who asks: a key's name, or an address where the service has no keys.
    """

    messages: tuple[Message, ...]
    fractions: tuple[float, ...] = ()
    steps: int | None = None
    select: str | None = None
    max_bytes: int | None = None
    chain: bool = False
    codec: str | None = None
    confidence: bool = True
    contract: str | None = None
    deadline: float | None = None
    self_contained: bool = False
    client: str = ""


@dataclass(frozen=True)
class ServiceInfo:
    """Description of a service, as /v1/contract returns it.

    canvas, total_steps: of a full run. steps: of a request that does not set any.
    prompt_tokens: largest prompt, the template's tokens included.
    selections, codecs: values of `select` and `codec`; the first is the default.
    """

    model: str
    identity: str
    contract: dict[str, Any]
    canvas: int
    total_steps: int
    steps: int
    prompt_tokens: int
    selections: tuple[str, ...]
    codecs: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)


class Backend(Protocol):
    """The side that runs the models. `info` is set from `open` on."""

    info: ServiceInfo

    async def open(self) -> None:
        """Start; called once, in the event loop that serves."""

    def payloads(self, request: AnchorRequest) -> AsyncGenerator[ServedPayload]:
        """One payload per requested step count; raises ServiceError.

        Closing the generator removes the request from the batch.
        """

    def state(self) -> str | None:
        """None where it is ready, else the reason why it is not."""

    def broken(self) -> str | None:
        """None, or the reason why only a restart helps: what an orchestrator acts on."""

    def figures(self) -> dict[str, float]:
        """Current values of its gauges, by name."""

    async def close(self) -> None:
        """Finish the admitted requests and release every resource."""


def require_ready(backend: Backend) -> None:
    """Raises ServiceError where no request can be admitted now."""
    reason = backend.state()
    if reason is not None:
        raise ServiceError(503, "not_ready", "a service that is ready", reason, "Try again.", 5.0)
