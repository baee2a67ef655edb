"""`python -m links`: the kinds of links, and what a frame costs on each.

Not responsible for the figures of a link (see `profiles`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from common.cli import run_options
from links.kinds import KINDS
from links.profiles import LINK_PROFILES, LinkProfile

SIZES = (20, 50, 100)
"""Bytes of the frames in the table."""


@dataclass(frozen=True)
class _LinksArguments:
    """Print the profiles of links, what a frame costs on each, and the addresses of links."""


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("links", _print, _LinksArguments, argv, "example:\n  python -m links")


def _print(_: _LinksArguments) -> None:
    columns = " | ".join(f"{size} bytes" for size in SIZES)
    print(f"| profile | largest up / down | {columns} | duties | tariff |")
    print("|---" * (4 + len(SIZES)) + "|")
    for profile in LINK_PROFILES.values():
        cells = " | ".join(_cell(profile, size) for size in SIZES)
        duties = "; ".join(map(str, profile.duties)) or "none"
        print(
            f"| {profile.name} | {profile.up} / {profile.down} | {cells} | {duties} | {profile.tariff.name} |"
        )
    print("\naddresses:")
    for kind in KINDS.values():
        print(f"  {kind.example}")


def _cell(profile: LinkProfile, size: int) -> str:
    if size > min(profile.up, profile.down):
        return "too large"
    cost = profile.cost(size)
    parts = [f"{cost.airtime:.2f} s"] if cost.airtime else []
    parts += [f"{cost.money:.4g} {profile.tariff.currency}"] if cost.money else []
    return ", ".join(parts) or "-"


if __name__ == "__main__":
    sys.exit(main())
