"""`python -m lab.benches.capacity`: GPUs and cores needed for a rate of requests, from measured times.

Responsible for the arithmetic of cloud_anchor/serve/CAPACITY.md. Not responsible for the times: steps are
those of `sampler_bench`, the rest is `load`'s.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from common.cli import CommandParser

HEAD = "requests/s | GPUs | batch | seconds | cores | Mbit/s | GPU s/request | per hour | per million"
CORE_MS, REQUEST_BYTES = 8.0, 2000
"""Of a request: HTTP, selection and encoding; and bytes both ways, TLS and headers included."""


def plan(rate: float, step_ms: Mapping[int, float], steps: int, utilisation: float, price: float) -> str:
    """The table's row for `rate` requests a second. step_ms: of a step, by batch size."""
    batch = min(step_ms, key=lambda size: (step_ms[size] / size, size))  # the highest throughput
    busy = steps * step_ms[batch] / batch / 1000
    gpus = max(2, math.ceil(rate * busy / utilisation))  # a single one cannot be replaced
    # At low rates batches are small, and their steps shorter.
    together = max((size for size in step_ms if size <= max(1.0, rate * busy)), default=min(step_ms))
    seconds = steps * step_ms[min(together, batch)] / 1000
    cores = max(1, math.ceil(rate * CORE_MS / 1000 / 0.5))
    costs = (gpus * price, gpus * price / rate / 3600 * 1e6)
    return (
        f"| {rate:g} | {gpus:,} | {batch:g} | {seconds:.2f} | {cores:,} | {rate * REQUEST_BYTES * 8e-6:,.2f} "
        f"| {busy:.3f} | {' | '.join(f'{cost:,.0f}' if price else '-' for cost in costs)} |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="python -m lab.benches.capacity", description=__doc__)
    parser.add_argument(
        "--step", type=float, nargs=2, action="append", required=True, metavar=("BATCH", "MS"), help="several"
    )
    parser.add_argument("--steps", type=int, default=13, help="of a request (13, the paper's)")
    parser.add_argument("--utilisation", type=float, default=0.7, help="most of the time a GPU is busy (0.7)")
    parser.add_argument("--price", type=float, default=0.0, help="of a GPU hour")
    parser.add_argument("--rate", type=float, nargs="+", default=[1, 100, 10_000], help="(1 100 10000)")
    args = parser.parse_args(argv)
    if (
        min(args.steps, args.utilisation, *args.rate, *(x for pair in args.step for x in pair)) <= 0
        or args.utilisation > 1
    ):
        parser.error("expected numbers above 0, and a utilisation of at most 1")
    print(f"| {HEAD} |\n|{'---|' * 9}")
    for rate in args.rate:
        print(plan(rate, dict(args.step), args.steps, args.utilisation, args.price))
    return 0


if __name__ == "__main__":
    sys.exit(main())
