"""Addresses of links: what is right opens, what is wrong has one clear error."""

from __future__ import annotations

import sys

import pytest

from edge_runtime.errors import LinkError, UsageError
from links import open_link
from links.kinds import KINDS, parse_address


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("", "one of .*udp.*; found ''"),
        ("udp", "with a colon"),
        ("carrier-pigeon:home", "found 'carrier-pigeon:home'"),
        ("udp:host", "udp:HOST:PORT"),
        ("udp::9", "udp:HOST:PORT"),
        ("udp:host:", "udp:HOST:PORT"),
        ("udp:host:0", "udp:HOST:PORT"),
        ("udp:host:70000", "udp:HOST:PORT"),
        ("udp:a:b:9", "udp:HOST:PORT"),
        ("udp:host:²", "udp:HOST:PORT"),
        ("udp-listen:host:x", "HOST:PORT or PORT"),
        ("udp:host:9?largest", "name=value"),
        ("udp:host:9?speed=9", "found 'speed'"),
        ("udp:host:9?largest=9&largest=8", "once each"),
        ("udp:host:9?largest=0", "whole number of 1 to 1200"),
        ("udp:host:9?largest=1.5", "whole number"),
        ("udp:host:9?price=nan", "price: expected a number"),
        ("udp:host:9?price=-1", "price: expected a number"),
        ("udp:host:9?profile=smoke", "expected a profile of udp"),
    ],
)
def test_bad_addresses(address: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        open_link(address)


def test_options_change_the_profile() -> None:
    with open_link("udp:127.0.0.1:9?profile=sbd&price=0.05&currency=EUR&largest=300") as link:
        assert (link.largest, link.largest_received) == (300, 270)
        cost = link.cost(120)
    assert (cost.money, cost.currency, cost.tariff) == (pytest.approx(0.15), "EUR", "as given")


def test_every_kind_has_an_example_that_is_right() -> None:
    for name, kind in KINDS.items():
        assert parse_address(kind.example).kind == name


@pytest.mark.parametrize(
    ("address", "missing", "extra"),
    [("meshtastic-tcp:host", "meshtastic.tcp_interface", "meshtastic"), ("qr:folder", "segno", "qr")],
)
def test_an_extra_that_is_missing(
    address: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(LinkError, match=rf"pip install '\.\[{extra}\]'"):
        open_link(address)
