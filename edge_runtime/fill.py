"""python -m edge_runtime.fill: a payload in, text out.

Responsible for the command line: text goes to standard output token by token, figures and errors to standard
error. Not responsible for decoding (see `runtime`, `cloud`) or for how text is shown (see `console`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from common.cli import option, run_options
from common.files import read_bounded, read_text
from edge_runtime.client import KeyOptions
from edge_runtime.commands import (
    STDIN,
    ModelOptions,
    OutputOptions,
    PromptOptions,
    choose_bundle,
    open_runtime,
    positive,
    read_asked,
    require_limit,
    write_answer,
)
from edge_runtime.errors import GrammarError, UsageError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.text.chat import Prompt
from payload.errors import ChecksumError, FingerprintError, OversizedPayloadError
from payload.header import MAX_PAYLOAD_BYTES

if TYPE_CHECKING:
    from edge_runtime.decode.answer import Answer
    from edge_runtime.decode.forced import FillOptions, Token
    from edge_runtime.decode.refine import Retract
    from edge_runtime.runtime import EdgeRuntime, FillRequest

    AnswerSource = Callable[[FillOptions], Answer[Token | Retract]]
    """Gives the answer: from a payload file, or with a service."""

SAMPLE = Path(__file__).parent / "sample.bin"
"""A payload for the bundle that ships with this package, made with the diffusion model beside it."""

_EPILOG = """\
examples:
  python -m edge_runtime.fill --sample
  python -m edge_runtime.fill --url http://localhost:8080 --prompt "Who...?"

exit codes: 0 done, 2 wrong usage, 3 bad payload, 4 bad or missing model,
5 refused or not reached, 6 declined, 7 the device alone, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class GrammarOptions:
    """What the answer is to be (see `read_grammar`)."""

    json_schema: Path | None = option(
        None, "answer with JSON for the JSON Schema in this file", either="grammar"
    )
    tools: Path | None = option(None, "answer with a call of a tool in this JSON list", either="grammar")
    grammar: Path | None = option(None, "answer in the Lark grammar in this file", either="grammar")


@dataclass(frozen=True, kw_only=True)
class _FillArguments(ModelOptions, OutputOptions, PromptOptions, GrammarOptions, KeyOptions):
    """Finish, on this device, the answer whose anchors a payload carries."""

    payload: str | None = option(
        None, "file of the payload; - reads standard input", flags=("payload",), nargs="?"
    )
    sample: bool = option(False, "fill the payload that comes with this package")
    url: str | None = option(None, "ask this service for anchors")
    max_tokens: int | None = option(None, "end the answer after N tokens", positive)
    fraction: float | None = option(None, "share of the service's steps; default: its choice", metavar="F")
    stream: bool | None = option(
        None,
        "write at once, and refine; default: on a terminal",
        action=argparse.BooleanOptionalAction,
    )
    codec: str | None = option(
        None,
        "compact; portable or predictive: fewer bytes, slower",
        choices=("compact", "portable", "predictive"),
        metavar="NAME",
    )
    timeout: float = option(15.0, "most seconds to wait for it (default 15)", metavar="S")
    no_fallback: bool = option(False, "fail where it cannot be reached; default: answer alone")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    usage = "[payload | --sample | --url URL] [options]"
    return run_options("edge_runtime.fill", _run, _FillArguments, argv, _EPILOG, usage=usage)


def _run(args: _FillArguments) -> int:
    from edge_runtime.decode.forced import FillOptions

    given = [name for name in ("payload", "sample", "url") if getattr(args, name)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        alone = "" if given else "; this device alone answers in python -m edge_runtime.chat"
        raise UsageError(f"expected a payload file, --sample or --url, found {found}{alone}")
    logging.basicConfig(format="fill: %(message)s", level=logging.INFO)
    if args.payload == "-" and args.messages == STDIN:
        raise UsageError("standard input: expected one use of it, found the payload and the conversation")
    prompt, grammar = read_asked(args), read_grammar(args)
    edge, source = (_open_payload if args.url is None else _open_service)(args, prompt)
    require_limit(args, edge)
    answer = source(edge.constrained(FillOptions(max_tokens=args.max_tokens), grammar))
    return write_answer("fill", args, edge, answer)


def read_grammar(args: GrammarOptions) -> Grammar | None:
    """The grammar that is asked for; None where none is. Raises GrammarError."""
    if args.json_schema is not None:
        return Grammar.json_schema(read_text(args.json_schema, GrammarError))
    if args.grammar is not None:
        return Grammar.lark(read_text(args.grammar, GrammarError))
    if args.tools is None:
        return None
    try:
        tools = json.loads(read_text(args.tools, GrammarError))
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"{args.tools}: expected JSON, found: {error}") from None
    if not isinstance(tools, list):
        raise GrammarError(f"{args.tools}: expected a JSON list of tools, found {tools!r:.60}")
    return Grammar.tools(tools)


def _open_service(args: _FillArguments, prompt: Prompt | None) -> tuple[EdgeRuntime, AnswerSource]:
    """A question sent to the service, while the model is loaded."""
    from edge_runtime.client.client import open_client
    from edge_runtime.cloud import CloudQuestion

    assert args.url is not None
    if not prompt:
        raise UsageError("--url: expected a prompt (--prompt, --messages), found none")
    if args.fraction is not None and not 0 < args.fraction <= 1:
        raise UsageError(f"fraction: expected above 0, at most 1, found {args.fraction:g}")
    client = open_client("url", args.url, args.key_file, args.timeout)
    stream = sys.stdout.isatty() and not args.json if args.stream is None else args.stream
    client = replace(client, fields={"fraction": args.fraction, "codec": args.codec})
    edge = open_runtime(args, choose_bundle(client, args.edge))
    question = CloudQuestion(client, edge, prompt, stream=stream, fallback=not args.no_fallback)
    return edge, question.send().answer


def _open_payload(args: _FillArguments, prompt: Prompt | None) -> tuple[EdgeRuntime, AnswerSource]:
    """A payload file, read with the bundle that fits it."""
    from edge_runtime.bundle.bundle import read_manifest
    from edge_runtime.bundle.lookup import SHIPPED, find_bundles
    from payload import peek

    data = read_bounded(args.payload or SAMPLE, MAX_PAYLOAD_BYTES, large=OversizedPayloadError)
    header = peek(data)
    named = args.edge or (str(SHIPPED) if args.sample else None)
    if args.sample:
        asked = header.extras.prompt or ""
        told = "%r, with %d bytes from the cloud, %d of them the question"
        logging.info(told, prompt or asked, len(data), len(asked.encode()))
    bound = header.codec.bound

    def attempt(path: Path) -> tuple[EdgeRuntime, FillRequest]:
        variant = read_manifest(path).variant_with_fingerprint(header.tag) if bound else None
        edge = open_runtime(args, path, variant)
        if not bound:  # these codecs have an engine of their own
            edge.preload()
        return edge, edge.read(header, prompt)

    *others, last = find_bundles(header.tag, named, by_fingerprint=bound)
    for path in others:
        # A tag is one byte, so two contracts may share it; the checksum tells them apart.
        with contextlib.suppress(ChecksumError, FingerprintError):
            edge, request = attempt(path)
            break
    else:
        edge, request = attempt(last)
    return edge, partial(edge.fill, request)


if __name__ == "__main__":
    sys.exit(main())
