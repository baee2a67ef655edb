"""python -m links.ask: a question out over a link, the answer streamed.

Responsible for the command line. Not responsible for the exchange (see `asking`, `links`) or for how text
is shown (see `fill`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.cli import CommandParser, option, run_command
from edge_runtime.budget import BUDGET_GROUP, BudgetOptions
from edge_runtime.errors import UsageError
from edge_runtime.fill import (
    CODECS,
    MODEL_GROUP,
    OUTPUT_GROUP,
    ModelOptions,
    OutputOptions,
    open_runtime,
    positive,
    require_limit,
    write_answer,
)

if TYPE_CHECKING:
    from links import Link

_EPILOG = """\
examples:
  # beside it runs: python -m links.gateway --link udp-listen:7777 --service ...
  python -m links.ask --link udp:localhost:7777 "What is the capital of Japan?"
  # at most 10 seconds on the air for the question and its repeats
  python -m links.ask --airtime 10 "..." \\
      --link "udp:localhost:7777?profile=lorawan-sf10"

Where no answer comes, this device answers alone and says so.

exit codes: 0 done, 2 wrong usage, 3 bad payload, 4 bad or missing model,
5 refused, or the link has failed (with --no-fallback, or no answer came),
6 declined, 130 interrupted
"""

_GROUPS = {
    "question": "What is asked of the cloud, and how it is written.",
    "repeats": "What is lost is sent again, within these bounds.",
    **BUDGET_GROUP,
    **MODEL_GROUP,
    **OUTPUT_GROUP,
}
_question = partial(option, group="question")
_repeats = partial(option, group="repeats")


@dataclass(frozen=True, kw_only=True)
class _AskArguments(ModelOptions, OutputOptions, BudgetOptions):
    """Everything that the command is given."""

    question: str = option("", "the prompt, as text; - reads standard input", flags=("question",))
    link: str = option(
        "", "the link, such as udp:HOST:PORT; see links/README.md", metavar="ADDRESS", required=True
    )
    seal: Path | None = option(
        None,
        "this device's NAME.device.seal: authenticates every frame, 6 bytes each (see links/README.md)",
        Path,
        metavar="FILE",
    )
    airtime: float | None = option(
        None, "seconds on the air of the question and its repeats; default: any", float, metavar="S"
    )
    timeout: float = option(600.0, "give up after (default 600)", metavar="S")
    no_fallback: bool = option(False, "fail where no answer comes, instead of answering alone")
    fraction: float | None = _question(
        None, "share of the cloud's steps", float, metavar="F", either="extent"
    )
    steps: int | None = _question(None, "number of the cloud's steps", positive, metavar="N", either="extent")
    codec: str = _question(
        "predictive",
        "of both frames; predictive (default): fewest bytes, one pass of this model per token",
        choices=CODECS,
    )
    largest: int | None = _question(
        None, "bytes of the answer's frames, where less than the link's", positive, metavar="N"
    )
    max_tokens: int | None = _question(None, "end the answer after N tokens", positive, metavar="N")
    attempts: int = _repeats(5, "frames of the question (default 5)", positive, metavar="N")


def parser() -> CommandParser:
    result = CommandParser(
        prog="python -m links.ask",
        description="Ask over a link that carries short frames, and finish the answer on this device.",
        epilog=_EPILOG,
    )
    result.declare(_AskArguments, _GROUPS)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    args = parser().parse(_AskArguments, argv)
    return run_command("ask", lambda: _run(args))


def _run(args: _AskArguments) -> int:
    from edge_runtime.bundle.lookup import gateway_bundle
    from links import open_link
    from links.asking import LinkOptions, LinkRequest, retry_budget
    from links.seal import Seal, SealedLink

    # On a terminal the text itself shows that something happens, and lines between would tear it.
    silent = args.quiet or sys.stdout.isatty()
    logging.basicConfig(format="ask: %(message)s", level=logging.WARNING if silent else logging.INFO)
    question = sys.stdin.read().removesuffix("\n") if args.question == "-" else args.question
    if not question:
        raise UsageError("question: expected a text, found an empty one")
    budget = retry_budget(args.attempts, args.airtime, args.timeout)
    if args.fraction is not None and not 0 < args.fraction <= 1:
        raise UsageError(f"fraction: expected above 0, at most 1, found {args.fraction:g}")
    edge = open_runtime(args, gateway_bundle(args.edge))
    require_limit(args, edge)
    options = LinkOptions(
        args.fraction,
        args.steps,
        args.largest,
        predictive=args.codec != "compact",
        predictive_question=True if args.codec == "predictive" else None,
        fallback=not args.no_fallback,
        budget=budget,
    )
    seal = Seal(args.seal) if args.seal else None
    with open_link(args.link) as link:
        if seal is not None:
            link = SealedLink(link, [seal])
        request = LinkRequest(link, edge, question, options, daily=args.daily(), memory=args.memory()).start()
        answer = request.answer(edge.options(max_tokens=args.max_tokens))
        return write_answer("ask", args, edge, answer, lambda: (link_line(link), {"link": link_json(link)}))


def link_line(link: Link) -> str:
    """What an exchange has cost, for people."""
    from links.asking import crossed

    return f"link       {link.profile.name}: {crossed(link, link.sent, link.received)}"


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
