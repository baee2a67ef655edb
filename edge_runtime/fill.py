"""python -m edge_runtime.fill: a payload in, text out.

Knows the command line. Text goes to standard output as its tokens come, figures and errors to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.engine.profiles import PROFILES
from edge_runtime.errors import UsageError
from payload.cli import run_command
from payload.errors import ChecksumError, FingerprintError
from payload.files import read_payload

if TYPE_CHECKING:
    from edge_runtime.client.online import Online
    from edge_runtime.decode.forced import Token
    from edge_runtime.decode.refine import Retract
    from edge_runtime.runtime import EdgeRuntime, FillRequest

_STARTED = time.perf_counter()

KEY_VARIABLE = "CLOUD_ANCHOR_KEY"
MAX_PROMPT_FILE_BYTES = 1 << 20

_EPILOG = """\
examples:
  python -m edge_runtime.fill payload.bin
  python -m edge_runtime.fill payload.bin --prompt "What is the tallest hill of Vell?" --json
  cat payload.bin | python -m edge_runtime.fill - --model bundles/qwen2.5-0.5b --variant int4

  # ask a service; where it cannot be reached, this device answers alone and says so
  python -m edge_runtime.fill --url http://localhost:8080 --prompt "What is the tallest hill of Vell?"

exit codes: 0 done, 2 wrong usage, 3 bad payload, 4 bad or missing model, 5 refused by the service (or, with
--no-fallback, not reached), 130 interrupted
"""


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="python -m edge_runtime.fill",
        description="Finish, on this device, the answer whose anchors a payload carries.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("payload", nargs="?", help="file of the payload; - reads standard input")
    prompt = result.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="the prompt, where the payload does not carry it")
    prompt.add_argument("--prompt-file", metavar="FILE", type=Path, help="the same from a UTF-8 file")
    result.add_argument(
        "--model",
        metavar="BUNDLE",
        help="folder or name of a model bundle; default: $EDGE_MODEL, else an installed one that fits",
    )
    result.add_argument("--variant", metavar="NAME", help="which of its variants; default: the bundle's own")
    result.add_argument("--threads", type=_positive, metavar="N", help="default: one for each fast core")
    result.add_argument("--max-tokens", type=_positive, metavar="N", help="end the answer after N tokens")
    result.add_argument(
        "--context",
        type=_positive,
        metavar="N",
        help="most tokens of prompt and answer; default: the bundle's",
    )
    result.add_argument(
        "--no-scores", action="store_true", help="do not compute the anchors' probabilities: faster"
    )
    result.add_argument("--profile", choices=tuple(PROFILES), default="latency", help="default: latency")
    result.add_argument(
        "--deterministic", action="store_true", help="the same sums in the same order every time; no guesses"
    )
    result.add_argument(
        "--speculate",
        choices=("auto", "on", "off"),
        default="auto",
        help="guess gap tokens and verify several a pass; auto: where measured to pay",
    )
    result.add_argument(
        "--lookahead",
        type=_positive,
        default=0,
        metavar="N",
        help="choose the last N tokens of a gap with sight of the anchors behind it: more passes",
    )
    result.add_argument(
        "--no-verify", action="store_true", help="do not check the bundle's SHA-256: starts faster"
    )
    result.add_argument(
        "--no-prepack", action="store_true", help="do not keep reordered weights in the user's cache folder"
    )
    result.add_argument(
        "--json", action="store_true", help="print one JSON object in place of streaming text"
    )
    add_service(result)
    result.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    result.add_argument("--quiet", action="store_true", help="no figures on standard error")
    return result


def add_service(parser: argparse.ArgumentParser) -> None:
    """The options of `remote.Client` and `online.ServiceOptions`."""
    group = parser.add_argument_group("service, in place of a file")
    group.add_argument("--url", help="its address, such as https://anchors.example.com")
    group.add_argument(
        "--key-file",
        metavar="FILE",
        type=Path,
        help=f"file with its key; default: ${KEY_VARIABLE}, else none",
    )
    group.add_argument(
        "--fraction",
        dest="fractions",
        type=float,
        action="append",
        default=[],
        metavar="F",
        help="share of the cloud's steps; several, with --stream, for one payload after each",
    )
    group.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="write at once and refine the text as payloads come; default: on a terminal",
    )
    group.add_argument(
        "--timeout", type=float, default=15.0, metavar="S", help="most seconds to wait for it (default 15)"
    )
    group.add_argument(
        "--no-fallback",
        action="store_true",
        help="fail where it cannot be reached, instead of answering alone",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return run_command("fill", lambda: _run(_parse(argv)))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the program where there is not one source of payloads."""
    known = parser()
    args = known.parse_args(argv)
    if (args.payload is None) == (args.url is None):
        known.error(f"expected either a payload file or --url, found {'both' if args.url else 'neither'}")
    return args


