"""Links that carry one short frame at a time: what a frame costs, how it is sent and received.

    from links import open_link

    with open_link("udp:gateway.example.com:7777?profile=lorawan-sf10") as link:
        link.send(frame)
        answer = link.receive(timeout=30)

Needs the standard library alone; a radio, a modem or pictures need an extra of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.lazy import lazy_exports
from common.version import __version__ as __version__

if TYPE_CHECKING:
    from links.datagram import Datagram as Datagram
    from links.datagram import Link as Link
    from links.duty import Duty as Duty
    from links.kinds import open_link as open_link
    from links.profiles import LINK_PROFILES as LINK_PROFILES
    from links.profiles import FrameCost as FrameCost
    from links.profiles import LinkProfile as LinkProfile
    from links.profiles import Tariff as Tariff
else:
    __all__, __getattr__ = lazy_exports(__name__, __file__)
