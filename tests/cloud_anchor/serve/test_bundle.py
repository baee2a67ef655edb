"""A service gives its devices the bundle that it was started with, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.serve.http.keys import ApiKeys
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.install import pull
from edge_runtime.client.client import Client as ServiceClient
from edge_runtime.errors import CloudRefusedError
from tests.cloud_anchor.serve.service_runner import Client, local, served

KEY = "k" * 24


@pytest.fixture(scope="module")
def client(pipeline: Pipeline, edge_bundle: Path) -> Iterator[Client]:
    with served(local(pipeline), keys=ApiKeys([KEY]), bundle=Bundle.open(edge_bundle)) as made:
        yield made


def get(client: Client, path: str, **headers: str):  # type: ignore[no-untyped-def]
    return client.ask("GET", path, Authorization=f"Bearer {KEY}", **headers)


def test_the_list_is_the_manifests(client: Client, edge_bundle: Path, pipeline: Pipeline) -> None:
    assert get(client, "/v1/contract").json["bundle"] == "/v1/bundle"
    found = get(client, "/v1/bundle").json
    assert found["name"] == edge_bundle.name
    assert found["identity"] == pipeline.form.contract.identity
    assert set(found["files"]) == {"bundle.json", *Bundle.open(edge_bundle).manifest.records}
    for name, record in found["files"].items():
        data = get(client, f"/v1/bundle/{name}").body
        assert record == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        assert data == (edge_bundle / name).read_bytes()
    assert found["bytes"] == sum(record["size"] for record in found["files"].values())


def test_parts_of_a_file(client: Client, edge_bundle: Path) -> None:
    path, data = "/v1/bundle/tokenizer.json", (edge_bundle / "tokenizer.json").read_bytes()
    for asked, body in (("bytes=100-", data[100:]), ("bytes=5-9", data[5:10]), ("bytes=0-0", data[:1])):
        reply = get(client, path, Range=asked)
        assert (reply.status, reply.body) == (206, body)
        assert reply.headers["content-range"].endswith(f"/{len(data)}")
    assert get(client, path, Range=f"bytes={len(data)}-").status == 416


@pytest.mark.parametrize("name", ["", "none", "../a.py", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "int8"])
def test_no_other_file_is_given(client: Client, name: str) -> None:
    assert get(client, f"/v1/bundle/{name}").status == 404


def test_a_key_is_needed_where_there_are_keys(client: Client) -> None:
    assert client.ask("GET", "/v1/bundle/tokenizer.json").status == 401
    assert client.ask("GET", "/v1/bundle").status == 401


def test_a_device_pulls_it(client: Client, edge_bundle: Path, tmp_path: Path) -> None:
    path = pull(ServiceClient(client.url, KEY), root=tmp_path)
    assert Bundle.open(path).manifest == Bundle.open(edge_bundle).manifest


def test_a_service_without_a_bundle_says_so(pipeline: Pipeline, tmp_path: Path) -> None:
    with served(local(pipeline)) as client:
        assert client.ask("GET", "/v1/contract").json["bundle"] is None
        with pytest.raises(CloudRefusedError):
            pull(ServiceClient(client.url), root=tmp_path)
        assert client.ask("GET", "/v1/bundle/bundle.json").status == 404
