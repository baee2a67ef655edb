"""The gateway's bundle: over the local network, and its name for a device that has another."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from edge_runtime.bundle.__main__ import main as bundle
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.errors import UsageError
from links.frames.reply import RefusalCode
from links.gateway.__main__ import serve_folder
from links.gateway.refusals import refusal_of
from payload.errors import ContractMismatchError
from tests.shipped import TINY_BUNDLE


def test_a_device_gets_it_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path))
    place = serve_folder(TINY_BUNDLE, 0)
    port = int(place.partition("/")[0])
    assert bundle(["get", *f"http://127.0.0.1:{place}".split(), "--quiet"]) == 0
    for path in ("/../README.md", "/%2e%2e/testbed-qwen/bundle.json", "//etc/passwd"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10)
        assert refused.value.code == 404
    with pytest.raises(UsageError):
        serve_folder(TINY_BUNDLE, port)
    mine = Bundle.open(TINY_BUNDLE, verify=False)
    assert Bundle.open(tmp_path / TINY_BUNDLE.name).contract == mine.contract


@pytest.mark.parametrize(("name", "told"), [("smollm2", "smollm2"), ("x" * 99, "x" * 32), ("größe", "")])
def test_a_device_with_another_is_told_its_name(name: str, told: str) -> None:
    refusal = refusal_of(ContractMismatchError("other"), 7, "0123456789abcdef", name)
    assert (refusal.code, refusal.identity, refusal.bundle) == (RefusalCode.OTHER_CONTRACT, "01234567", told)
