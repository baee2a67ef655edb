"""Jobs of the batch engine, their results, and the engine's load, as plain values."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.select import Selection
from cloud_anchor.serve.errors import ServiceError
from payload import Base, Codec


@dataclass(frozen=True)
class ServedPayload:
    """One payload of a request.

    data:    the encoded payload. anchors: their number. length: of the response in tokens, where known.
    step:    diffusion steps run of `total_steps`. canvas: response positions.
    delta:   the payload adds to the one before it. last: no more will follow.
    more:    a payload of the same step follows that adds to this one.
    """

    data: bytes
    anchors: int
    length: int | None
    step: int
    total_steps: int
    canvas: int
    delta: bool
    last: bool
    more: bool = False


@dataclass(frozen=True)
class CanvasStep:
    """The run of a watched job after one of its steps. last: no step follows."""

    run: Denoised
    last: bool = False


JobEvent = ServedPayload | CanvasStep | ServiceError


class ChainBytes(NamedTuple):
    """Bounds of a chain: bytes of each payload, and the number of payloads."""

    each: int
    payloads: int


@dataclass(eq=False)
class Job:
    """One request in the engine.

    prompt_ids:    the prompt as the diffusion model reads it.
    edge_prompt_ids: as the edge model reads it, where that has another vocabulary.
    payload_steps: step counts after which a payload is encoded, ascending.
    time_limit:    seconds in which the last payload has to be there. deadline: the same as time.monotonic().
    deliver:       called from an engine thread; the last call brings a ServedPayload that is `last`, or an
                   error.
    codec:         label of the codec of every payload. confidence: payloads carry how sure the model is.
    self_contained: the first payload of every step can be decoded without the one before it.
    chain:         instead of one payload of a step, a chain of them (see `selection.chain`).
    client:        who asked: a key's name or an address; empty for the service itself.
    rows:          of the batch, whose place it takes: more than one for a long prompt.
    watched:       the run after each of `payload_steps` is delivered, and a payload only after the last.
    cancelled:     set where no client waits for it any more.
    steps_left:    of those planned; 0 once the answer is done.
    kind:          the configuration but for canvas and steps: jobs of a kind run about as many steps.
    """

    prompt_ids: Sequence[int]
    config: DenoiseConfig
    payload_steps: tuple[int, ...]
    selection: Selection
    time_limit: float
    deliver: Callable[[JobEvent], None]
    codec: str = Codec.COMPACT.label
    confidence: bool = True
    self_contained: bool = False
    chain: ChainBytes | None = None
    client: str = ""
    rows: int = 1
    watched: bool = False
    cancelled: bool = False
    base: Base | None = None
    edge_prompt_ids: tuple[int, ...] | None = None
    steps_left: int = field(init=False)
    deadline: float = field(init=False)
    kind: DenoiseConfig = field(init=False)

    def __post_init__(self) -> None:
        self.steps_left = self.planned
        self.deadline = time.monotonic() + self.time_limit
        self.kind = replace(self.config, canvas=1, steps=None)

    def left(self) -> float:
        """Seconds until its deadline."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def planned(self) -> int:
        """Steps that it runs if it does not stop before."""
        return self.payload_steps[-1]
