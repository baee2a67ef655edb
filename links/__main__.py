"""`python -m links`: the kinds of links, what a frame costs on each, and how long it takes.

Responsible for the table, and for frames there and back over the emulated links. Not responsible for the
figures of a link (see `profiles`) or for what is lost being sent again (see `exchange`).
"""

from __future__ import annotations

import json
import statistics
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass

from common.cli import CommandParser, option, run_command
from links.kinds import KINDS
from links.kinds.emulated import Emulation
from links.profiles import LINK_PROFILES, LinkProfile

SIZES = "20,50,100"
EMULATED = 200
WORK_SECONDS = 1.0
"""Of the service, between a question and its answer."""
PATIENCE = 3600.0


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(size) for size in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise ArgumentTypeError(f"expected whole numbers above 0 like {SIZES}, found {text!r:.80}")
    return sizes


def _share(text: str) -> float:
    if not 0 <= (share := float(text)) <= 1:
        raise ArgumentTypeError(f"expected a share of 0 to 1, found {share:g}")
    return share


@dataclass(frozen=True)
class _LinksArguments:
    sizes: Sequence[int] = option(SIZES, f"bytes of frames (default {SIZES})", _sizes)
    loss: float = option(0.0, "share of the emulated frames lost, 0 to 1 (default 0)", _share)
    json: bool = option(False, "one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m links",
        description="Print the profiles of links, what a frame costs on each, and the addresses of links.",
        epilog="example:\n  python -m links --sizes 51,100",
    )
    parser.declare(_LinksArguments)
    args = parser.parse(_LinksArguments, argv)
    return run_command("links", lambda: _print(args.sizes, args.loss, as_json=args.json))


def there_and_back(profile: LinkProfile, size: int, loss: float, count: int = EMULATED) -> list[float]:
    """Seconds from a frame of so many bytes to an answer of as many, of the answers that arrive.

    Each on a separate link with its own losses; nothing is sent again.
    """
    times = []
    for seed in range(count):
        emulation = Emulation(profile, loss=loss, seed=seed)
        device, gateway = emulation.device(), emulation.gateway
        device.send(bytes(size))
        if (question := gateway.receive(PATIENCE)) is None:
            continue
        emulation.clock.wait(WORK_SECONDS, lambda: False)
        gateway.send(question.data, question.peer)
        if device.receive(PATIENCE) is not None:
            times.append(emulation.clock.now)
    return times


def _print(sizes: Sequence[int], loss: float, *, as_json: bool) -> None:
    profiles = LINK_PROFILES.values()
    if as_json:
        examples = {name: kind.example for name, kind in KINDS.items()}
        rows = {profile.name: _figures(profile, sizes, loss) for profile in profiles}
        print(json.dumps({"profiles": rows, "addresses": examples}))
        return
    columns = " | ".join(f"{size} bytes" for size in sizes)
    print(f"| profile | largest up / down | {columns} | there and back | duties | tariff |")
    print("|---" * (5 + len(sizes)) + "|")
    for profile in profiles:
        cells = " | ".join(_cell(profile, size) for size in sizes)
        back = _emulated(profile, sizes, loss)
        duties = "; ".join(map(str, profile.duties)) or "none"
        print(
            f"| {profile.name} | {profile.up} / {profile.down} | {cells} | {back} | {duties} "
            f"| {profile.tariff.name} |"
        )
    print(
        f"\nthere and back: median and 90th percentile of {EMULATED} emulated frames of "
        f"{_middle(sizes)} bytes, where it fits, and answers of as many {WORK_SECONDS:g} s later"
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


def _middle(sizes: Sequence[int]) -> int:
    return sorted(sizes)[(len(sizes) - 1) // 2]


def _emulated(profile: LinkProfile, sizes: Sequence[int], loss: float) -> str:
    if not any(profile.delay) and not profile.cost(1).airtime:
        return "-"
    times = there_and_back(profile, min(_middle(sizes), profile.up, profile.down), loss)
    arrived = f", {len(times) / EMULATED:.0%} arrive" if loss else ""
    if not times:
        return "none arrives"
    return f"{statistics.median(times):.1f} s, {sorted(times)[len(times) * 9 // 10]:.1f} s{arrived}"


def _figures(profile: LinkProfile, sizes: Sequence[int], loss: float) -> dict[str, object]:
    times = there_and_back(profile, min(_middle(sizes), profile.up, profile.down), loss)
    fitting = [size for size in sizes if size <= min(profile.up, profile.down)]
    return {
        "up": profile.up,
        "down": profile.down,
        "delay": profile.delay,
        "there_and_back": {"arrived": len(times) / EMULATED, "seconds": sorted(times)},
        "duties": [str(duty) for duty in profile.duties],
        "tariff": profile.tariff.name,
        "cost": {size: vars(profile.cost(size)) for size in fitting},
    }


if __name__ == "__main__":
    sys.exit(main())
