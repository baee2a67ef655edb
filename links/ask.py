"""python -m links.ask: a question out over a link, the answer streamed.

Responsible for the command line. Not responsible for the exchange (see `over_link`, `links`) or for how text
is shown (see `fill`).
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.cli import run_command
from edge_runtime.errors import UsageError
from edge_runtime.fill import CODECS, add_model, add_output, open_runtime, positive, write_answer

if TYPE_CHECKING:
    from links import Link, Traffic

_EPILOG = """\
examples:
  # the gateway: python -m links.gateway --link udp-listen:7777 --service http://localhost:8080
  python -m links.ask --link udp:localhost:7777 "Who leads Anna's town?"

  # no more than 10 seconds on the air for the question and its repeats, and no longer than 5 minutes
  python -m links.ask --link "udp:localhost:7777?profile=lorawan-sf10" --airtime 10 --timeout 300 "..."

Where no answer comes, this device answers alone and says so.

exit codes: 0 done, 2 wrong usage, 3 bad payload, 4 bad or missing model, 5 refused, or the link has failed
(with --no-fallback, or no answer came), 130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m links.ask",
        description="Ask over a link that carries short frames, and finish the answer on this device.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("question", help="the prompt, as text; - reads standard input")
    result.add_argument(
        "--link",
        required=True,
        metavar="ADDRESS",
        help="the link, such as udp:HOST:PORT; see links/README.md",
    )
    extent = result.add_mutually_exclusive_group()
    extent.add_argument("--fraction", type=float, metavar="F", help="share of the cloud's steps")
    extent.add_argument("--steps", type=positive, metavar="N", help="number of the cloud's steps")
    result.add_argument(
        "--codec",
        choices=CODECS,
        help="of both frames; predictive: fewest bytes, one pass of this model a token; default: predictive "
        "but for a question without --seal, which a gateway reads so only from those that it trusts",
    )
    result.add_argument(
        "--largest",
        type=positive,
        metavar="N",
        help="bytes of the answer's frames, where less than the link's",
    )
    result.add_argument(
        "--seal",
        type=Path,
        metavar="FILE",
        help="this device's NAME.device.seal: authenticates every frame, 6 bytes each (see links/README.md)",
    )
    budget = result.add_argument_group("repeats")
    budget.add_argument(
        "--attempts", type=positive, default=5, metavar="N", help="frames of the question (default 5)"
    )
    budget.add_argument(
        "--airtime", type=float, metavar="S", help="seconds on the air of all of them; default: any"
    )
    budget.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="give up after (default 600)"
    )
    result.add_argument(
        "--no-fallback", action="store_true", help="fail where no answer comes, instead of answering alone"
    )
    result.add_argument("--max-tokens", type=positive, metavar="N", help="end the answer after N tokens")
    add_model(result)
    add_output(result)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    args = parser().parse_args(argv)
    return run_command("ask", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    from links import open_link
    from links.exchange import RetryBudget
    from links.over_link import LinkOptions, LinkRequest
    from links.seal import Seal, SealedLink

    # On a terminal the text itself shows that something happens, and lines between would tear it.
    silent = args.quiet or sys.stdout.isatty()
    logging.basicConfig(format="ask: %(message)s", level=logging.WARNING if silent else logging.INFO)
    question = sys.stdin.read().removesuffix("\n") if args.question == "-" else args.question
    if not question:
        raise UsageError("question: expected a text, found an empty one")
    for name in ("airtime", "timeout"):
        value = getattr(args, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name}: expected seconds above 0, found {value:g}")
    if args.fraction is not None and not 0 < args.fraction <= 1:
        raise UsageError(f"fraction: expected above 0, at most 1, found {args.fraction:g}")
    edge = open_runtime(args, _bundle(args.model))
    options = LinkOptions(
        args.fraction,
        args.steps,
        args.largest,
        predictive=args.codec != "compact",
        predictive_question=True if args.codec == "predictive" else None,
        fallback=not args.no_fallback,
        budget=RetryBudget(args.attempts, args.airtime, args.timeout),
    )
    seal = Seal(args.seal) if args.seal else None
    with open_link(args.link) as link:
        if seal is not None:
            link = SealedLink(link, [seal])
        request = LinkRequest(link, edge, question, options).start()
        answer = request.answer(edge.options(max_tokens=args.max_tokens))
        write_answer("ask", args, edge, answer, lambda: (link_line(link), {"link": link_json(link)}))
    return 0


def _bundle(model: str | None) -> Path:
    """The bundle named, or the only one installed; raises UsageError for several."""
    from edge_runtime.bundle.lookup import find_bundles

    found = find_bundles("", model)
    if len(found) > 1:
        names = ", ".join(sorted(path.name for path in found))
        raise UsageError(f"model: expected the gateway's bundle (--model), found several: {names}")
    return found[0]


def link_line(link: Link) -> str:
    """What an exchange has cost, for people."""
    airtime = link.sent.airtime + link.received.airtime
    parts = [f"out {_crossed(link.sent)}, in {_crossed(link.received)}"]
    if airtime:
        parts.append(f"{airtime:.2f} s on the air")
    cost = link.cost(1)
    if cost.currency:
        money = link.sent.money + link.received.money
        parts.append(f"{money:.4g} {cost.currency} ({cost.tariff})")
    return f"link       {link.profile.name}: {'; '.join(parts)}"


def _crossed(traffic: Traffic) -> str:
    return f"{traffic.bytes} bytes in {traffic.frames} frame{'s' * (traffic.frames != 1)}"


def link_json(link: Link) -> dict[str, Any]:
    """What an exchange has cost: frames, bytes, seconds on the air and money each way."""
    cost = link.cost(1)
    ways = {
        name: {"frames": way.frames, "bytes": way.bytes, "airtime": way.airtime, "money": way.money}
        for name, way in (("sent", link.sent), ("received", link.received))
    }
    return {"profile": link.profile.name, "currency": cost.currency or None, "tariff": cost.tariff, **ways}


if __name__ == "__main__":
    sys.exit(main())