def _run(args: argparse.Namespace) -> int:
    # Loaded here, so that --help and an interrupt while libraries load are quick and quiet.
    from edge_runtime.decode.forced import FillStats
    from edge_runtime.tools.console import TokenPrinter, Transcript, answer_json, summary

    logging.basicConfig(format="fill: %(message)s", level=logging.WARNING if args.quiet else logging.INFO)
    prompt = _read_prompt(args.prompt_file) if args.prompt_file else args.prompt
    online = _ask(args, prompt) if args.url is not None else None
    edge, request = (online.edge, None) if online else _open(args, read_payload(args.payload), prompt)
    options = edge.options(
        max_tokens=args.max_tokens,
        score_anchors=not args.no_scores,
        speculate=args.speculate,
        lookahead=args.lookahead,
    )
    stats = FillStats()
    stream: Iterable[Token | Retract]
    if online and online.wish.stream:
        stream = online.fill(options, stats)
    else:
        request = online.request() if online else request
        assert request
        stream = edge.fill(request, options, stats)
        if online and online.trouble:
            _say_alone(online)
    load = time.perf_counter() - _STARTED

    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    colour = args.color == "always" or (
        args.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
    printer = None if args.json else TokenPrinter(sys.stdout, colour=colour)
    # What may be taken back can only be shown where it can be erased.
    live = request is not None or sys.stdout.isatty()
    transcript = Transcript(edge.text_stream, printer, live)
    try:
        for item in stream:
            transcript.take(item)
        transcript.finish()
    finally:
        if printer:
            printer.close()
    tokens = transcript.tokens
    size = len(edge.prompt_ids(prompt)) if request is None else len(request.prompt_ids)
    if args.json:
        anchors = len(request.anchors) if request else online.anchors if online else 0
        answer = answer_json(transcript.text, tokens, stats, anchors=anchors, prompt_tokens=size, load=load)
        if online:
            answer["service"] = {"payload_bytes": online.sizes, "trouble": online.trouble}
        print(json.dumps(answer, ensure_ascii=False))
    sys.stdout.flush()
    if online and online.trouble and request is None:
        _say_alone(online)
    if not args.quiet:
        print(
            f"model      {edge.bundle.path.name} {edge.bundle.variant_name}, threads: {edge.threads}\n"
            + (f"service    payloads of {online.sizes} bytes\n" if online else "")
            + summary(tokens, stats, prompt_tokens=size, load=load),
            file=sys.stderr,
        )
    return 0


def _say_alone(online: Online) -> None:
    """Aloud, --quiet or not: the answer is not what the service would have made of it."""
    what = "without more of it" if online.sizes else "alone"
    print(f"fill: {online.trouble}; this device answers {what}", file=sys.stderr, flush=True)


def _ask(args: argparse.Namespace, prompt: str | None) -> Online:
    """The service asked for a payload, while the model is loaded."""
    from edge_runtime.client.client import Client
    from edge_runtime.client.online import Online, ServiceOptions, choose_bundle

    if not prompt:
        raise UsageError("--url: expected a prompt (--prompt, --prompt-file), found none")
    key = _read_prompt(args.key_file).strip() if args.key_file else os.environ.get(KEY_VARIABLE) or None
    cloud = Client(args.url, key, args.timeout)
    stream = sys.stdout.isatty() and not args.json if args.stream is None else args.stream
    if not all(0 < fraction <= 1 for fraction in args.fractions):
        raise UsageError(f"fraction: expected above 0, at most 1, found {args.fractions}")
    if len(args.fractions) > 1 and not stream:
        raise UsageError("fraction: expected one without --stream, found several")
    if cloud.exposes_key:
        print("fill: the key goes over the network unencrypted; use https", file=sys.stderr)
    edge = _runtime(args, choose_bundle(cloud, args.model))
    return Online(
        cloud, edge, prompt, ServiceOptions(tuple(args.fractions), stream, not args.no_fallback)
    ).start()


def _runtime(args: argparse.Namespace, path: Path, variant: str | None = None) -> EdgeRuntime:
    """A bundle with the command line's options; its model is loaded later."""
    from edge_runtime.runtime import EdgeRuntime

    return EdgeRuntime.open(
        path,
        args.variant or variant,
        context=args.context,
        threads=args.threads,
        verify=not args.no_verify,
        prepack=not args.no_prepack,
        profile=PROFILES[args.profile],
        deterministic=args.deterministic,
    )


def _open(args: argparse.Namespace, data: bytes, prompt: str | None) -> tuple[EdgeRuntime, FillRequest]:
    """The bundle to use, and the payload read for it."""
    from edge_runtime.bundle.bundle import read_manifest
    from edge_runtime.bundle.lookup import find_bundles
    from payload import Codec, peek

    header = peek(data)
    predictive = header.codec is Codec.PREDICTIVE

    def attempt(path: Path) -> tuple[EdgeRuntime, FillRequest]:
        variant = read_manifest(path).variant_with_fingerprint(header.tag) if predictive else None
        edge = _runtime(args, path, variant)
        if not predictive:  # a predictive payload is read with another form of the model
            edge.preload()
        return edge, edge.read(data, prompt)

    *others, last = find_bundles(header.tag, args.model, by_fingerprint=predictive)
    for path in others:
        # A contract's tag is one byte, so two contracts may share it; the checksum tells them apart.
        with contextlib.suppress(ChecksumError, FingerprintError):
            return attempt(path)
    return attempt(last)


def _read_prompt(path: Path) -> str:
    """The prompt in a file, without the newline that ends it."""
    try:
        with path.open("rb") as file:
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


def _positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
