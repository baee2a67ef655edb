"""The service on Ray Serve, on many machines: `serve run cloud_anchor.serve.ray_app:app`.

Responsible for the deployments (HTTP fronts, and engine replicas with a model and a GPU each), their
autoscaling, and retries of requests whose engine has died. Not responsible for HTTP (see `serve.http.app`) or
models (see `serve.batching.engine`): both are the same as on one machine.

    devices -> Ray's proxies -> Front (any number, no GPU) -> Engine (one per GPU, continuous batching)

Settings come from environment variables: CLOUD_ANCHOR_MODEL and the other fields of
`serve.cluster.ClusterSettings`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import BackPressureError

from cloud_anchor.serve.batching.backend import AnchorRequest, ServiceInfo
from cloud_anchor.serve.batching.forecast import InProgress
from cloud_anchor.serve.batching.jobs import JobEvent, ServedPayload
from cloud_anchor.serve.cluster import ClusterSettings
from cloud_anchor.serve.errors import ServiceError, internal, overloaded, too_late
from cloud_anchor.serve.settings import MIN_DEADLINE

ENGINE, FRONT = "Engine", "Front"
FIRST_BACKOFF = 0.2
"""Seconds before a request is retried on another engine; doubled before each further retry."""

START_SECONDS = 1800.0
"""Time in which the first engine has to be ready; loading a large model takes minutes."""


class EngineReplica:
    """Replica with one pipeline on one GPU."""

    def __init__(self, settings: ClusterSettings) -> None:
        from cloud_anchor.pipeline import Pipeline
        from cloud_anchor.sampling.config import steps_for
        from cloud_anchor.serve.batching.local import LocalBackend

        pipeline = Pipeline.open(
            settings.model,
            edge=settings.edge,
            backend=settings.backend,
            backend_key=settings.backend_key,
            device=settings.device,
            dtype=settings.dtype,
            answers=settings.batch,
        )
        plan = pipeline.plan()
        config = replace(plan, steps=plan.steps or steps_for(settings.fraction, plan.total_steps))
        self._backend = LocalBackend(pipeline, config, settings.limits, name=settings.model)
        self._opening: asyncio.Task[None] | None = None

    async def _open(self) -> None:
        """Wait for the warm-up, which the first caller starts: there is no event loop before."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._backend.open())
        await asyncio.shield(self._opening)

    async def service_info(self) -> ServiceInfo:
        await self._open()
        return self._backend.info

    async def pid(self) -> int:
        return os.getpid()

    async def check_health(self) -> None:
        """Called by Ray Serve, which replaces a replica for which this raises."""
        if self._opening is not None and (reason := self._backend.state()) is not None:
            raise RuntimeError(reason)

    async def payloads(self, request: AnchorRequest) -> AsyncGenerator[JobEvent]:
        """As `Backend.payloads`, but with errors as values: Ray would wrap an exception in one of its own."""
        await self._open()
        try:
            async for served in self._backend.payloads(request):
                yield served
        except ServiceError as error:
            yield error


class RayBackend:
    """A `Backend` over the engine replicas of a cluster, used by a front."""

    info: ServiceInfo

    def __init__(self, handle: Any = None) -> None:
        self._handle = handle
        self._asked = InProgress()

    async def open(self) -> None:
        if self._handle is None:
            self._handle = serve.get_deployment_handle(ENGINE)
        async with asyncio.timeout(START_SECONDS):
            self.info = await self._handle.service_info.remote()
        self._stream = self._handle.options(stream=True)

    async def payloads(self, request: AnchorRequest) -> AsyncGenerator[ServedPayload]:
        allowed = self.info.limits.deadline if request.deadline is None else request.deadline
        end = time.monotonic() + allowed
        sent = 0  # the last step of which all payloads were sent
        begun = False
        pause = FIRST_BACKOFF
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise too_late(allowed)
            # Another engine's results may differ in rounding, so its payloads must not add to sent ones.
            alone = request.self_contained or begun
            attempt = replace(request, deadline=max(MIN_DEADLINE, left), self_contained=alone)
            stream = self._stream.payloads.remote(attempt)
            try:
                with self._asked.one():
                    async for event in stream:
                        if isinstance(event, ServiceError):
                            raise event
                        if event.step > sent:
                            begun, sent = True, sent if event.more else event.step
                            yield event
                return
            except BackPressureError:
                raise overloaded(
                    "a place in the queue of some engine", "none", self._asked.seconds_left()
                ) from None
            except RayTaskError as error:
                raise internal(error) from error
            except RayError:
                # The engine has died, and its copy of the request with it: try another one.
                await asyncio.sleep(min(pause, max(0.0, end - time.monotonic())))
                pause *= 2
            finally:
                stream.cancel()

    def state(self) -> str | None:
        return None if hasattr(self, "info") else "the engines are being started"

    def broken(self) -> str | None:
        return None  # Ray replaces an engine that dies

    def figures(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        """Nothing to release: Ray ends the engines."""


def build(settings: ClusterSettings) -> Any:
    """The application for `ray.serve.run`."""

    def front() -> Any:
        """The HTTP side; called in each front process."""
        from cloud_anchor.serve.http.app import create_app
        from cloud_anchor.serve.http.keys import ApiKeys

        return create_app(RayBackend(), ApiKeys(settings.api_keys), settings.limits)

    capacity = settings.batch + settings.queue
    engine = serve.deployment(
        EngineReplica,
        name=ENGINE,
        ray_actor_options={"num_gpus": settings.gpus, "num_cpus": settings.cpus},
        autoscaling_config={
            "min_replicas": settings.min_engines,
            "max_replicas": settings.max_engines,
            # A replica is fully used by one batch; what queues beside it calls for another replica.
            "target_ongoing_requests": settings.batch,
            "upscale_delay_s": 5,
            "downscale_delay_s": 300,
        },
        max_ongoing_requests=capacity,
        max_queued_requests=capacity,
        health_check_period_s=5,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=settings.deadline + 15,
    )
    entry = serve.deployment(
        serve.ingress(front)(),
        name=FRONT,
        num_replicas=settings.fronts,
        ray_actor_options={"num_cpus": settings.front_cpus},
        max_ongoing_requests=4 * capacity * settings.max_engines,
        graceful_shutdown_timeout_s=settings.deadline + 15,
    )
    return entry.bind(engine.bind(settings))


def app(_: dict[str, str]) -> Any:
    """The application of the environment's settings, which Ray Serve builds; raises RequestError."""
    settings = ClusterSettings.from_environment(os.environ)
    if ray.is_initialized():  # else Ray Serve would wait, saying little, for what does not come
        settings.require_resources(ray.cluster_resources())
    return build(settings)
