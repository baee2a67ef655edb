"""`python -m links`: the kinds of links, and what a frame costs on each.

Not responsible for the figures of a link (see `profiles`).
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass

from common.cli import option, run_options
from links.kinds import KINDS
from links.profiles import LINK_PROFILES, LinkProfile

SIZES = "20,50,100"


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise ArgumentTypeError(f"expected whole numbers above 0 like {SIZES}, found {text!r:.80}")
    return sizes


@dataclass(frozen=True)
class _LinksArguments:
    """Print the profiles of links, what a frame costs on each, and the addresses of links."""

    sizes: Sequence[int] = option(SIZES, f"bytes of frames (default {SIZES})", _sizes)


def main(argv: Sequence[str] | None = None) -> int:
    return run_options("links", _print, _LinksArguments, argv, "example:\n  python -m links --sizes 51,100")


def _print(args: _LinksArguments) -> None:
    sizes = args.sizes
    columns = " | ".join(f"{size} bytes" for size in sizes)
    print(f"| profile | largest up / down | {columns} | duties | tariff |")
    print("|---" * (4 + len(sizes)) + "|")
    for profile in LINK_PROFILES.values():
        cells = " | ".join(_cell(profile, size) for size in sizes)
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
    parts += [f"{cost.money:.4g} {cost.currency}"] if cost.money else []
    return ", ".join(parts) or "-"


if __name__ == "__main__":
    sys.exit(main())
