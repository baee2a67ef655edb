"""python -m edge_runtime.chat: a conversation in the terminal.

Responsible for the loop of questions, its commands and Ctrl-C. Not responsible for turns (see `session`), for
where they are answered (see `assistant`) or for how text is shown (see `console`).
"""

from __future__ import annotations

import logging
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from common.cli import CommandParser, option, run_command
from common.errors import UserError
from edge_runtime.budget import BUDGET_GROUP, BudgetOptions
from edge_runtime.errors import UsageError
from edge_runtime.fill import MODEL_GROUP, KeyOptions, ModelOptions, open_runtime, positive

if TYPE_CHECKING:
    from edge_runtime.assistant import Assistant
    from edge_runtime.decode.answer import ServiceReport
    from edge_runtime.online import Cloud
    from edge_runtime.session import TurnAnswer

_EPILOG = """\
examples:
  python -m edge_runtime.chat
  python -m edge_runtime.chat --url http://localhost:8080 --mode prefer_on_device
  python -m edge_runtime.chat --link udp:gateway.example.com:7777
  python -m edge_runtime.chat --system "Answer in one sentence."
  python -m edge_runtime.chat --load talk.session

Tokens of the cloud and of the device have different colours. /help lists the
commands. Ctrl-C stops an answer; Ctrl-D ends the conversation.

exit codes: 0 done, 2 wrong usage, 4 bad or missing model, or a bad file,
5 refused by the service, or the link cannot be opened
"""

_GROUPS = {"service": "Where the device asks.", **BUDGET_GROUP, **MODEL_GROUP}
_service = partial(option, group="service")
SERVICE_SECONDS, LINK_SECONDS = 15.0, 600.0


@dataclass(frozen=True, kw_only=True)
class _ChatArguments(ModelOptions, KeyOptions, BudgetOptions):
    system: str | None = option(None, "system prompt", metavar="TEXT")
    load: Path | None = option(None, "continue the conversation in this file", Path, metavar="FILE")
    max_tokens: int | None = option(None, "end an answer after N tokens", positive, metavar="N")
    url: str | None = _service(
        None, "service to ask for anchors; default: none, the device alone", either="cloud"
    )
    link: str | None = _service(
        None,
        "link to a service's gateway, such as udp:HOST:PORT; see links/README.md",
        metavar="ADDRESS",
        either="cloud",
    )
    seal: Path | None = option(
        None,
        "with --link: this device's NAME.device.seal, which authenticates frames",
        Path,
        metavar="FILE",
        group="service",
    )
    airtime: float | None = _service(
        None, "with --link: most seconds on the air of a question; default: any", float, metavar="S"
    )
    mode: str | None = _service(
        None,
        "where turns are answered: only_on_device, prefer_on_device (default with --url or --link), "
        "prefer_in_cloud or only_in_cloud",
        metavar="NAME",
    )
    doubt: float | None = _service(
        None,
        "device's doubt, 0 to 1, above which prefer_on_device asks; default: as measured for the bundle",
        float,
        metavar="D",
    )
    timeout: float | None = _service(
        None,
        f"most seconds to wait for an answer (default {SERVICE_SECONDS:g}, over a link {LINK_SECONDS:g})",
        float,
        metavar="S",
    )


