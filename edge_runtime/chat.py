"""python -m edge_runtime.chat: a conversation in the terminal.

Responsible for the loop of questions, its commands and Ctrl-C. Not responsible for turns and where they are
answered (see `session`) or for how text is shown (see `console`).
"""

from __future__ import annotations

import logging
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from common.cli import option, run_options
from common.errors import UserError
from edge_runtime.client import KeyOptions
from edge_runtime.commands import CloudOptions, ModelOptions, choose_bundle, open_runtime, positive
from edge_runtime.errors import UsageError

if TYPE_CHECKING:
    from edge_runtime.client.question import ServiceReport
    from edge_runtime.cloud import Cloud
    from edge_runtime.decode.answer import Answer
    from edge_runtime.decode.forced import Token
    from edge_runtime.decode.refine import Retract
    from edge_runtime.session import EdgeSession

_EPILOG = """\
examples:
  python -m edge_runtime.chat
  python -m edge_runtime.chat --url http://localhost:8080 --mode prefer_on_device
  python -m edge_runtime.chat --system "Answer in one sentence."
  python -m edge_runtime.chat --load talk.session

Tokens of the cloud and of the device have different colours. /help lists the
commands. Ctrl-C stops an answer; Ctrl-D ends the conversation.

exit codes: 0 done, 2 wrong usage, 4 bad or missing model, or a bad file,
5 refused by the service
"""


@dataclass(frozen=True, kw_only=True)
class _ChatArguments(ModelOptions, CloudOptions, KeyOptions):
    """Talk with the model on this device, alone or with the help of a service."""

    system: str | None = option(None, "system prompt", metavar="TEXT")
    load: Path | None = option(None, "continue the conversation in this file")
    max_tokens: int | None = option(None, "end an answer after N tokens", positive)
    doubt: float | None = option(
        None,
        "device's doubt, 0 to 1, above which prefer_on_device asks; default: as measured for the bundle",
        metavar="D",
    )


class Chat:
    """The loop over the lines of a person or a pipe."""

    def __init__(
        self,
        session: EdgeSession,
        cloud: Cloud | None = None,
        *,
        mode: str | None = None,
        threshold: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        from edge_runtime.session import mode_of

        self.session, self.cloud, self.threshold, self.max_tokens = session, cloud, threshold, max_tokens
        self.mode = mode_of(mode, cloud)
        self.last: Answer[Token | Retract] | None = None
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/mode": (self.set_mode, "[NAME]  where turns are answered"),
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

            bundle = self.session.edge.bundle
            knows = f"; knows {bundle.manifest.knows}" if bundle.manifest.knows else ""
            print(f"{bundle.path.name}, {self.mode}; /help, Ctrl-D{knows}")
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
        from edge_runtime.console import TokenPrinter, Transcript, lead
        from edge_runtime.decode.forced import FillOptions
        from edge_runtime.session import ONLY_IN_CLOUD, PREFER_IN_CLOUD

        if not question:
            raise UsageError("question: expected some text, found none")
        edge = self.session.edge
        waits = self.mode in (PREFER_IN_CLOUD, ONLY_IN_CLOUD) and not (private or self.session.private)
        if sys.stdout.isatty() and waits:
            print(f"(asking {self.cloud})", file=sys.stderr)
        try:
            answer = self.last = self.session.ask(
                question,
                FillOptions(max_tokens=self.max_tokens),
                cloud=self.cloud,
                mode=self.mode,
                private=private,
                threshold=self.threshold,
            )
        except KeyboardInterrupt:  # while the cloud is waited for
            print("(stopped)", file=sys.stderr)
            return
        if answer.dropped:
            print(f"(the oldest {answer.dropped} turns no longer fit and are forgotten)", file=sys.stderr)
        printer = TokenPrinter(sys.stdout, colour=self.colour)
        live = not answer.revisable or sys.stdout.isatty()
        transcript = Transcript(edge.text_stream, printer, live, partial(lead, answer))
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

    def set_mode(self, name: str) -> None:
        from edge_runtime.session import mode_of

        self.mode = mode_of(name or self.mode, self.cloud)
        print(self.mode)

    def why(self, _: str) -> None:
        from edge_runtime.cloud import device_doubt
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
        print(textwrap.fill(_asked(service), 80, initial_indent="asked    ", subsequent_indent=" " * 9))
        print(f"passes   {answer.stats.passes}, {answer.stats.reused} tokens of the prompt cached")
        print(f"seconds  {answer.stats.prefill + answer.stats.fill:.2f}")
        print(f"doubt    {said or 'not measured'}")

    def system(self, text: str) -> None:
        self._continue(text or None)

    def new(self, _: str) -> None:
        self._continue(None)

    def _continue(self, system: str | None) -> None:
        from edge_runtime.session import EdgeSession

        self.session = EdgeSession(self.session.edge, system)
        self.last = None

    def save(self, path: str) -> None:
        self.session.save(_file(path))

    def load(self, path: str) -> None:
        from edge_runtime.session import EdgeSession

        self.session = EdgeSession.load(_file(path), self.session.edge)
        self.last = None
        for message in self.session.messages:
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


def _asked(service: ServiceReport | None) -> str:
    """What the cloud's part of an answer has cost."""
    if service is None:
        return "nothing"
    http = f"{service.sent} bytes sent, {sum(service.payload_bytes)} received" if service.sent else None
    said = service.crossed or http or service.failure or "nothing"
    if service.left_out:
        said += f"; without the oldest {service.left_out} messages, which did not fit the frame"
    return said


def _run(args: _ChatArguments) -> int:
    from edge_runtime.client.client import open_client
    from edge_runtime.session import EdgeSession

    logging.basicConfig(format="chat: %(message)s", level=logging.WARNING)
    if args.load and args.system is not None:
        raise UsageError("--system: expected none beside --load, whose conversation has its own, found one")
    client = open_client("url", args.url, args.key_file, args.timeout) if args.url else None
    edge = open_runtime(args, choose_bundle(client, args.edge))
    edge.preload()
    session = EdgeSession.load(args.load, edge) if args.load else EdgeSession(edge, args.system)
    chat = Chat(session, client, mode=args.mode, threshold=args.doubt, max_tokens=args.max_tokens)
    return chat.run()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return run_options("edge_runtime.chat", _run, _ChatArguments, argv, _EPILOG, usage="[options]")


if __name__ == "__main__":
    sys.exit(main())
