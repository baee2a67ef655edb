"""Addresses of links: KIND:WHERE?option=value, and `open_link`, which opens one.

Responsible for the spelling, for the options that every kind has, and for one clear error. Not responsible
for what a kind does with its place (see the modules beside this one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from edge_runtime.errors import UsageError
from edge_runtime.links.datagram import Link
from edge_runtime.links.link_profiles import LINK_PROFILES, LinkProfile

COMMON = ("currency", "largest", "price", "profile")
"""Options of every kind: another profile of `LINK_PROFILES` than the kind's own; another price of a unit of
its tariff; most bytes of a frame, less than the profile's."""


@dataclass(frozen=True)
class LinkAddress:
    """An address in its parts."""

    kind: str
    where: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> LinkAddress:
        """Raises UsageError where it is not an address of a known kind with options that this kind has."""
        kind, colon, rest = text.partition(":")
        if not colon or kind not in KINDS:
            raise UsageError(
                f"link: expected one of {', '.join(sorted(KINDS))} with a colon after it, as in "
                f"{KINDS['udp'].example}; found {text!r:.100}"
            )
        where, _, query = rest.partition("?")
        try:
            options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            raise UsageError(
                f"link: expected options like name=value&name=value, found {query!r:.100}"
            ) from None
        names = [name for name, _ in options]
        known = sorted({*COMMON, *KINDS[kind].options})
        for name in names:
            if name not in known or names.count(name) > 1:
                raise UsageError(
                    f"link: expected options of {kind} once each, {', '.join(known)}; found {name!r:.100}"
                )
        return cls(kind, where, dict(options))

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"

    def profile(self, name: str) -> LinkProfile:
        """The profile of this name, or the one that the options name in its place, as they change it."""
        chosen = self.options.get("profile", name)
        if chosen not in LINK_PROFILES:
            raise UsageError(f"link: expected a profile of {', '.join(LINK_PROFILES)}; found {chosen!r:.80}")
        found = LINK_PROFILES[chosen]
        if "price" in self.options or "currency" in self.options:
            price = self.number("price", found.tariff.price, 0.0, 1e6)
            currency = self.options.get("currency", found.tariff.currency or "USD")
            tariff = replace(found.tariff, name="as given", price=price, currency=currency)
            found = replace(found, tariff=tariff)
        if "largest" in self.options:
            largest = int(self.number("largest", 0, 1, max(found.up, found.down), whole=True))
            found = replace(found, up=min(found.up, largest), down=min(found.down, largest))
        return found

    def number(self, name: str, default: float, least: float, most: float, *, whole: bool = False) -> float:
        """The value of an option that is a number in these bounds."""
        text = self.options.get(name)
        if text is None:
            return default
        try:
            value = float(int(text) if whole else float(text))
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            raise UsageError(f"link: {name}: expected {kind} of {least:g} to {most:g}, found {text!r:.80}")
        return value

    def host_and_port(self, *, host_needed: bool, port: int | None = None) -> tuple[str, int]:
        """The place as HOST:PORT, or with `port` for where it is missing; [HOST]:PORT for IPv6."""
        host, colon, digits = self.where.rpartition(":")
        if port is not None and (not colon or self.where.endswith("]")):
            host, digits = self.where, str(port)
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        right = digits.isascii() and digits.isdigit() and int(digits) <= 65535
        right = right and (bare != host or ":" not in host) and (int(digits) > 0 or not host_needed)
        if not right or (host_needed and not bare):
            shape = "HOST:PORT" if host_needed else "HOST:PORT or PORT"
            raise UsageError(f"link: expected {self.kind}:{shape}, found {str(self)!r:.100}")
        return bare, int(digits)


@dataclass(frozen=True)
class LinkKind:
    """A kind of link: how it is opened, an address as an example, and the options that it has of its own."""

    open: Callable[[LinkAddress], Link]
    example: str
    options: tuple[str, ...] = ()


def _udp(address: LinkAddress) -> Link:
    from edge_runtime.links.udp import UdpLink

    service = address.kind == "udp-listen"
    host, port = address.host_and_port(host_needed=not service)
    return UdpLink(host, port, service=service, profile=address.profile("udp"))


KINDS: dict[str, LinkKind] = {
    "udp": LinkKind(_udp, "udp:gateway.example.com:7777"),
    "udp-listen": LinkKind(_udp, "udp-listen:7777"),
}
"""Kinds of links by name. Each imports what it needs when it is opened."""


def open_link(address: str) -> Link:
    """Open the link at an address, such as udp:HOST:PORT?profile=nb-iot-ntn.

    Raises UsageError for an address that is wrong, LinkError where the link cannot be opened or an extra is
    not installed.
    """
    parsed = LinkAddress.parse(address)
    return KINDS[parsed.kind].open(parsed)