class Chat:
    """The loop over the lines of a person or a pipe."""

    def __init__(self, assistant: Assistant, max_tokens: int | None) -> None:
        self.assistant, self.max_tokens = assistant, max_tokens
        self.last: TurnAnswer | None = None
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/mode": (self.mode, "[NAME]  where turns are answered"),
            "/private": (
                partial(self.ask, private=True),
                "TEXT  nothing leaves the device from here on, until /new",
            ),
            "/why": (self.why, "where the last answer came from, and what it cost"),
            "/system": (self.system, "TEXT  a new conversation with this system prompt"),
            "/new": (self.new, "a new conversation"),
            "/save": (self.save, "FILE  keep the conversation"),
            "/load": (self.load, "FILE  continue one"),
            "/help": (self.help, "these commands"),
            "/quit": (self.quit, "end, as Ctrl-D"),
        }

    def run(self) -> int:
        """Reads lines until there are no more."""
        terminal = sys.stdin.isatty()
        if terminal:
            import readline  # noqa: F401 (lines can be edited and recalled)

            print(f"{self.assistant.session.edge.bundle.path.name}, {self.assistant.mode}; /help, Ctrl-D")
        while True:
            try:
                line = input("> " if terminal else "").strip()
            except EOFError:
                print(end="\n" if terminal else "")
                return 0
            except KeyboardInterrupt:
                print("\n(Ctrl-D ends the conversation)")
                continue
            try:
                self.do(line)
            except EOFError:
                return 0
            except UserError as error:
                if not terminal:
                    raise
                print(f"chat: {error}", file=sys.stderr)

    def do(self, line: str) -> None:
        """Answers a line, or runs its command; EOFError ends the conversation."""
        name, _, rest = line.partition(" ")
        if line and not line.startswith("/"):
            self.ask(line)
        elif name in self.commands:
            self.commands[name][0](rest.strip())
        elif line:
            raise UsageError(f"{name}: expected one of {', '.join(self.commands)}, found another")

    def ask(self, question: str, *, private: bool = False) -> None:
        """Answers a question, token by token; Ctrl-C keeps what was written."""
        from edge_runtime.console import TokenPrinter, Transcript

        if not question:
            raise UsageError("question: expected some text, found none")
        edge = self.assistant.session.edge
        options = edge.options(max_tokens=self.max_tokens)
        if sys.stdout.isatty() and (where := self.assistant.asks_first(private=private)):
            print(f"(asking {where})", file=sys.stderr)
        try:
            answer = self.last = self.assistant.ask(question, options, private=private)
        except KeyboardInterrupt:  # while the cloud is waited for
            print("(stopped)", file=sys.stderr)
            return
        if answer.dropped:
            print(f"(the oldest {answer.dropped} turns no longer fit and are forgotten)", file=sys.stderr)
        printer = TokenPrinter(sys.stdout, colour=self.colour)
        live = not answer.revisable or sys.stdout.isatty()
        transcript = Transcript(edge.text_stream, printer, live)
        try:
            for item in answer:
                transcript.add(item)
            transcript.finish()
        except KeyboardInterrupt:
            answer.close()
            print("\n(stopped)", end="", file=sys.stderr, flush=True)
        finally:
            printer.close()
        if answer.service and answer.service.failure:
            print(f"chat: {answer.service.failure}; the device answered alone", file=sys.stderr)

    def mode(self, name: str) -> None:
        if name:
            self.assistant.mode = name
        print(self.assistant.mode)

    def why(self, _: str) -> None:
        from edge_runtime.assistant import device_doubt
        from edge_runtime.decode.forced import Source

        if self.last is None:
            raise UsageError("/why: expected an answer before it, found none")
        answer, service = self.last, self.last.service
        cloud = sum(token.source is Source.ANCHOR for token in answer.tokens)
        before = service.doubt_before if service else None
        doubts = {
            "device": device_doubt(answer.tokens),
            "where it asked": before,
            "cloud": answer.doubt,
        }
        said = ", ".join(f"{who} {value:.2f}" for who, value in doubts.items() if value is not None)
        own = len(answer.tokens) - cloud
        print(f"source   {answer.source}: {cloud} tokens of the cloud, {own} of the device")
        asked = "; ".join(self._asked(service))
        print(textwrap.fill(asked, 80, initial_indent="asked    ", subsequent_indent=" " * 9))
        print(f"passes   {answer.stats.passes}, {answer.stats.reused} tokens of the prompt cached")
        print(f"seconds  {answer.stats.prefill + answer.stats.fill:.2f}")
        print(f"doubt    {said or 'not measured'}")

    def _asked(self, service: ServiceReport | None) -> Iterator[str]:
        """What the answer has cost, and what was spent today."""
        cloud, daily = self.assistant.cloud, self.assistant.daily
        if (
            cloud is None
            or service is None
            or not (service.spent.requests or service.remembered or service.failure)
        ):
            yield "nothing"
        elif service.remembered:
            yield "nothing: remembered from an earlier request"
        elif not service.spent.requests:
            yield str(service.failure)
        else:
            received = sum(service.payload_bytes)
            yield service.crossed or f"{service.spent.bytes - received} bytes sent, {received} received"
            if service.left_out:
                yield f"without the oldest {service.left_out} messages, which did not fit the frame"
            if daily is not None:
                today = daily.spent(cloud.where)
                parts = [
                    f"{getattr(today, name):g}{'' if most is None else f' of {most:g}'} {name}"
                    for name, most in vars(daily.limits).items()
                    if most is not None or getattr(today, name)
                ]
                yield f"today {', '.join(parts)}"

    def system(self, text: str) -> None:
        self._continue(text or None)

    def new(self, _: str) -> None:
        self._continue(None)

    def _continue(self, system: str | None) -> None:
        from edge_runtime.session import EdgeSession

        self.assistant.session = EdgeSession(self.assistant.session.edge, system)
        self.last = None

    def save(self, path: str) -> None:
        self.assistant.session.save(_file(path))

    def load(self, path: str) -> None:
        from edge_runtime.session import EdgeSession

        self.assistant.session = EdgeSession.load(_file(path), self.assistant.session.edge)
        self.last = None
        for message in self.assistant.session.messages:
            print(f"{'> ' if message.role == 'user' else ''}{message.content}")

    def help(self, _: str) -> None:
        for name, (_run, about) in self.commands.items():
            print(f"{name:9} {about}")

    def quit(self, _: str) -> None:
        raise EOFError


