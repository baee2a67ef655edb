"""`python -m lab.benches.two_checkouts BEFORE`: what a change costs, measured on two commits.

Responsible for the checkouts, for taking turns, and for the table. What is measured is each checkout's own
code in processes of its own: payloads encoded and decoded, their bytes, the device's fill, the service's
capacity. Not responsible for what it means: a difference within the spread of the rounds is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from common.cli import CommandParser, option, run_command
from common.errors import InputError, UserError

ROOT = Path(__file__).resolve().parents[2]
FILLS = ("prefill 64", "decode at 0", "fill at 10%")
"""What `edge_runtime.bench` times, of which a row is made."""
LESS_IS_BETTER = ("us", "ms", "bytes")

PAYLOADS = """
import json, random, time
from payload import AnchorSet, Codec, Contract, Shared, decode, encode

contract = Contract(151643, "c" * 64, {"<|endoftext|>": 151643, "<|im_end|>": 151645}, "0" * 64)
prompt, out = [3838, 374, 279, 6722, 315, 9625, 30], {}
for count in (8, 64, 512):
    luck = random.Random(count)
    ids = tuple(int(151643 ** luck.random()) - 1 for _ in range(count))
    anchors = AnchorSet(tuple(sorted(luck.sample(range(2 * count), count))), ids, 2 * count, contract)
    shared = Shared(contract, prompt)
    data = encode(anchors, shared, Codec.COMPACT)
    out[f"payload of {count} anchors, bytes"] = len(data)
    encoding, decoding = [], []
    for _ in range(max(7, 2000 // count)):
        began = time.perf_counter()
        encode(anchors, shared, Codec.COMPACT)
        between = time.perf_counter()
        decode(data, shared)
        encoding.append(between - began)
        decoding.append(time.perf_counter() - between)
    out[f"encode {count} anchors, us"] = 1e6 * min(encoding)
    out[f"decode {count} anchors, us"] = 1e6 * min(decoding)
print(json.dumps(out))
"""
"""Without names that either checkout may lack. Tokens by Zipf's law, as no prompt of ours predicts them."""


@dataclass(frozen=True)
class TwoCheckoutsOptions:
    before: str = option("", "a commit", flags=("before",), metavar="BEFORE")
    after: str = option("HEAD", "another commit (default: HEAD)", metavar="COMMIT")
    rounds: int = option(3, "of all measurements, the commits in turn", metavar="N")
    seconds: float = option(
        20.0, "of the service at its capacity, in each round; 0 leaves it out", metavar="S"
    )
    pair: str = option("tiny", "shipped by both, best of the same weights", metavar="NAME")
    threads: int = option(2, "of the device and of the service", metavar="N")
    json: bool = option(False, "print one JSON object")


class MeasurementError(UserError):
    """A measurement of a checkout failed."""


@contextmanager
def checkouts(commits: Sequence[str]) -> Iterator[list[Path]]:
    """Folders with the commits' files; raises InputError for a commit that is not there."""
    with tempfile.TemporaryDirectory(prefix="checkouts-") as folder:
        made = []
        for number, commit in enumerate(commits):
            place = Path(folder) / str(number)
            place.mkdir()
            packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True)
            if packed.returncode:
                raise InputError(f"expected a commit, found {commit!r}: {packed.stderr.decode().strip()}")
            subprocess.run(["tar", "-x", "-C", str(place)], input=packed.stdout, check=True)
            made.append(place)
        yield made


def measured(place: Path, options: TwoCheckoutsOptions) -> dict[str, float]:
    """All measurements of one checkout, once."""
    found: dict[str, float] = _json(place, ["-c", PAYLOADS])
    bundle = [f"edge_runtime/bundles/{options.pair}-qwen", "--threads", str(options.threads)]
    fill = _json(place, ["-m", "edge_runtime.bench", *bundle, "--json"])
    for test in FILLS:
        found[f"{test}, ms a token"] = min(each["ms"] for each in fill["figures"] if each["test"] == test)
    if options.seconds:
        capacity = ["--capacity-seconds", str(options.seconds), "--seconds", "1", "--at", "0.2", "--json"]
        service = ["--", "--model", options.pair, "--threads", str(options.threads)]
        load = _json(place, ["-m", "lab.benches.load", *capacity, *service])
        found["service at capacity, answers/s"] = load["phases"][0]["answers_per_second"]
    return found


def _json(place: Path, arguments: Sequence[str]) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise MeasurementError(f"{place.name}: {' '.join(arguments[:2])}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compared(rounds: Sequence[Sequence[dict[str, float]]]) -> list[dict[str, Any]]:
    """A row for each measurement: medians of the rounds, how far they spread, and the change in percent."""
    rows = []
    for name in rounds[0][0]:
        before, after = ([each[side][name] for each in rounds] for side in (0, 1))
        spread = max((max(values) - min(values)) / median(values) for values in (before, after))
        change = median(after) / median(before) - 1
        rows.append(
            {
                "what": name,
                "before": median(before),
                "after": median(after),
                "change %": round(100 * change, 1),
                "spread %": round(100 * spread, 1),
                "slower": (change if name.endswith(LESS_IS_BETTER) else -change) > max(spread, 0.02),
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.two_checkouts",
        description="Measure payloads, the device's fill and the service's capacity of two commits in turn.",
        epilog="example: python -m lab.benches.two_checkouts v0.1.0\n\n"
        "exit codes: 0 nothing is slower beyond the rounds' spread, 1 something is, 2 usage",
    )
    parser.declare(TwoCheckoutsOptions)
    options = parser.parse(TwoCheckoutsOptions, argv)
    return run_command("two_checkouts", lambda: run(options))


def run(options: TwoCheckoutsOptions) -> int:
    if not options.before or options.rounds < 1:
        raise InputError("expected a commit BEFORE and at least 1 round")
    with checkouts([options.before, options.after]) as places:
        rounds = []
        for number in range(options.rounds):
            print(f"two_checkouts: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            rounds.append([measured(place, options) for place in places])
    rows = compared(rounds)
    if options.json:
        print(json.dumps({"before": options.before, "after": options.after, "rows": rows}))
    else:
        print("| what | before | after | change | spread of rounds | |\n|---|---|---|---|---|---|")
        for row in rows:
            print(
                f"| {row['what']} | {row['before']:,.4g} | {row['after']:,.4g} | {row['change %']:+.1f}% "
                f"| {row['spread %']:.1f}% | {'slower' if row['slower'] else ''} |"
            )
    return 1 if any(row["slower"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
