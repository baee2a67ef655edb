"""Settings of a Ray Serve deployment (see `ray_app`), read from environment variables."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, Field, ValidationError

from cloud_anchor.errors import RequestError, require
from cloud_anchor.serve.http.keys import OPEN
from cloud_anchor.serve.settings import Limits
from cloud_anchor.shipped import DEFAULT_MODEL

PREFIX = "CLOUD_ANCHOR_"


class ClusterSettings(BaseModel, frozen=True):
    """Models, limits and resources of a deployment.

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
    min_engines: int = Field(1, ge=1)
    max_engines: int = 1
    gpus: float = 0.0
    cpus: float = 1.0
    fronts: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ClusterSettings:
        """The settings in CLOUD_ANCHOR_*; raises RequestError for a value of another type or out of range."""
        names = {name: PREFIX + name.upper() for name in cls.model_fields}
        try:
            found = cls.model_validate(
                {name: environment[variable] for name, variable in names.items() if variable in environment}
            )
        except ValidationError as error:
            first = error.errors()[0]
            variable, says = PREFIX + str(first["loc"][0]).upper(), first["msg"]
            raise RequestError(
                f"{variable}: expected another value, found {first['input']!r}: {says}"
            ) from None
        most = f"at least {PREFIX}MIN_ENGINES, {found.min_engines}"
        require(f"{PREFIX}MAX_ENGINES", found.min_engines <= found.max_engines, most, found.max_engines)
        make = f"keys separated by commas (openssl rand -hex 24), or {OPEN} to admit everyone"
        require(f"{PREFIX}KEYS", bool(found.keys.strip(" ,")), make, found.keys)
        return found

    def require_resources(self, cluster: Mapping[str, float]) -> None:
        """Raises RequestError where a cluster has fewer processors or GPUs than its least engines take."""
        for what, each, fronts in (("CPU", self.cpus, self.fronts * self.front_cpus), ("GPU", self.gpus, 0)):
            needed, there = self.min_engines * each + fronts, cluster.get(what, 0)
            one = f"{PREFIX}{what}S={each:g}"
            expected = (
                f"{needed:g} for {PREFIX}MIN_ENGINES={self.min_engines} of {one} and {self.fronts} fronts"
            )
            require(f"{what}s of the cluster", there >= needed, f"{expected} (a share will do)", f"{there:g}")

    @property
    def front_cpus(self) -> float:
        """Of each front."""
        return min(1.0, self.cpus)

    @property
    def api_keys(self) -> tuple[str, ...]:
        return tuple(key.strip() for key in self.keys.split(",") if key.strip())

    @property
    def limits(self) -> Limits:
        return Limits(batch=self.batch, queue=self.queue, deadline=self.deadline)
