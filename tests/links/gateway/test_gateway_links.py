"""A question and its answer over every kind of link that this machine can have, with the shipped pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cloud_anchor.pipeline import Pipeline
from lab.pairs.tiny.tasks import held_out_problems
from links import open_link
from links.ask import main as ask_main
from links.kinds.udp import UdpLink
from tests.cloud_anchor.serve.service_runner import LIMITS, gateway_on, local, served

Carrier = Callable[[Path], AbstractContextManager[tuple[str, str]]]
"""Addresses of the service's end and of the device's, between which messages are carried."""

QUESTION = held_out_problems(1)[0].prompt


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pipeline = Pipeline.open("tiny")
    with served(local(pipeline, LIMITS, pipeline.plan())) as client:
        yield client.url


@contextmanager
def by_udp(folder: Path) -> Iterator[tuple[str, str]]:
    with UdpLink("127.0.0.1", 0, service=True) as free:
        address = free.address
    yield f"udp-listen:{address}?profile=lorawan-sf10", f"udp:{address}?profile=lorawan-sf10"


@contextmanager
def by_meshtastic(folder: Path) -> Iterator[tuple[str, str]]:
    pytest.importorskip("meshtastic", reason="the extra meshtastic is not installed")
    from tests.links.mesh_nodes import Air, MeshNode

    air = Air()
    service, device = MeshNode(air, 0x0A1B2C3D), MeshNode(air, 0x11223344)
    yield f"meshtastic-tcp-listen:127.0.0.1:{service.port}", f"meshtastic-tcp:127.0.0.1:{device.port}"
    for node in air.nodes:
        node.close()


@pytest.mark.parametrize("link", [by_udp, by_meshtastic])
def test_a_question_is_answered(
    link: Callable[[Path], AbstractContextManager[tuple[str, str]]],
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with link(tmp_path) as (listening, asking), open_link(listening) as near, gateway_on(near, url):
        code = ask_main(
            [QUESTION, "--link", asking, "--edge", "tiny-qwen", "--threads", "1", "--no-fallback", "--json"]
        )
    out, err = capsys.readouterr()
    assert code == 0, err
    found = json.loads(out)
    sent, received = found["link"]["sent"], found["link"]["received"]
    assert len(found["service"]["payload_bytes"]) == 1
    # One frame each way, or on a slow machine a repeat.
    assert sent["bytes"] // sent["frames"] + received["bytes"] // received["frames"] <= 100
