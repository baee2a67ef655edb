"""Settings of a Ray Serve deployment, read from environment variables.

Responsible for names, defaults and ranges. Not responsible for Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.serve.settings import Limits

PREFIX = "CLOUD_ANCHOR_"


@dataclass(frozen=True)
class ClusterSettings:
    """Models, limits and resources of a deployment.

    model, edge, edge_checkpoint, device, dtype: as `Pipeline.open` takes them.
    fraction:    share of the steps of a request that does not set any.
    keys:        API keys, separated by commas.
    gpus, cpus:  of each engine replica, whole or fractions.
    min_engines, max_engines: bounds of the autoscaling.
    fronts:      HTTP replicas.
    """

    model: str = "testbed"
    edge: str | None = None
    edge_checkpoint: str | None = None
    device: str | None = None
    dtype: str | None = None
    fraction: float = 0.1
    batch: int = 8
    queue: int = 64
    deadline: float = 30.0
    keys: str = ""
    min_engines: int = 1
    max_engines: int = 1
    gpus: float = 0.0
    cpus: float = 1.0
    fronts: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ClusterSettings:
        """The settings in CLOUD_ANCHOR_*; raises RequestError for a value of another type or out of range."""
        given: dict[str, Any] = {}
        for each in fields(cls):
            text = environment.get(PREFIX + each.name.upper())
            if text is None:
                continue
            kind = {"int": int, "float": float}.get(str(each.type), str)
            try:
                given[each.name] = kind(text)
            except ValueError:
                raise RequestError(
                    f"{PREFIX}{each.name.upper()}: expected a value such as {each.default!r}, found {text!r}"
                ) from None
        settings = cls(**given)
        if not 0 < settings.min_engines <= settings.max_engines:
            raise RequestError(
                f"engines: expected 1 <= {PREFIX}MIN_ENGINES <= {PREFIX}MAX_ENGINES, "
                f"found {settings.min_engines} and {settings.max_engines}"
            )
        return settings

    @property
    def limits(self) -> Limits:
        return Limits(batch=self.batch, queue=self.queue, deadline=self.deadline)
