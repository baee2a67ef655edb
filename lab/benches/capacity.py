"""`python -m lab.benches.capacity`: GPUs and cores needed for a rate of requests.

Responsible for arithmetic over measured times, all of which are inputs. Not responsible for measuring them:
see `lab.benches.sampler_bench` for steps and `lab.benches.load` for the rest.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from common.cli import run_command

EPILOG = """examples:
  # the paper's A100 figure: 42 ms per step for one row of 256 positions (table 6)
  python -m lab.benches.capacity --step 1=42 --rate 1 --rate 100 --rate 10000 --price 2.00

  # with step times of several batches, as lab.benches.sampler_bench prints them
  python -m lab.benches.capacity --step 1=42 --step 8=300 --step 32=1150 --rate 100

exit codes: 0 ok, 2 usage
"""


@dataclass(frozen=True)
class RequestCosts:
    """Costs of one request: times measured elsewhere, and a price.

    step_ms:     milliseconds of a step, by batch size.
    steps:       of a request.
    scoring_ms:  milliseconds of a GPU to score one draft with the edge model; 0 for selections without it.
    http_ms, payload_ms: milliseconds of a core for HTTP, and for selection and encoding.
    request_bytes: on the wire in both directions, TLS and headers included.
    utilisation: share of the time a GPU may be busy; queueing delays grow steeply beyond it.
    price:       of a GPU hour; 0 where it is not known.
    """

    step_ms: dict[int, float]
    steps: int = 13
    scoring_ms: float = 0.0
    http_ms: float = 2.0
    payload_ms: float = 6.0
    request_bytes: int = 2000
    utilisation: float = 0.7
    price: float = 0.0

    @property
    def best(self) -> tuple[int, float]:
        """The batch size of the highest throughput, and the milliseconds of a GPU per request with it."""
        batch = min(self.step_ms, key=lambda size: (self.step_ms[size] / size, size))
        return batch, self.steps * self.step_ms[batch] / batch + self.scoring_ms


@dataclass(frozen=True)
class CapacityPlan:
    """Resources for one rate of requests.

    gpus:    for the rate, and never fewer than 2: a single one cannot be replaced without an outage.
    seconds: latency of a request without queueing.
    cores:   for HTTP and for payloads, at half load.
    """

    rate: float
    gpus: int
    batch: int
    seconds: float
    cores: int
    megabits: float
    gpu_seconds_per_request: float
    cost_per_hour: float | None
    cost_per_million: float | None


def plan(rate: float, costs: RequestCosts) -> CapacityPlan:
    """The resources for `rate` requests per second."""
    batch, milliseconds = costs.best
    busy = rate * milliseconds / 1000
    gpus = max(2, math.ceil(busy / costs.utilisation))
    # At low rates batches are small, and their steps shorter.
    together = max((size for size in costs.step_ms if size <= max(1.0, busy)), default=min(costs.step_ms))
    cores = math.ceil(rate * (costs.http_ms + costs.payload_ms) / 1000 / 0.5)
    hourly = gpus * costs.price if costs.price else None
    return CapacityPlan(
        rate=rate,
        gpus=gpus,
        batch=batch,
        seconds=(costs.steps * costs.step_ms[min(together, batch)] + costs.scoring_ms) / 1000,
        cores=max(1, cores),
        megabits=rate * costs.request_bytes * 8 / 1e6,
        gpu_seconds_per_request=milliseconds / 1000,
        cost_per_hour=hourly,
        cost_per_million=hourly / (rate * 3600) * 1e6 if hourly else None,
    )


def table(plans: Sequence[CapacityPlan]) -> str:
    """The plans as a Markdown table."""
    names = "requests/s | GPUs | batch | seconds | cores | Mbit/s | GPU s/request | per hour | per million"
    lines = [f"| {names} |", "|" + "---|" * 9]
    for each in plans:
        hour = "-" if each.cost_per_hour is None else f"{each.cost_per_hour:,.0f}"
        million = "-" if each.cost_per_million is None else f"{each.cost_per_million:,.0f}"
        lines.append(
            f"| {each.rate:g} | {each.gpus:,} | {each.batch} | {each.seconds:.2f} | {each.cores:,} | "
            f"{each.megabits:,.2f} | {each.gpu_seconds_per_request:.3f} | {hour} | {million} |"
        )
    return "\n".join(lines)


def _step(text: str) -> tuple[int, float]:
    """`BATCH=MILLISECONDS`."""
    try:
        size, _, milliseconds = text.partition("=")
        found = int(size), float(milliseconds)
    except ValueError:
        found = (0, 0.0)
    if found[0] < 1 or not 0 < found[1] < math.inf:
        raise argparse.ArgumentTypeError(f"expected BATCH=MILLISECONDS such as 8=300, found {text!r}")
    return found


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    return run_command("capacity", lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.benches.capacity",
        description="GPUs, cores, bandwidth and cost of a rate of requests, from measured times.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--step",
        type=_step,
        action="append",
        required=True,
        metavar="BATCH=MS",
        help="time of a step; repeat for several batch sizes",
    )
    parser.add_argument("--rate", type=_positive, action="append", metavar="R", help="default: 1, 100, 10000")
    parser.add_argument(
        "--steps", type=int, default=RequestCosts.steps, help="of a request (default 13, the paper's)"
    )
    for name, what in (
        ("scoring-ms", "of a GPU to score a draft with the edge model"),
        ("http-ms", "of a core for HTTP"),
        ("payload-ms", "of a core for selection and encoding"),
    ):
        default = getattr(RequestCosts, name.replace("-", "_"))
        aliases = ["--read-ms"] if name == "scoring-ms" else []  # its former name
        parser.add_argument(
            f"--{name}", *aliases, type=float, default=default, help=f"{what} (default {default:g})"
        )
    parser.add_argument("--utilisation", type=_positive, default=RequestCosts.utilisation, help="default 0.7")
    parser.add_argument("--price", type=float, default=0.0, metavar="P", help="of a GPU hour")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if (
        args.steps < 1
        or args.utilisation > 1
        or min(args.scoring_ms, args.http_ms, args.payload_ms, args.price) < 0
    ):
        parser.error(
            "expected steps of at least 1, a utilisation of at most 1, and no negative times or prices"
        )
    costs = RequestCosts(
        step_ms=dict(args.step),
        steps=args.steps,
        scoring_ms=args.scoring_ms,
        http_ms=args.http_ms,
        payload_ms=args.payload_ms,
        utilisation=args.utilisation,
        price=args.price,
    )
    plans = [plan(rate, costs) for rate in args.rate or (1, 100, 10_000)]
    found: Any = [asdict(each) for each in plans]
    print(json.dumps(found) if args.json else table(plans))
    return 0


if __name__ == "__main__":
    sys.exit(main())
