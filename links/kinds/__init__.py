"""The kinds of links that there are, and `open_link`, which opens the one at an address.

Responsible for the table. Not responsible for an address's parts (see `address`) or for what a kind does
with its place (see the modules beside this one).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge_runtime.errors import UsageError
from links.address import COMMON, LinkAddress
from links.datagram import Link


@dataclass(frozen=True)
class LinkKind:
    """A kind of link: how it is opened, an address as an example, and its own options."""

    open: Callable[[LinkAddress], Link]
    example: str
    options: tuple[str, ...] = ()


def _udp(address: LinkAddress) -> Link:
    from links.kinds.udp import UdpLink

    service = address.kind == "udp-listen"
    host, port = address.host_and_port(host_needed=not service)
    return UdpLink(host, port, service=service, profile=address.profile("udp"))


def _meshtastic(address: LinkAddress) -> Link:
    from links.kinds.meshtastic import open_meshtastic

    return open_meshtastic(address)


_RADIO = ("channel", "text", "to")

KINDS: dict[str, LinkKind] = {
    "udp": LinkKind(_udp, "udp:gateway.example.com:7777"),
    "udp-listen": LinkKind(_udp, "udp-listen:7777"),
    "meshtastic": LinkKind(_meshtastic, "meshtastic:/dev/ttyUSB0?to=!a1b2c3d4", _RADIO),
    "meshtastic-listen": LinkKind(_meshtastic, "meshtastic-listen:/dev/ttyUSB0", _RADIO),
    "meshtastic-tcp": LinkKind(_meshtastic, "meshtastic-tcp:radio.local", _RADIO),
    "meshtastic-tcp-listen": LinkKind(_meshtastic, "meshtastic-tcp-listen:radio.local:4403", _RADIO),
}
"""Kinds of links by name. Each imports what it needs when it is opened."""


def parse_address(text: str) -> LinkAddress:
    """Raises UsageError where it is not an address of a known kind with options that this kind has."""
    address = LinkAddress.split(text)
    if address.kind not in KINDS or ":" not in text:
        raise UsageError(
            f"link: expected one of {', '.join(KINDS)} with a colon after it, as in {KINDS['udp'].example}; "
            f"found {text!r:.100}"
        )
    known = sorted({*COMMON, *KINDS[address.kind].options})
    for name in address.options:
        if name not in known:
            raise UsageError(
                f"link: expected options of {address.kind}, {', '.join(known)}; found {name!r:.100}"
            )
    return address


def open_link(address: str) -> Link:
    """Open the link at an address, such as udp:HOST:PORT?profile=nb-iot-ntn.

    Raises UsageError for an address that is wrong, LinkError where the link cannot be opened or an extra is
    not installed.
    """
    parsed = parse_address(address)
    return KINDS[parsed.kind].open(parsed)
