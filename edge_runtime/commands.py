"""What the commands of the device share: options of the model, the prompt and the output.

Responsible for these options and what is done with them. Not responsible for a command's own (see `fill`,
`chat`, `endpoint`, `links.ask`) or for how text is shown (see `console`).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.cli import option
from common.files import read_bounded
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.text.chat import Message, Prompt, as_messages

if TYPE_CHECKING:
    from edge_runtime.client.client import Client
    from edge_runtime.decode.answer import Answer
    from edge_runtime.decode.forced import Token
    from edge_runtime.decode.refine import Retract
    from edge_runtime.runtime import EdgeRuntime

_STARTED = time.perf_counter()

DECLINED, ALONE = 6, 7
"""Exit codes of an answer that was not shown, and of the device's own where a cloud was wanted."""
IDENTITY_SECONDS = 3.0
"""Limit of the request for the service's contract, where several bundles are installed."""
MAX_MESSAGES_BYTES = 1 << 20
STDIN = Path("-")


def positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of the bundle and its engine (see `open_runtime`)."""

    edge: str | None = option(
        None,
        "folder or name of a bundle; default: one that fits",
        metavar="BUNDLE",
    )
    variant: str | None = option(None, "which of its variants; default: the bundle's", metavar="NAME")
    threads: int | None = option(None, "default: one for each fast core", positive)
    context: int | None = option(None, "tokens of prompt and answer; default: the bundle's", positive)


@dataclass(frozen=True, kw_only=True)
class CloudOptions:
    """The options of a service that may be asked, and of when it is."""

    url: str | None = option(None, "service to ask for anchors; default: none, the device alone")
    mode: str | None = option(
        None,
        "where turns are answered: only_on_device, prefer_on_device (default with --url), prefer_in_cloud or "
        "only_in_cloud",
        metavar="NAME",
    )
    timeout: float = option(15.0, "most seconds to wait for the service (default 15)", metavar="S")


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The options of `write_answer`."""

    decline: bool = option(False, "write nothing where the cloud is not sure: exit code 6")
    json: bool = option(False, "print one JSON object in place of streaming text")


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """The options of what is asked (see `read_asked`)."""

    prompt: str | None = option(
        None, "the prompt, where the payload does not carry it", metavar="TEXT", either="prompt"
    )
    messages: Path | None = option(
        None, "a conversation: JSON, [{role, content}, ...]; - for stdin", either="prompt"
    )
    system: str | None = option(None, "how to answer: a system message before the prompt", metavar="TEXT")


def open_runtime(
    args: ModelOptions, path: Path, variant: str | None = None, waiting: int | None = None
) -> EdgeRuntime:
    """The runtime of a bundle with the command line's options; its model is not loaded yet."""
    from edge_runtime.engine.shared import MAX_BYTES
    from edge_runtime.runtime import EdgeRuntime

    return EdgeRuntime.open(
        path,
        args.variant or variant,
        context=args.context,
        threads=args.threads,
        waiting=MAX_BYTES if waiting is None else waiting,
    )


def read_asked(args: PromptOptions) -> Prompt | None:
    """What is asked by these options; None where nothing is. Raises UsageError."""
    prompt: Prompt | None = read_messages(args.messages) if args.messages else args.prompt
    if args.system is None:
        return prompt
    if prompt is None:
        raise UsageError("--system: expected a prompt beside it (--prompt or --messages), found none")
    return as_messages(prompt, args.system)


def read_messages(path: Path) -> tuple[Message, ...]:
    """The conversation in a JSON file or, for -, on standard input; raises UsageError."""
    data = read_bounded(path, MAX_MESSAGES_BYTES, UsageError)
    try:
        value = json.loads(data)
        if not isinstance(value, list):
            raise ValueError(f"{value!r:.60}")
        return as_messages(value)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f'{path}: expected a JSON list such as [{{"role": "user", "content": "..."}}], found: {error}'
        ) from error


