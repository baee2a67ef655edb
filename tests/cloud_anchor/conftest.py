"""The models of the cloud side's tests: one diffusion model before edge models of its own and of another
vocabulary, and a service of the first pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cloud_anchor.pipeline import Pipeline
from edge_runtime.runtime import EdgeRuntime

if TYPE_CHECKING:
    from tests.cloud_anchor.serve.service_runner import Client


@pytest.fixture(scope="session")
def pipeline(dream_folder: Path, edge_bundle: Path) -> Pipeline:
    return Pipeline.open(str(dream_folder), edge=edge_bundle, device="cpu")


@pytest.fixture(scope="session")
def edge(edge_bundle: Path) -> EdgeRuntime:
    return EdgeRuntime.open(edge_bundle, threads=1)


@pytest.fixture(scope="session")
def across(dream_folder: Path, other_edge_bundle: Path) -> Pipeline:
    return Pipeline.open(str(dream_folder), edge=other_edge_bundle, device="cpu")


@pytest.fixture(scope="session")
def other_edge(other_edge_bundle: Path) -> EdgeRuntime:
    return EdgeRuntime.open(other_edge_bundle, threads=1)


@pytest.fixture(scope="module")
def client(pipeline: Pipeline) -> Iterator[Client]:
    from tests.cloud_anchor.serve.service_runner import (
        local,
        served,
    )  # not every installation has the service

    with served(local(pipeline)) as made:
        yield made
