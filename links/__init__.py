"""Links that carry one short frame at a time: what a frame costs, how it is sent and received.

    from links import open_link

    with open_link("udp:gateway.example.com:7777?profile=lorawan-sf10") as link:
        link.send(frame)
        answer = link.receive(timeout=30)

Needs the standard library alone; a radio, a modem or pictures need an extra of their own (see `README.md`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports

if TYPE_CHECKING:
    from links.datagram import Datagram, FrameCost, Link, LinkClock, Traffic
    from links.duty import Duty
    from links.kinds.emulated import EmulatedLink, Emulation
    from links.kinds.opening import open_link
    from links.profiles import LINK_PROFILES, LinkProfile, Tariff

__all__ = [
    "LINK_PROFILES",
    "Datagram",
    "Duty",
    "EmulatedLink",
    "Emulation",
    "FrameCost",
    "Link",
    "LinkClock",
    "LinkProfile",
    "Tariff",
    "Traffic",
    "open_link",
]

_MODULES = {
    "Duty": "duty",
    "EmulatedLink": "kinds.emulated",
    "Emulation": "kinds.emulated",
    "LINK_PROFILES": "profiles",
    "LinkProfile": "profiles",
    "Tariff": "profiles",
    "open_link": "kinds.opening",
}
"""Modules of the names that are not in `datagram`."""

if not TYPE_CHECKING:  # a type checker reads the imports above, and reports unknown names
    __getattr__ = lazy_exports(__name__, {name: _MODULES.get(name, "datagram") for name in __all__})
