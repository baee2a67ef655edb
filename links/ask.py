"""python -m links.ask: a question out over a link, the answer streamed; without a question, a conversation.

Responsible for the command line. Not responsible for the exchange (see `asking`), the conversation (see
`edge_runtime.chat`) or for how text is shown (see `edge_runtime.console`).
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.cli import option, run_options
from edge_runtime.chat import Chat
from edge_runtime.commands import (
    ModelOptions,
    OutputOptions,
    open_runtime,
    positive,
    require_limit,
    write_answer,
)
from edge_runtime.errors import UsageError

if TYPE_CHECKING:
    from links import Link

_EPILOG = """\
examples:
  # beside it runs: python -m links.gateway --link udp-listen:7777 --service ...
  python -m links.ask --link udp:localhost:7777 "What is the capital of Japan?"
  python -m links.ask --link udp:localhost:7777     # a conversation
  # at most 10 seconds on the air for the question and its repeats
  python -m links.ask --airtime 10 "..." \\
      --link "udp:localhost:7777?profile=lorawan-sf10"

Where no answer comes, this device answers alone and says so.

exit codes: 0 done, 2 wrong usage, 3 bad payload, 4 bad or missing model,
5 refused, or the link has failed (with --no-fallback, or no answer came),
6 declined, 7 this device's own answer, for none came, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class _AskArguments(ModelOptions, OutputOptions):
    """Ask over a link that carries short frames, and finish the answer on this device."""

    question: str | None = option(
        None, "as text; - reads standard input; none: a conversation", flags=("question",), nargs="?"
    )
    link: str = option(
        "", "the link, such as udp:HOST:PORT; see docs/guides/links.md", metavar="ADDRESS", required=True
    )
    schema: Path | None = option(
        None, "answer this form's questions about the text (see edge_runtime.decide); the gateway has it too"
    )
    seal: Path | None = option(None, "this device's NAME.device.seal; see docs/guides/links.md")
    airtime: float | None = option(None, "most seconds on the air of a question; default: any", metavar="S")
    spend_day: float = option(math.inf, "most money in a day over this link; default: any", metavar="M")
    timeout: float = option(600.0, "wait for an answer at most (default 600)", metavar="S")
    no_fallback: bool = option(False, "fail where no answer comes, instead of answering alone")
    fraction: float | None = option(None, "share of the cloud's steps; default: its choice", metavar="F")
    max_tokens: int | None = option(None, "end an answer after N tokens", positive)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return run_options(
        "links.ask", _run, _AskArguments, argv, _EPILOG, usage="--link ADDRESS [question] [options]"
    )


def _run(args: _AskArguments) -> int:
    from edge_runtime.bundle.lookup import gateway_bundle
    from edge_runtime.cloud import CloudQuestion
    from edge_runtime.decide import answer as decided
    from edge_runtime.decode.forced import FillOptions
    from edge_runtime.form import Form
    from edge_runtime.session import EdgeSession
    from links import open_link
    from links.asking import LinkCloud, LinkDecider, retry_budget
    from links.quota import Quota, state_folder
    from links.seal import Seal, SealedLink

    # On a terminal the text itself shows that something happens, and lines between would tear it.
    silent = args.question is None or sys.stdout.isatty()
    logging.basicConfig(format="ask: %(message)s", level=logging.WARNING if silent else logging.INFO)
    question = sys.stdin.read().removesuffix("\n") if args.question == "-" else args.question
    if question == "":
        raise UsageError("question: expected a text, found an empty one")
    if args.fraction is not None and not 0 < args.fraction <= 1:
        raise UsageError(f"fraction: expected above 0, at most 1, found {args.fraction:g}")
    if args.schema is not None and question is None:
        raise UsageError("--schema: expected a text that its questions are about, found none")
    form = Form.of(args.schema) if args.schema else None
    budget = retry_budget(args.airtime, args.timeout)
    quota = Quota(state_folder() / "spent.json", args.spend_day) if args.spend_day < math.inf else None
    edge = open_runtime(args, gateway_bundle(args.edge))
    require_limit(args, edge)
    seal = Seal(args.seal) if args.seal else None
    with open_link(args.link) as link:
        if seal is not None:
            link = SealedLink(link, [seal])
        cloud = LinkCloud(link, budget, quota, args.fraction)
        cloud.predictive = True
        if form is not None:
            assert question is not None
            code = decided(edge, form, question, LinkDecider(cloud, edge), args.json)
            print(link_line(link), file=sys.stderr)
            return code
        if question is None:
            edge.preload()
            return Chat(EdgeSession(edge), cloud, max_tokens=args.max_tokens).run()
        asked = CloudQuestion(cloud, edge, question, stream=True, fallback=not args.no_fallback).send()
        answer = asked.answer(FillOptions(max_tokens=args.max_tokens))
        return write_answer("ask", args, edge, answer, lambda: (link_line(link), {"link": link_json(link)}))


def link_line(link: Link) -> str:
    """What an exchange has cost, for people."""
    from links.asking import crossed

    return f"link       {link.profile.name}: {crossed(link, link.sent, link.received)}"


def link_json(link: Link) -> dict[str, Any]:
    """What an exchange has cost: frames, bytes, seconds on the air and money each way."""
    tariff = link.profile.tariff
    ways = {
        name: {"frames": way.frames, "bytes": way.bytes, "airtime": way.airtime, "money": way.money}
        for name, way in (("sent", link.sent), ("received", link.received))
    }
    return {"profile": link.profile.name, "currency": tariff.currency or None, "tariff": tariff.name, **ways}


if __name__ == "__main__":
    sys.exit(main())
