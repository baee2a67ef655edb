"""Settings of a Ray Serve deployment, read from environment variables.

Responsible for names, defaults and ranges. Not responsible for Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.serve.settings import Limits
from cloud_anchor.shipped import DEFAULT_MODEL

PREFIX = "CLOUD_ANCHOR_"

OPEN = "none"
"""In place of keys: everyone is admitted. The word has to be said, since a variable is easily left empty."""


@dataclass(frozen=True)
class ClusterSettings:
    """Models, limits and resources of a deployment. Raises RequestError for values out of range.

    model, edge, backend, backend_key, device, dtype: as `Pipeline.open` takes them. With a
                 backend the engines have the edge model alone, and need no GPU.
    fraction:    share of the steps of a request that does not set any.
    keys:        API keys, separated by commas, or `none` for a service that admits everyone.
    gpus, cpus:  of each engine replica, whole or fractions.
    min_engines, max_engines: bounds of the autoscaling.
    fronts:      HTTP replicas.
    """

    model: str = DEFAULT_MODEL
    edge: str | None = None
    backend: str | None = None
    backend_key: str | None = None
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
        return cls(**given)

    def __post_init__(self) -> None:
        if not 0 < self.min_engines <= self.max_engines:
            raise RequestError(
                f"engines: expected 1 <= {PREFIX}MIN_ENGINES <= {PREFIX}MAX_ENGINES, "
                f"found {self.min_engines} and {self.max_engines}"
            )
        if not self.keys.strip(" ,"):
            raise RequestError(
                f"{PREFIX}KEYS: expected keys separated by commas, found none. Make one: "
                f"openssl rand -hex 24; to admit everyone, say so: {PREFIX}KEYS={OPEN}"
            )

    @property
    def api_keys(self) -> tuple[str, ...]:
        """The keys; empty where everyone is admitted."""
        if self.keys.strip() == OPEN:
            return ()
        return tuple(key.strip() for key in self.keys.split(",") if key.strip())

    @property
    def limits(self) -> Limits:
        return Limits(batch=self.batch, queue=self.queue, deadline=self.deadline)
