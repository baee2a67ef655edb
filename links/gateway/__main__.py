"""`python -m links.gateway`: answers questions that come over a link, with an anchor service.

Responsible for the command line and its threads. Not responsible for what is answered (see `answering`) or
for links (see `links`).
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path

from common.cli import INTERRUPTED, run_command
from edge_runtime.errors import UsageError
from edge_runtime.fill import KEY_VARIABLE, read_prompt
from links.gateway.quota import Spending
from links.profiles import FREE

log = logging.getLogger("links.gateway")

EPILOG = """examples:
  # the shipped pair: the service, the gateway beside it, and a device
  python -m cloud_anchor.serve --model tiny --port 8080
  python -m links.gateway --link udp-listen:7777 --service http://localhost:8080 --edge testbed-qwen
  python -m links.ask --link udp:localhost:7777 "How old are the people of Ecuador?"

exit codes: 0 ended by SIGTERM, 2 usage, 4 bad or missing model, 5 the service or the link has failed,
130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    return run_command("gateway", lambda: _run(args))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="python -m links.gateway",
        description="Answer questions that come as short frames over a link, with an anchor service. A "
        "repeated question gets the same answer again, without another run of the service.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--link", required=True, metavar="ADDRESS", help="the link, such as udp-listen:PORT")
    result.add_argument("--service", required=True, metavar="URL", help="the anchor service's address")
    result.add_argument(
        "--key-file",
        metavar="FILE",
        type=Path,
        help=f"file with the service's key; default: ${KEY_VARIABLE}, else none",
    )
    result.add_argument(
        "--edge", required=True, metavar="BUNDLE", help="folder or name of the bundle that the devices have"
    )
    result.add_argument("--threads", type=int, metavar="N", help="of the edge model, which reads questions")
    result.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="for an answer of the service (default 60)"
    )
    result.add_argument(
        "--kept", type=int, default=256, metavar="N", help="answers kept for repeats (default 256)"
    )
    result.add_argument(
        "--seal",
        dest="seals",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="a device's NAME.gateway.seal; once for each device, and only these are answered (see "
        "links.seal)",
    )
    result.add_argument(
        "--predictive-from-anyone",
        action="store_true",
        help="read questions that are coded with the edge model, a pass for each token, without a seal too: "
        "for links with authentication of their own",
    )
    money = result.add_argument_group(
        "quotas, on a link that costs money", "of the frames sent, in the currency of the link's tariff"
    )
    for name, default, what in (
        ("peer", Spending.of_peer, "to one peer in a day"),
        ("day", Spending.of_day, "in a day"),
        ("total", Spending.of_all, "in all, or since the start without --state"),
    ):
        money.add_argument(
            f"--spend-{name}", type=float, default=default, metavar="M", help=f"{what} (default {default:g})"
        )
    money.add_argument(
        "--state", type=Path, metavar="FOLDER", help="where what was spent is kept; default: nowhere"
    )
    result.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return result


def _run(args: argparse.Namespace) -> int:
    from edge_runtime.bundle.lookup import find_bundles
    from edge_runtime.client.client import Client
    from edge_runtime.runtime import EdgeRuntime
    from links import open_link
    from links.gateway.answering import Gateway, GatewayLimits, ServiceSource, serve_link
    from links.gateway.quota import Quota
    from links.seal import Seal, SealedLink

    if args.kept < 1:
        raise UsageError(f"kept: expected at least 1, found {args.kept}")
    logging.basicConfig(format="gateway: %(message)s", level=args.log_level.upper())
    key = read_prompt(args.key_file).strip() if args.key_file else os.environ.get(KEY_VARIABLE) or None
    client = Client(args.service, key, args.timeout)
    if client.exposes_key:
        raise UsageError(
            f"service: expected https:// for a key that goes to another host, found {args.service!r:.100}; "
            "it would cross the network unencrypted"
        )
    spending = Spending(args.spend_peer, args.spend_day, args.spend_total)
    if not all(0 <= money < float("inf") for money in astuple(spending)):
        raise UsageError(f"quotas: expected money of 0 or more, found {spending}")
    edge = EdgeRuntime.open(find_bundles("", args.edge)[0], threads=args.threads)
    stop, stopped_by = threading.Event(), signal.SIGTERM

    def on_signal(number: int, _: object) -> None:
        nonlocal stopped_by
        stopped_by = signal.Signals(number)
        stop.set()

    with open_link(args.link) as link:
        if not link.service:
            raise UsageError(
                f"link: expected the service's end of one, such as udp-listen:7777, found {args.link!r:.100}"
            )
        source = ServiceSource.open(client, edge.bundle.contract.identity)
        limits = GatewayLimits(kept=args.kept)
        if args.seals:
            link = SealedLink(link, [Seal(path) for path in args.seals])
        tariff = link.profile.tariff
        if tariff != FREE and not tariff.price:
            log.warning("no quota holds: a price is not known; state it in the address, as in ?price=0.0001")
        gateway = Gateway(
            link,
            edge.question_context(),
            source,
            _in_thread,
            limits,
            predictive=args.predictive_from_anyone or None,
            quota=Quota(spending, args.state) if tariff.price else None,
        )
        before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            print(f"gateway: {link.profile.name} to {args.service}", file=sys.stderr, flush=True)
            serve_link(gateway, stop.is_set)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
    return INTERRUPTED if stopped_by == signal.SIGINT else 0


def _in_thread(job: Callable[[], None]) -> None:
    """Run a job in a thread of its own, which ends with the command. The gateway bounds their number."""
    threading.Thread(target=job, name="service", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
