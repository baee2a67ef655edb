"""Bytes of a question on its way to the service: `python -m lab.formats.question_bytes`.

Responsible for the frames of questions under every codec of their text, beside the text alone and zstd. Every
frame is decoded and compared before it is counted, but for predictive ones after the first few: reading one
takes a pass of the model per token. Not responsible for the codecs (see `links.frames`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cloud_anchor.errors import CloudError, RequestError
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from common.errors import UserError
from edge_runtime.runtime import EdgeRuntime
from lab.options import add_pair, add_questions, sources
from lab.published.published_runs import TraceTokenizer
from lab.questions.items import Item, load_items
from links.frames import MAX_QUESTION_BYTES, Question, decode_question, encode_question
from links.frames.question import UTF8
from payload import Shared
from payload.codecs.compression import zstd_compress

FRAMES = (51, 140, 233)
"""Bytes of the largest frame: LoRaWAN at its slowest, SMS, Meshtastic."""

CODECS = (UTF8, "compact", "predictive", "auto")
DECODED = 10


@dataclass(frozen=True)
class QuestionSizes:
    """Means over the questions of one benchmark, in bytes; frames without extent and room.

    text, zstd: the text alone, and compressed.
    frames:  by codec; one that cannot carry all of the questions is missing.
    fits:    share of questions whose smallest frame is within each of FRAMES.
    too_long: questions past MAX_QUESTION_BYTES, which are counted nowhere else.
    """

    questions: int
    text: float
    zstd: float
    frames: Mapping[str, float]
    fits: Mapping[int, float]
    too_long: int


def frame_sizes(text: str, shared: Shared, decoded: bool) -> dict[str, int]:
    """Bytes of the frame by codec; decoded: whether predictive frames are read back too."""
    sizes: dict[str, int] = {}
    for codec in CODECS[:-1]:
        try:
            data = encode_question(Question(0, text), shared, codec)
        except UserError:  # what the codec cannot carry, or this side has no model for
            continue
        if (decoded or codec != "predictive") and decode_question(data, shared).text != text:
            raise CloudError(f"codec {codec}: expected the question back, found another for {text!r:.80}")
        sizes[codec] = len(data)
    return sizes | {"auto": min(sizes.values())}


def measure_questions(items: Sequence[Item], shared: Shared, decoded: int) -> dict[str, QuestionSizes]:
    """Sizes by benchmark, in the order of the first question of each."""
    found: dict[str, list[tuple[int, int, dict[str, int]]]] = defaultdict(list)
    long: dict[str, int] = defaultdict(int)
    for number, item in enumerate(track(items, "questions", console=Console(stderr=True))):
        text = item.prompt.encode("utf-8")
        if len(text) > MAX_QUESTION_BYTES:
            long[item.benchmark] += 1
            continue
        sizes = frame_sizes(item.prompt, shared, number < decoded)
        found[item.benchmark].append((len(text), len(zstd_compress(text)), sizes))
    return {name: _means(rows, long[name]) for name, rows in found.items()}


def _means(rows: Sequence[tuple[int, int, dict[str, int]]], too_long: int) -> QuestionSizes:
    by_codec = {codec: [sizes[codec] for _, _, sizes in rows if codec in sizes] for codec in CODECS}
    return QuestionSizes(
        questions=len(rows),
        text=statistics.mean(row[0] for row in rows),
        zstd=statistics.mean(row[1] for row in rows),
        frames={codec: statistics.mean(all_) for codec, all_ in by_codec.items() if len(all_) == len(rows)},
        fits={most: sum(row[2]["auto"] <= most for row in rows) / len(rows) for most in FRAMES},
        too_long=too_long,
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.formats.question_bytes",
        description="Bytes of questions as frames, by the codec of their text.",
        epilog="example: python -m lab.formats.question_bytes --data gsm8k=gsm8k.jsonl --tokenizer "
        "tokenizer.json.gz",
    )
    add_pair(parser)
    add_questions(parser, 200)
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="leave out the first N questions (0)"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="a Qwen2-style tokenizer.json[.gz] in place of a bundle: without codec predictive",
    )
    parser.add_argument(
        "--decode",
        type=int,
        default=DECODED,
        metavar="N",
        help=f"of so many questions the predictive frame is read back too ({DECODED})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    return run_command("question_bytes", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    if args.prompts < 1 or args.skip < 0:
        raise RequestError(f"questions: expected at least 1, found {args.prompts} after {args.skip}")
    items = load_items(sources(args), args.skip + args.prompts, args.seed)[args.skip :]
    if args.tokenizer is not None:
        tokenizer = TraceTokenizer(args.tokenizer)
        name, shared = args.tokenizer.name, Shared(tokenizer.contract, tokens=tokenizer)
    else:
        edge = EdgeRuntime.open(bundle_of(args.model, args.edge))
        name, shared = edge.bundle.manifest.model.id, edge.question_context()
    report = measure_questions(items, shared, args.decode)
    if args.json:
        print(json.dumps({key: asdict(sizes) for key, sizes in report.items()}))
        return 0
    table = Table(title=f"Bytes of a question, tokens of {name}")
    columns = ("", "questions", "text", "zstd", *CODECS, *(f"fits {most}" for most in FRAMES))
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for key, sizes in report.items():
        frames = (f"{sizes.frames[codec]:.1f}" if codec in sizes.frames else "-" for codec in CODECS)
        fits = (f"{share:.0%}" for share in sizes.fits.values())
        row = (key, str(sizes.questions), f"{sizes.text:.1f}", f"{sizes.zstd:.1f}", *frames, *fits)
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for key, sizes in report.items():
        if sizes.too_long:
            print(f"{key}: {sizes.too_long} questions of more than {MAX_QUESTION_BYTES} bytes are left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
