"""Bytes of a question on its way to the service: `python -m lab run question_bytes`.

Responsible for the frames of questions under every codec of their text, beside the text alone and zstd. Every
frame is decoded and compared before it is counted, but for predictive ones after the first few: reading one
takes a pass of the model per token. Not responsible for the codecs (see `links.frames`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import zstandard

from cloud_anchor.errors import CloudError
from common.cli import option
from common.errors import UserError
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.runtime import EdgeRuntime
from lab.experiment import About, Experiment, Models, Records, Setup, questions
from lab.published.published_runs import TraceTokenizer
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Row, Table
from links.frames import MAX_QUESTION_BYTES, Question, decode_question, encode_question
from links.frames.question import UTF8
from payload import Shared

FRAMES = (51, 140, 233)
"""Bytes of the largest frame: LoRaWAN at its slowest, SMS, Meshtastic."""

CODECS = (UTF8, "compact", "predictive")
NAME = "question_bytes"


@dataclass(frozen=True)
class QuestionOptions:
    skip: int = option(0, "leave out the first N questions", metavar="N")
    tokenizer: str | None = option(
        None,
        "a Qwen2-style tokenizer.json[.gz] in place of a bundle: without codec predictive",
        kind=str,
        metavar="FILE",
    )
    decode: int = option(10, "of so many questions the predictive frame is read back too", metavar="N")


@lru_cache(1)
def context(edge: str, tokenizer: str | None) -> Shared:
    """What both sides share before a question."""
    if tokenizer is not None:
        own = TraceTokenizer(Path(tokenizer))
        return Shared(own.contract, tokens=own)
    return EdgeRuntime.open(find_bundles("", model=edge)[0]).question_context()


def items(setup: Setup) -> list[Item]:
    skip, options = setup.own.skip, setup.options
    options = replace(options, prompts=options.prompts + skip)
    return questions(replace(setup, options=options))[skip:]


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    shared = context(setup.options.edges[0], setup.own.tokenizer)
    for item in items:
        text = item.prompt.encode("utf-8")
        if len(text) > MAX_QUESTION_BYTES:
            yield {"too_long": 1}
            continue
        decoded = len(setup.store.records(NAME)) < setup.own.decode
        sizes = frame_sizes(item.prompt, shared, decoded)
        fits = {f"fits {most}": float(sizes["auto"] <= most) for most in FRAMES}
        yield {"text": len(text), "zstd": len(zstandard.compress(text, 19)), **sizes, **fits}


def frame_sizes(text: str, shared: Shared, decoded: bool) -> dict[str, int]:
    """Bytes of the frame by codec; decoded: whether predictive frames are read back too."""
    sizes: dict[str, int] = {}
    for codec in CODECS:
        try:
            data = encode_question(Question(0, text), shared, codec)
        except UserError:  # what the codec cannot carry, or this side has no model for
            continue
        if (decoded or codec != "predictive") and decode_question(data, shared).text != text:
            raise CloudError(f"codec {codec}: expected the question back, found another for {text!r:.80}")
        sizes[codec] = len(data)
    return sizes | {"auto": min(sizes.values())}


def tables(records: Records, about: About) -> list[Table]:
    lines: list[Row] = []
    for (benchmark,), group in Answers(records).groups("benchmark"):
        line: Row = {"questions of": benchmark, "N": len(group.values("text"))}
        for name in ("text", "zstd", *CODECS, "auto", *(f"fits {most}" for most in FRAMES)):
            values = group.values(name)  # a codec that cannot carry all of the questions has no mean
            line[name] = sum(values) / len(values) if values and len(values) == line["N"] else None
        lines.append(line | {"too long": len(group.values("too_long"))})
    note = (
        "Means, in bytes; frames without extent and room; fits: share whose smallest frame is within so many "
        f"bytes; too long: questions of more than {MAX_QUESTION_BYTES} bytes, which are left out."
    )
    return [Table.of("frames", "Bytes of a question", lines, note)]


EXPERIMENT = Experiment(
    NAME,
    "Bytes of questions as frames, by the codec of their text",
    measure,
    tables,
    options=QuestionOptions,
    defaults={"prompts": 200},
    items=items,
    models=Models.NONE,
    together=1,
)
