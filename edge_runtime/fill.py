"""python -m edge_runtime.fill: a payload in, text out.

Responsible for the command line: text goes to standard output token by token, figures and errors to standard
error. Not responsible for decoding (see `runtime`, `online`) or for how text is shown (see `console`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.cli import CommandParser, option, run_command
from edge_runtime.client import KEY_VARIABLE
from edge_runtime.engine.profiles import ENGINES, ORT, PROFILES
from edge_runtime.errors import UsageError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.options import GRAMMAR_GROUP, GrammarOptions, read_grammar
from edge_runtime.text.chat import Message, Prompt, as_messages
from payload.errors import ChecksumError, FingerprintError
from payload.files import read_payload

if TYPE_CHECKING:
    from edge_runtime.decode.answer import Answer
    from edge_runtime.decode.forced import FillOptions, Token
    from edge_runtime.decode.refine import Retract
    from edge_runtime.runtime import EdgeRuntime, FillRequest

    AnswerSource = Callable[[FillOptions], Answer[Token | Retract]]
    """Gives the answer: from a payload file, or with a service."""

_STARTED = time.perf_counter()

DECLINED = 6
"""Exit code of an answer that was not shown."""

SAMPLE = Path(__file__).parent / "sample.bin"
"""A payload for the bundle that ships with this package, made with the diffusion model beside it."""
CODECS = ("compact", "predictive")
"""Codecs that a service may be asked for."""
MAX_PROMPT_FILE_BYTES = 1 << 20
STDIN = Path("-")

_EPILOG = """\
examples:
  python -m edge_runtime.fill --sample
  python -m edge_runtime.fill payload.bin
  python -m edge_runtime.fill payload.bin --edge bundles/qwen2.5-0.5b --json
  python -m edge_runtime.fill payload.bin --json-schema profile.json
  # ask a service; where it cannot be reached, this device answers alone
  python -m edge_runtime.fill --url http://localhost:8080 --prompt "Who...?"
  # a conversation: [{"role": "user", "content": "Who...?"}, ...]
  python -m edge_runtime.fill --url http://localhost:8080 --messages chat.json

exit codes: 0 done, 2 wrong usage, 3 bad payload, 4 bad or missing model,
5 refused by the service (with --no-fallback: or not reached), 6 declined
(--decline), 130 interrupted
"""

MODEL_GROUP = {"engine": "How the model runs."}
OUTPUT_GROUP = {"output": "What is shown besides the text."}
_GROUPS = {
    "service": "With --url: what is asked of the service.",
    **GRAMMAR_GROUP,
    **MODEL_GROUP,
    **OUTPUT_GROUP,
}


def positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return value


_engine = partial(option, group="engine")
_output = partial(option, group="output")
_service = partial(option, group="service")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of the bundle and its engine (see `open_runtime`)."""

    edge: str | None = option(
        None,
        "folder or name of a model bundle; default: $EDGE_MODEL, else an installed one that fits",
        metavar="BUNDLE",
    )
    variant: str | None = _engine(None, "which of its variants; default: the bundle's own", metavar="NAME")
    threads: int | None = _engine(None, "default: one for each fast core", positive, metavar="N")
    context: int | None = _engine(
        None, "most tokens of prompt and answer; default: the bundle's", positive, metavar="N"
    )
    engine: str = _engine(
        ORT,
        f"library that runs the model; onnxruntime-genai has to be installed; default: {ORT}",
        choices=ENGINES,
    )
    profile: str = _engine("latency", "default: latency", choices=tuple(PROFILES))
    deterministic: bool = _engine(False, "the same sums in the same order every time")
    no_verify: bool = _engine(False, "do not check the bundle's SHA-256: starts faster")
    no_prepack: bool = _engine(False, "do not keep reordered weights in the user's cache folder")


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The options of `write_answer`."""

    decline: bool = option(
        False, "write nothing where the cloud is not sure, by the bundle's threshold of doubt: exit code 6"
    )
    json: bool = option(False, "print one JSON object in place of streaming text")
    color: str = _output("auto", "default: auto", choices=("auto", "always", "never"))
    quiet: bool = _output(False, "no figures on standard error")


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """The options of what is asked (see `read_asked`)."""

    prompt: str | None = option(
        None, "the prompt, where the payload does not carry it", metavar="TEXT", either="prompt"
    )
    prompt_file: Path | None = option(
        None, "the same from a UTF-8 file; - reads standard input", Path, metavar="FILE", either="prompt"
    )
    messages: Path | None = option(
        None,
        "a conversation: a JSON list of objects with role and content; - reads standard input",
        Path,
        metavar="FILE",
        either="prompt",
    )
    system: str | None = option(None, "how to answer: a system message before the prompt", metavar="TEXT")


@dataclass(frozen=True, kw_only=True)
class KeyOptions:
    """The option of a service's key (see `client.open_client`)."""

    key_file: Path | None = option(
        None,
        f"file with its key; default: ${KEY_VARIABLE}, else none",
        Path,
        metavar="FILE",
        group="service",
    )


