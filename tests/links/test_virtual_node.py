"""Meshtastic against a virtual node of another author: encrypted packets over UDP multicast.

Two nodes of the package `vnode`, one in a process of its own, for a process has one node.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("vnode", reason="the package vnode is not installed (pip install vnode)")

from vnode import VirtualNode

from links.kinds.meshtastic import MeshtasticLink, parse_node

DEVICE, SERVICE = "!11223344", "!0a1b2c3d"

GATEWAY = """
import sys
from types import SimpleNamespace
from vnode import VirtualNode
from links.kinds.meshtastic import MeshtasticLink, parse_node
node = VirtualNode(sys.argv[1])
node.myInfo = SimpleNamespace(my_node_num=node.node_num)
node.start()
with MeshtasticLink(node, service=True) as link:
    print("ready", flush=True)
    while found := link.receive(60):
        link.send(found.data[::-1], found.peer)
"""


def config(folder: Path, node: str) -> Path:
    """A node's settings: a port of multicast that no radio of the neighbourhood uses."""
    folder.mkdir()
    example = Path(sys.modules["vnode"].__file__ or "").with_name("example-node.json")
    settings = json.loads(example.read_text())
    settings["node_id"] = node
    settings["udp"] = {"mcast_group": "239.7.7.7", "mcast_port": 44031}
    settings["broadcasts"]["send_startup_nodeinfo"] = True
    (folder / "node.json").write_text(json.dumps(settings))
    return folder / "node.json"


def test_frames_cross_an_encrypted_mesh(tmp_path: Path) -> None:
    gateway = subprocess.Popen(
        [sys.executable, "-c", GATEWAY, str(config(tmp_path / "gateway", SERVICE))],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert gateway.stdout is not None
        while (line := gateway.stdout.readline()) != "ready\n":
            assert line, "the gateway has ended"
        node = VirtualNode(config(tmp_path / "device", DEVICE))
        node.myInfo = SimpleNamespace(my_node_num=node.node_num)
        node.start()
        frame = bytes(range(200))
        for to in (None, parse_node(SERVICE)):
            link = MeshtasticLink(node, to=to)
            for _ in range(5):  # a node takes a moment until it listens
                link.send(frame)
                if (found := link.receive(3)) is not None:
                    break
            assert found == (frame[::-1], None)
        link.close()
    finally:
        gateway.kill()
        gateway.wait()
