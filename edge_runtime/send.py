"""python -m edge_runtime.send: a finished text as a payload, coded by the device's model.

Responsible for the command line. Not responsible for the payload (see `finished`).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.cli import option, run_options
from common.files import read_bounded, read_text, write_whole
from edge_runtime.commands import STDIN, ModelOptions, PromptOptions, choose_bundle, open_runtime, read_asked
from edge_runtime.errors import UsageError
from payload import AUTO, Codec

_MOST = 1 << 20
"""Bytes read from standard input."""

_EPILOG = """\
examples:
  python -m edge_runtime.send --answer answer.txt --prompt "How do I purify water?" -o payload.bin
  echo -n "Back at noon." | python -m edge_runtime.send --answer - --prompt "" -o payload.bin
  python -m edge_runtime.fill payload.bin --prompt "How do I purify water?"

exit codes: 0 done, 2 wrong usage, 3 the text cannot be written, 4 bad or missing model, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class SendArguments(ModelOptions, PromptOptions):
    """Write a finished text as a payload, which a device with the same bundle gets back byte for byte."""

    answer: Path = option(None, "the text; - for standard input", required=True)
    output: Path | None = option(
        None, "payload to write; - for stdout", flags=("-o", "--output"), required=True
    )
    codec: str = option(
        AUTO,
        "auto (default): the smaller one; compact: few passes on the device; predictive: few bytes",
        choices=[AUTO, Codec.COMPACT.label, Codec.PREDICTIVE.label],
    )
    json: bool = option(False, "print the figures as one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    return run_options(
        "edge_runtime.send", send, SendArguments, argv, _EPILOG, usage="--answer FILE --prompt TEXT -o FILE"
    )


def send(args: SendArguments) -> int:
    """Writes the payload and prints its figures; without `output` only these. Raises as `payload_of`."""
    from edge_runtime.finished import payload_of, text_ids

    prompt = read_asked(args)
    if prompt is None:
        raise UsageError('--prompt: expected what the text answers (or --prompt ""), found none')
    text = _standard_input() if args.answer == STDIN else read_text(args.answer, UsageError)
    edge = open_runtime(args, choose_bundle(None, args.edge))
    data = payload_of(edge, text, prompt, args.codec)
    if args.output == STDIN:
        sys.stdout.buffer.write(data)
    elif args.output is not None:
        write_whole(args.output, data)
    figures = {
        "characters": len(text),
        "tokens": len(text_ids(edge, text)),
        "bytes": len(data),
        "gzip": len(gzip.compress(text.encode("utf-8"), 9)),
    }
    report = sys.stderr if args.output == STDIN or not args.json else sys.stdout
    said = "{characters} characters, {tokens} tokens: {bytes} bytes; gzip -9: {gzip}".format(**figures)
    print(json.dumps(figures) if args.json else said, file=report)
    return 0


def _standard_input() -> str:
    """All of it, with its line ends as they are. Raises UsageError."""
    try:
        return read_bounded(STDIN, _MOST, UsageError).decode("utf-8")
    except UnicodeDecodeError as fault:
        raise UsageError(f"standard input: expected UTF-8, found {fault}") from None


if __name__ == "__main__":
    sys.exit(main())
