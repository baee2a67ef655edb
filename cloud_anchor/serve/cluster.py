"""What runs on many machines, and how much of it, as the environment says.

Knows names and defaults. Does not know Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.serve.settings import Limits

PREFIX = "CLOUD_ANCHOR_"


@dataclass(frozen=True)
class Cluster:
    """What runs and how much of it.

    gpus, cpus: of each engine, whole or in parts. min_engines, max_engines: bounds of the autoscaling.
    fronts:     processes that speak HTTP.
    """

    model: str = "tiny"
    edge: str | None = None
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
    def of(cls, environment: Mapping[str, str]) -> Cluster:
        """Reads CLOUD_ANCHOR_*; raises RequestError for a value of another kind."""
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
        cluster = cls(**given)
        if not 0 < cluster.min_engines <= cluster.max_engines:
            raise RequestError(
                f"engines: expected 1 <= {PREFIX}MIN_ENGINES <= {PREFIX}MAX_ENGINES, "
                f"found {cluster.min_engines} and {cluster.max_engines}"
            )
        return cluster

    @property
    def limits(self) -> Limits:
        return Limits(batch=self.batch, queue=self.queue, deadline=self.deadline)
