"""The gateway's bundle: over the local network, and its name for a device that has another."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from edge_runtime.bundle.__main__ import main as bundle
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.errors import UsageError
from links.frames import RefusalCode
from links.gateway.bundle_files import serve_bundle
from links.gateway.refusals import refusal_of
from payload.errors import ContractMismatchError
from tests.shipped import TINY_BUNDLE


def test_a_device_gets_it_as_from_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path))
    mine = Bundle.open(TINY_BUNDLE, verify=False)
    server = serve_bundle(mine, 0)
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert bundle(["get", url, "--quiet"]) == 0
        for path in ("/", "/v1/bundle/", "/v1/bundle/../README.md", "/v1/bundle/%2Fetc%2Fpasswd", "/v1"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url + path, timeout=10)
            assert refused.value.code == 404
        with pytest.raises(UsageError):
            serve_bundle(mine, server.server_address[1])
    finally:
        server.shutdown()
    assert Bundle.open(tmp_path / TINY_BUNDLE.name).contract == mine.contract


@pytest.mark.parametrize(("name", "told"), [("smollm2", "smollm2"), ("x" * 99, "x" * 32), ("größe", "")])
def test_a_device_with_another_is_told_its_name(name: str, told: str) -> None:
    refusal = refusal_of(ContractMismatchError("other"), 7, "0123456789abcdef", name)
    assert (refusal.code, refusal.identity, refusal.bundle) == (RefusalCode.OTHER_CONTRACT, "01234567", told)
