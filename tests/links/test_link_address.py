"""Addresses of links: what is right opens, what is wrong has one clear error."""

from __future__ import annotations

import sys

import pytest

from edge_runtime.errors import LinkError, UsageError
from links import open_link
from links.kinds import KINDS, parse_address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "udp",
        "carrier-pigeon:home",
        "udp:host",
        "udp::9",
        "udp:host:",
        "udp:host:0",
        "udp:host:70000",
        "udp:a:b:9",
        "udp:host:²",
        "udp-listen:host:x",
        "udp:host:9?largest",
        "udp:host:9?speed=9",
        "udp:host:9?largest=9&largest=8",
        "udp:host:9?largest=0",
        "udp:host:9?largest=1.5",
        "udp:host:9?price=nan",
        "udp:host:9?price=-1",
        "udp:host:9?profile=smoke",
        "meshtastic:",
        "meshtastic:/dev/ttyUSB0?to=me",
        "meshtastic:/dev/ttyUSB0?channel=9",
        "meshtastic-tcp-listen:host?to=!00000001",
        "meshtastic-tcp:",
    ],
)
def test_bad_addresses(address: str) -> None:
    with pytest.raises(UsageError):
        open_link(address)


def test_options_change_the_profile() -> None:
    with open_link("udp:127.0.0.1:9?profile=sbd&price=0.05&currency=EUR&largest=300") as link:
        assert (link.largest, link.largest_received) == (300, 270)
        money, tariff = link.cost(120).money, link.profile.tariff
    assert (money, tariff.currency, tariff.name) == (pytest.approx(0.15), "EUR", "as given")


def test_every_kind_has_an_example_that_is_right() -> None:
    for name, kind in KINDS.items():
        assert parse_address(kind.example).kind == name


@pytest.mark.parametrize(("address", "missing"), [("meshtastic-tcp:host", "meshtastic.tcp_interface")])
def test_an_extra_that_is_missing(address: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(LinkError):
        open_link(address)
