"""Addresses of links: KIND:WHERE?option=value.

Responsible for the spelling and for the options that every kind has. Not responsible for the kinds that there
are (see `kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

from edge_runtime.errors import UsageError
from links.profiles import LINK_PROFILES, LinkProfile

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
    def split(cls, text: str) -> LinkAddress:
        """The parts of an address of any kind. Raises UsageError where the options are not name=value."""
        kind, _, rest = text.partition(":")
        where, _, query = rest.partition("?")
        try:
            options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            raise UsageError(
                f"link: expected options like name=value&name=value, found {query!r:.100}"
            ) from None
        names = [name for name, _ in options]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"link: expected options once each, found {', '.join(twice)} again")
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
