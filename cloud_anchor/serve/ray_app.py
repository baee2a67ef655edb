"""The service on many machines: `serve run cloud_anchor.serve.ray_app:app` (Ray Serve).

Knows deployments: fronts that speak HTTP, and engines that each have a model and a GPU; how engines are added
as requests queue up; and that a request whose engine dies is given to another one. Does not know HTTP (see
`serve.app`) or models (see `serve.engine`): both are the same as on one machine.

    phones -> Ray's proxies -> Front (any number, no GPU) -> Engine (one a GPU, continuous batching)

What runs is set by the environment: CLOUD_ANCHOR_MODEL and the other fields of `serve.cluster.Cluster`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError

from cloud_anchor.serve.backend import AnchorRequest, ServiceInfo
from cloud_anchor.serve.cluster import Cluster
from cloud_anchor.serve.errors import ServiceError, internal, overloaded, too_late
from cloud_anchor.serve.jobs import Event, Ready
from cloud_anchor.serve.settings import MIN_DEADLINE

ENGINE, FRONT = "Engine", "Front"
PATIENCE = 0.2
"""Seconds before a request is given to another engine; twice as long before each further one."""

START_SECONDS = 1800.0
"""Within which the first engine has to be there: a large model is long in coming."""


class EngineReplica:
    """One model on one GPU."""

    def __init__(self, cluster: Cluster) -> None:
        from cloud_anchor.pipeline import DEFAULT_PLAN, Pipeline
        from cloud_anchor.sampling.sampler import DenoiseConfig, steps_for
        from cloud_anchor.serve.local import Local

        pipeline = Pipeline.open(cluster.model, edge=cluster.edge, device=cluster.device, dtype=cluster.dtype)
        canvas, total = pipeline.model.plan or DEFAULT_PLAN
        config = DenoiseConfig(canvas=canvas, total_steps=total, steps=steps_for(cluster.fraction, total))
        self._backend = Local(pipeline, config, cluster.limits, name=cluster.model)
        self._opening: asyncio.Task[None] | None = None

    async def _open(self) -> None:
        """Waits for the warm-up, which the first that asks begins: only now is there an event loop."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._backend.open())
        await asyncio.shield(self._opening)

    async def facts(self) -> ServiceInfo:
        await self._open()
        return self._backend.facts

    async def pid(self) -> int:
        return os.getpid()

    async def check_health(self) -> None:
        """Called by Ray Serve, which replaces an engine for which this raises."""
        if self._opening is not None and (trouble := self._backend.state()) is not None:
            raise RuntimeError(trouble)

    async def payloads(self, order: AnchorRequest) -> AsyncGenerator[Event]:
        """As `Backend.payloads`, with refusals as values: an exception would lose its kind on the way."""
        await self._open()
        try:
            async for ready in self._backend.payloads(order):
                yield ready
        except ServiceError as error:
            yield error


class Engines:
    """A `Backend` over the engines of a cluster, seen from a front."""

    facts: ServiceInfo

    def __init__(self, handle: Any = None) -> None:
        self._handle = handle

    async def open(self) -> None:
        if self._handle is None:
            self._handle = serve.get_deployment_handle(ENGINE)
        async with asyncio.timeout(START_SECONDS):
            self.facts = await self._handle.facts.remote()
        self._stream = self._handle.options(stream=True)

    async def payloads(self, order: AnchorRequest) -> AsyncGenerator[Ready]:
        allowed = self.facts.limits.deadline if order.deadline is None else order.deadline
        end = time.monotonic() + allowed
        reached = 0  # the step of the last payload that was sent
        pause = PATIENCE
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise too_late(allowed)
            # Another engine's payloads may differ in rounding from what was sent, so none may add to that.
            again = replace(order, deadline=max(MIN_DEADLINE, left), whole=order.whole or reached > 0)
            stream = self._stream.payloads.remote(again)
            try:
                async for event in stream:
                    if isinstance(event, ServiceError):
                        raise event
                    if event.step > reached:
                        reached = event.step
                        yield event
                return
            except BackPressureError:
                raise overloaded("a place in the queue of some engine", "none", 1.0) from None
            except RayTaskError as error:
                raise internal(error) from error
            except RayError:
                # The engine is gone, and with it the request: it was not lost while somebody remembers it.
                await asyncio.sleep(min(pause, max(0.0, end - time.monotonic())))
                pause *= 2
            finally:
                stream.cancel()

    def state(self) -> str | None:
        return None if hasattr(self, "facts") else "the engines are being started"

    def figures(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        """Nothing: the engines end by themselves."""


def build(cluster: Cluster) -> Any:
    """The application for Ray Serve, to be given to `serve.run`."""

    def front() -> Any:
        """The HTTP side; called in each of its processes."""
        from cloud_anchor.serve.app import create_app
        from cloud_anchor.serve.keys import Keys

        keys = Keys(key.strip() for key in cluster.keys.split(",") if key.strip())
        return create_app(Engines(), keys, cluster.limits)

    places = cluster.batch + cluster.queue
    engine = serve.deployment(
        EngineReplica,
        name=ENGINE,
        ray_actor_options={"num_gpus": cluster.gpus, "num_cpus": cluster.cpus},
        autoscaling_config={
            "min_replicas": cluster.min_engines,
            "max_replicas": cluster.max_engines,
            # A full batch a GPU is what it is there for; what waits beside it asks for another GPU.
            "target_ongoing_requests": cluster.batch,
            "upscale_delay_s": 5,
            "downscale_delay_s": 300,
        },
        max_ongoing_requests=places,
        max_queued_requests=places,
        health_check_period_s=5,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=cluster.deadline + 15,
    )
    entry = serve.deployment(
        serve.ingress(front)(),
        name=FRONT,
        num_replicas=cluster.fronts,
        ray_actor_options={"num_cpus": min(1.0, cluster.cpus)},
        max_ongoing_requests=4 * places * cluster.max_engines,
        graceful_shutdown_timeout_s=cluster.deadline + 15,
    )
    return entry.bind(engine.bind(cluster))


app = build(Cluster.of(os.environ))
