"""The OpenAPI description against the service, by schemathesis."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.serve.http.keys import ApiKeys
from tests.cloud_anchor.serve.service_runner import LIMITS, PLAN, Client, local, served

ROOT = Path(__file__).resolve().parents[3]
SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
KEY = "k" * 24


@pytest.fixture(scope="module")
def client(pipeline: Pipeline) -> Iterator[Client]:
    limits = replace(LIMITS, body_bytes=65_536)
    with served(local(pipeline, limits, replace(PLAN, total_steps=8)), limits, ApiKeys([KEY])) as made:
        yield made


@pytest.mark.slow
@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="schemathesis is not installed")
def test_schemathesis_finds_nothing(client: Client, tmp_path: Path) -> None:
    command = [str(SCHEMATHESIS), "run", f"{client.url}/openapi.json", "--checks", "all", "--no-color"]
    command += ["-H", f"Authorization: Bearer {KEY}", "--max-examples", "10", "--seed", "1"]
    shutil.copy(ROOT / "schemathesis.toml", tmp_path)
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert "Tested: 11" in done.stdout, done.stdout[-3000:]


def test_the_description_has_the_ranges_of_the_model(client: Client) -> None:
    schema = client.ask("GET", "/openapi.json").json
    fields = schema["components"]["schemas"]["AnchorsRequest"]["properties"]
    assert (fields["steps"]["minimum"], fields["steps"]["maximum"]) == (1, 8)
    assert fields["deadline"]["maximum"] == LIMITS.deadline
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            answers = set(operation["responses"])
            assert {"200", "408", "413", "500"} <= answers, path
            assert ("401" in answers) == path.startswith("/v1/")