def _file(path: str) -> Path:
    if not path:
        raise UsageError("file: expected its name behind the command, found none")
    return Path(path).expanduser()


def _run(args: _ChatArguments) -> int:
    from edge_runtime.assistant import Assistant
    from edge_runtime.bundle.lookup import find_bundles, gateway_bundle
    from edge_runtime.online import ServiceCloud, choose_bundle
    from edge_runtime.session import EdgeSession

    logging.basicConfig(format="chat: %(message)s", level=logging.WARNING)
    if args.load and args.system is not None:
        raise UsageError("--system: expected none beside --load, whose conversation has its own, found one")
    with _cloud(args) as cloud:
        if isinstance(cloud, ServiceCloud):
            path = choose_bundle(cloud.client, args.edge)
        else:
            path = gateway_bundle(args.edge) if cloud else find_bundles("", args.edge)[0]
        edge = open_runtime(args, path)
        edge.preload()
        session = EdgeSession.load(args.load, edge) if args.load else EdgeSession(edge, args.system)
        assistant = Assistant(
            session,
            cloud,
            mode=args.mode,
            threshold=args.doubt,
            daily=args.daily(),
            memory=args.memory(),
        )
        return Chat(assistant, args.max_tokens).run()


def _cloud(args: _ChatArguments) -> AbstractContextManager[Cloud | None]:
    """Where the options say that the device asks."""
    from edge_runtime.client.client import open_client
    from edge_runtime.online import ServiceCloud

    for name in ("seal", "airtime"):
        if getattr(args, name) is not None and not args.link:
            raise UsageError(f"--{name}: expected --link beside it, found none")
    if args.link:
        # The room of links lies above this one: it is found by its name where it is asked for.
        seconds = LINK_SECONDS if args.timeout is None else args.timeout
        opened = import_module("links.asking").open_cloud(args.link, args.seal, args.airtime, seconds)
        return cast("AbstractContextManager[Cloud]", opened)
    if args.url:
        seconds = SERVICE_SECONDS if args.timeout is None else args.timeout
        return nullcontext(ServiceCloud(open_client("url", args.url, args.key_file, seconds)))
    return nullcontext()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    parser = CommandParser(
        prog="python -m edge_runtime.chat",
        description="Talk with the model on this device, alone or with the help of a service.",
        epilog=_EPILOG,
    )
    parser.declare(_ChatArguments, _GROUPS)
    args = parser.parse(_ChatArguments, argv)
    return run_command("chat", lambda: _run(args))


if __name__ == "__main__":
    sys.exit(main())