@dataclass(frozen=True, kw_only=True)
class _FillArguments(ModelOptions, OutputOptions, PromptOptions, GrammarOptions, KeyOptions):
    """Everything that the command is given."""

    payload: str | None = option(
        None, "file of the payload; - reads standard input", flags=("payload",), nargs="?"
    )
    sample: bool = option(False, "fill the payload that comes with this package, in place of a file")
    url: str | None = option(None, "ask this service for anchors, in place of a file")
    max_tokens: int | None = option(None, "end the answer after N tokens", positive, metavar="N")
    fractions: list[float] | None = option(
        None,
        "share of the cloud's steps; several, with --stream, for one payload after each",
        float,
        flags=("--fraction",),
        action="append",
        metavar="F",
        group="service",
    )
    stream: bool | None = _service(
        None,
        "write at once and refine the text as payloads come; default: on a terminal",
        action=argparse.BooleanOptionalAction,
    )
    codec: str | None = _service(
        None,
        "of its payloads; predictive: fewest bytes, one pass of this model per token, and compact where "
        "this device's numbers differ from the service's; default: the service's choice",
        choices=CODECS,
    )
    timeout: float = _service(15.0, "most seconds to wait for it (default 15)", metavar="S")
    confidence: bool = _service(
        False, "ask how sure the cloud is of what it sends (2 bits a token): the line `doubt`"
    )
    no_fallback: bool = _service(False, "fail where it cannot be reached, instead of answering alone")
    no_scores: bool = _engine(False, "do not compute the anchors' probabilities: faster")


def parser() -> CommandParser:
    result = CommandParser(
        prog="python -m edge_runtime.fill",
        usage="python -m edge_runtime.fill [payload | --sample | --url URL] [options]",
        description="Finish, on this device, the answer whose anchors a payload carries.",
        epilog=_EPILOG,
    )
    result.declare(_FillArguments, _GROUPS)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return run_command("fill", lambda: _run(_parse(argv)))