def choose_bundle(client: Client | None, model: str | None) -> Path:
    """The bundle to use before there is a payload: the one named, the only one installed, or the one that
    fits the contract of a service, where there is one.

    Raises what `lookup.find_bundles` does, and CloudRefusedError.
    """
    from edge_runtime.bundle.lookup import find_bundles

    found = find_bundles("", model)
    if client is None or len(found) == 1:
        return found[0]
    try:
        timeout = min(IDENTITY_SECONDS, client.timeout)
        identity = replace(client, timeout=timeout, attempts=1).identity()
    except CloudUnavailableError:
        return found[0]  # the request for anchors will fail as well, and that is reported
    return find_bundles(identity, model, url=shlex.quote(client.url))[0]


def require_limit(args: OutputOptions, edge: EdgeRuntime) -> None:
    """Raises UsageError for --decline with a bundle that does not state its limit of doubt."""
    if args.decline and edge.bundle.manifest.not_sure_from is None:
        raise UsageError(
            f"--decline: expected a bundle that states its limit of doubt, found {edge.bundle.path} "
            "without. Leave it out, and decide by the line `doubt`."
        )


def write_answer(
    program: str,
    args: OutputOptions,
    edge: EdgeRuntime,
    answer: Answer[Token | Retract],
    more: Callable[[], tuple[str, dict[str, Any]]] | None = None,
) -> int:
    """Write an answer as it comes, and its figures, by these options; returns the exit code.

    program: that begins a line of trouble. more: after the answer, a further line of figures, and what the
    JSON object has of them. With --decline an answer is written only when its doubt is known to be below the
    bundle's threshold.
    """
    # Imported here, so that --help and an interrupt while libraries load are quick and quiet.
    from edge_runtime.console import TokenPrinter, Transcript, answer_json, doubt_line, lead, summary

    if not answer.revisable:
        _report_failure(program, answer)
    load = time.perf_counter() - _STARTED

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    printer = None if args.json else TokenPrinter(sys.stdout, colour=colour)
    # Tokens that may be retracted are shown at once only where they can be erased.
    decline = args.decline
    live = not decline and (not answer.revisable or sys.stdout.isatty())
    limit = edge.bundle.manifest.not_sure_from
    transcript = Transcript(edge.text_stream, printer, live, partial(lead, answer))
    try:
        if not (decline and answer.service is None and answer.not_sure is not False):  # else known already
            for item in answer:
                transcript.add(item)
        if decline and answer.not_sure is not False:
            if args.json:
                print(json.dumps({"declined": True, "doubt": answer.doubt, "not_sure_from": limit}))
            print(f"{program}: declined; doubt {doubt_line(answer.doubt, limit)}", file=sys.stderr)
            return DECLINED
        transcript.finish()
    finally:
        if printer:
            printer.close()
    line, figures = more() if more else ("", {})
    if args.json:
        print(json.dumps(answer_json(transcript, answer, load=load) | figures, ensure_ascii=False))
    sys.stdout.flush()
    if answer.revisable:
        _report_failure(program, answer)
    print(
        f"model      {edge.bundle.path.name} {edge.bundle.variant_name}, threads: {edge.threads}",
        summary(transcript, answer, load=load, not_sure_from=limit),
        *([line] if line else []),
        sep="\n",
        file=sys.stderr,
    )
    return ALONE if answer.alone else 0


def _report_failure(program: str, answer: Answer[Token | Retract]) -> None:
    """Reports failures of the service, for the answer is not what it would have been."""
    if answer.service and answer.service.fell_back:
        print(f"{program}: {answer.service.fell_back}", file=sys.stderr, flush=True)
    if answer.service and answer.service.failure:
        how = "without more of it" if answer.service.payload_bytes else "alone"
        print(f"{program}: {answer.service.failure}; this device answers {how}", file=sys.stderr, flush=True)