def _parse(argv: Sequence[str] | None) -> _FillArguments:
    """The arguments; exits with code 2 unless there is exactly one source of anchors."""
    known = parser()
    args = known.parse(_FillArguments, argv)
    given = [name for name in ("payload", "sample", "url") if getattr(args, name)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        known.error(f"expected a payload file, --sample or --url, found {found}")
    return args


def _run(args: _FillArguments) -> int:
    logging.basicConfig(format="fill: %(message)s", level=logging.WARNING if args.quiet else logging.INFO)
    if args.payload == "-" and STDIN in (args.prompt_file, args.messages):
        raise UsageError("standard input: expected one use of it, found the payload and the prompt")
    prompt, grammar = read_asked(args), read_grammar(args)
    open_source = _open_payload if args.url is None else _open_service
    edge, source = open_source(args, prompt, grammar)
    require_limit(args, edge)
    answer = source(
        edge.options(
            max_tokens=args.max_tokens,
            score_anchors=not args.no_scores,
            grammar=grammar,
        )
    )
    return write_answer("fill", args, edge, answer)


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
    from edge_runtime.console import TokenPrinter, Transcript, answer_json, doubt_line, not_sure, summary

    if not answer.revisable:
        _report_failure(program, answer)
    load = time.perf_counter() - _STARTED

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    colour = args.color == "always" or (
        args.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
    printer = None if args.json else TokenPrinter(sys.stdout, colour=colour)
    # Tokens that may be retracted are shown at once only where they can be erased.
    decline = args.decline
    live = not decline and (not answer.revisable or sys.stdout.isatty())
    limit = edge.bundle.manifest.not_sure_from
    transcript = Transcript(edge.text_stream, printer, live)
    try:
        if not (decline and answer.service is None and not_sure(answer.doubt, limit)):  # else known already
            for item in answer:
                transcript.add(item)
        if decline and not_sure(answer.doubt, limit):
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
        print(
            json.dumps(
                answer_json(transcript, answer, load=load, not_sure_from=limit) | figures, ensure_ascii=False
            )
        )
    sys.stdout.flush()
    if answer.revisable:
        _report_failure(program, answer)
    if not args.quiet:
        print(
            f"model      {edge.bundle.path.name} {edge.bundle.variant_name}, threads: {edge.threads}",
            summary(transcript, answer, load=load, not_sure_from=limit),
            *([line] if line else []),
            sep="\n",
            file=sys.stderr,
        )
    return 0


def _report_failure(program: str, answer: Answer[Token | Retract]) -> None:
    """Reports failures of the service, even with --quiet: the answer is not what it would have been."""
    if answer.service and answer.service.fell_back:
        print(f"{program}: {answer.service.fell_back}", file=sys.stderr, flush=True)
    if answer.service and answer.service.failure:
        how = "without more of it" if answer.service.payload_bytes else "alone"
        print(f"{program}: {answer.service.failure}; this device answers {how}", file=sys.stderr, flush=True)


def _open_service(
    args: _FillArguments, prompt: Prompt | None, grammar: Grammar | None
) -> tuple[EdgeRuntime, AnswerSource]:
    """A request sent to the service, while the model is loaded."""
    from edge_runtime.client.client import open_client
    from edge_runtime.online import ServiceOptions, ServiceRequest, choose_bundle

    assert args.url is not None
    if not prompt:
        raise UsageError("--url: expected a prompt (--prompt, --prompt-file, --messages), found none")
    client = open_client("url", args.url, args.key_file, args.timeout)
    stream = sys.stdout.isatty() and not args.json if args.stream is None else args.stream
    fractions = tuple(args.fractions or ())
    if not all(0 < fraction <= 1 for fraction in fractions):
        raise UsageError(f"fraction: expected above 0, at most 1, found {list(fractions)}")
    if len(fractions) > 1 and not stream:
        raise UsageError("fraction: expected one without --stream, found several")
    edge = open_runtime(args, choose_bundle(client, args.edge))
    options = ServiceOptions(
        fractions, stream, not args.no_fallback, args.codec, args.confidence or args.decline
    )
    return edge, ServiceRequest(client, edge, prompt, options, grammar=grammar).start().answer


def _open_payload(
    args: _FillArguments, prompt: Prompt | None, grammar: Grammar | None
) -> tuple[EdgeRuntime, AnswerSource]:
    """A payload file, read with the bundle that fits it."""
    from edge_runtime.bundle.bundle import read_manifest
    from edge_runtime.bundle.lookup import SHIPPED, find_bundles
    from payload import Codec, peek

    data = read_payload(args.payload or str(SAMPLE))
    header = peek(data)
    named = args.edge or (str(SHIPPED) if args.sample else None)
    if args.sample:
        logging.info("%r, with %d bytes from the cloud", prompt or header.extras.prompt, len(data))
    predictive = header.codec is Codec.PREDICTIVE

    def attempt(path: Path) -> tuple[EdgeRuntime, FillRequest]:
        variant = read_manifest(path).variant_with_fingerprint(header.tag) if predictive else None
        edge = open_runtime(args, path, variant)
        if not predictive:  # the codec has an engine of its own
            edge.preload()
        return edge, edge.read(data, prompt, grammar)

    *others, last = find_bundles(header.tag, named, by_fingerprint=predictive)
    for path in others:
        # A tag is one byte, so two contracts may share it; the checksum tells them apart.
        with contextlib.suppress(ChecksumError, FingerprintError):
            edge, request = attempt(path)
            break
    else:
        edge, request = attempt(last)
    return edge, partial(edge.fill, request)


def open_runtime(args: ModelOptions, path: Path, variant: str | None = None) -> EdgeRuntime:
    """The runtime of a bundle with the command line's options; its model is not loaded yet."""
    from edge_runtime.runtime import EdgeRuntime

    return EdgeRuntime.open(
        path,
        args.variant or variant,
        context=args.context,
        threads=args.threads,
        verify=not args.no_verify,
        prepack=not args.no_prepack,
        engine=args.engine,
        profile=PROFILES[args.profile],
        deterministic=args.deterministic,
    )


def read_asked(args: PromptOptions) -> Prompt | None:
    """What is asked by these options; None where nothing is. Raises UsageError."""
    prompt: Prompt | None = read_prompt(args.prompt_file) if args.prompt_file else args.prompt
    if args.messages:
        prompt = read_messages(args.messages)
    if args.system is None:
        return prompt
    if prompt is None:
        raise UsageError(
            "--system: expected a prompt beside it (--prompt, --prompt-file or --messages), found none"
        )
    return as_messages(prompt, args.system)


def read_messages(path: Path) -> tuple[Message, ...]:
    """The conversation in a JSON file; raises UsageError."""
    text = read_prompt(path)
    try:
        value = json.loads(text)
        if not isinstance(value, list):
            raise ValueError(f"{text.strip():.60}")
        return as_messages(value)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f'{path}: expected a JSON list such as [{{"role": "user", "content": "..."}}], found: {error}'
        ) from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def read_prompt(path: Path) -> str:
    """The text of a prompt file or, for -, of standard input, without the final newline."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as file:
            data = file.read(MAX_PROMPT_FILE_BYTES + 1)
        if len(data) > MAX_PROMPT_FILE_BYTES:
            raise UsageError(
                f"{path}: expected a prompt of at most {MAX_PROMPT_FILE_BYTES} bytes, found more"
            )
        return data.decode("utf-8").removesuffix("\n")
    except OSError as error:
        raise UsageError(f"{path}: expected a readable prompt file, found: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected UTF-8, found byte {error.object[error.start]:#04x}") from error


if __name__ == "__main__":
    sys.exit(main())
