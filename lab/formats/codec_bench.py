"""Bytes per codec on published diffusion runs: `python -m lab run codec_bench --traces FILE`.

Responsible for encoding runs with every codec and for the tables: every figure counts all bytes of a payload,
and every payload is decoded and compared before it is counted. Payloads carry positions, ids, canvas and the
answer's length, no optional fields. Not responsible for runs (see `published_runs`) or codecs.
"""

from __future__ import annotations

import gzip
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import zstandard

from cloud_anchor.errors import CloudError
from lab.experiment import About, Experiment, Records, Setup
from lab.published.published_runs import (
    CANVAS,
    DEFAULT_TOKENIZER,
    Trace,
    TraceOptions,
    TraceTokenizer,
    full_answer,
)
from lab.store import Record
from lab.tables import Answers, Column, Label, Row, Table, mean
from payload.anchors import AnchorSet
from payload.header import Codec
from payload.shared import Base, Shared
from payload.wire import decode, encode

CODECS: dict[str, tuple[Codec, bool]] = {
    "template-gzip": (Codec.TEMPLATE_GZIP, False),
    "compact": (Codec.COMPACT, True),
    "compact-no-prompt": (Codec.COMPACT, False),
}
"""By name: the codec, and whether both sides know the prompt."""

FULL = "1.0"
"""The whole answer as anchors; where the last fraction is not complete, the tokens of the output's text."""

STREAM = ("0.1", "0.15", "0.25")
"""Fractions of a stream of refinements: one payload, then two that add to it."""

LONG = 20
"""Answers with more tokens are compared with zstd and a dictionary."""


def anchors_of(trace: Trace, fraction: str, tokenizer: TraceTokenizer) -> AnchorSet:
    """A run's anchors at a fraction of the steps, or all of its answer."""
    if fraction == FULL:
        ids = full_answer(trace, tokenizer)
        pairs, length = tuple(enumerate(ids)), len(ids)
    else:
        pairs, length = trace.anchors[fraction], trace.length
    canvas = max(CANVAS, trace.length, len(pairs))
    return AnchorSet.of(dict(pairs), canvas, tokenizer.contract, length)


def sizes_of(trace: Trace, tokenizer: TraceTokenizer) -> Record:
    """Bytes of one run: by fraction and codec, of its text by compressor, and of a stream's payloads.

    seconds: of the processor, by codec, for the whole answer to be encoded and decoded; raises CloudError
    where a payload does not give the anchors back.
    """
    prompt_ids = tokenizer.encode(trace.prompt)
    sizes: dict[str, dict[str, int]] = {}
    seconds: dict[str, list[float]] = {}
    for fraction in (*trace.anchors, *({FULL} - trace.anchors.keys())):
        anchors = anchors_of(trace, fraction, tokenizer)
        sizes[fraction] = {}
        for name, (codec, primed) in CODECS.items():
            shared = Shared(tokenizer.contract, prompt_ids if primed else None, tokenizer)
            data, *times = _coded(trace, anchors, shared, codec)
            seconds[name] = times
            sizes[fraction][name] = len(data)
    text = b"".join(map(tokenizer.token_bytes, full_answer(trace, tokenizer)))
    texts = {name: len(compress(text)) for name, compress in text_codecs(trace.prompt).items()}
    found: Record = {
        "fractions": sizes,
        "text": texts,
        "seconds": seconds,
        "tokens": len(anchors_of(trace, FULL, tokenizer)),
    }
    if all(fraction in trace.anchors for fraction in STREAM):
        base: Base | None = None
        found["stream"] = 0
        for fraction in STREAM:  # each is decoded on top of the one before
            anchors = anchors_of(trace, fraction, tokenizer)
            data, *_ = _coded(
                trace, anchors, Shared(tokenizer.contract, prompt_ids, base=base), Codec.COMPACT
            )
            base = Base(data, anchors)
            found["stream"] += len(data)
    return found


def _coded(trace: Trace, anchors: AnchorSet, shared: Shared, codec: Codec) -> tuple[bytes, float, float]:
    """A payload, and the seconds of writing and of reading it."""
    begin = time.process_time()
    data = encode(anchors, shared, codec)
    written = time.process_time()
    if decode(data, shared) != anchors:
        raise CloudError(f"{trace.name}: expected the anchors back from codec {codec.label}, found others")
    return data, written - begin, time.process_time() - written


def with_dictionary(known: zstandard.ZstdCompressionDict) -> zstandard.ZstdCompressor:
    """Level 19 without what both sides know or do not need."""
    return zstandard.ZstdCompressor(
        level=19, dict_data=known, write_checksum=False, write_content_size=False, write_dict_id=False
    )


def text_codecs(prompt: str) -> dict[str, Callable[[bytes], bytes]]:
    """General-purpose compressors of the answer's text; brotli where it is installed."""
    known = zstandard.ZstdCompressionDict(prompt.encode(), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    codecs: dict[str, Callable[[bytes], bytes]] = {
        "raw": bytes,
        "gzip": lambda text: gzip.compress(text, 9, mtime=0),
        "zstd": zstandard.ZstdCompressor(level=19, write_checksum=False).compress,
        "zstd-dictionary": with_dictionary(known).compress,
    }
    try:
        import brotli
    except ImportError:
        return codecs
    return codecs | {"brotli": lambda text: bytes(brotli.compress(text, quality=11))}


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 95th percentile (the smallest value that 95% do not exceed)."""
    p95 = float(np.percentile(values, 95, method="inverted_cdf"))
    return {
        "mean": round(statistics.fmean(values), 3),
        "median": float(statistics.median(values)),
        "p95": p95,
    }


def means_table(name: str, title: str, rows: Sequence[Record], labels: dict[str, Label]) -> Table:
    """Means of every column that is none of the labels."""
    columns: dict[str, Column] = {of: mean(of) for of in rows[0] if of not in labels}
    return Answers(rows).table(name, title, labels, columns)


def tables(records: Records, about: About) -> list[Table]:
    early = [record["fractions"]["0.1"] for record in records if "0.1" in record["fractions"]]
    spread: list[Row] = [{"codec": name, **summary([each[name] for each in early])} for name in CODECS]
    sizes = [{"fraction": at, **of} for record in records for at, of in record["fractions"].items()]
    sizes.sort(key=lambda row: float(row["fraction"]))
    return [
        means_table("bytes", "Mean payload bytes", sizes, {"fraction": "fraction"}),
        Table.of("spread", "Payload bytes at 10% of the steps", spread if early else []),
        means_table("text", "Mean bytes of the full text, without framing", [r["text"] for r in records], {}),
        Table.of("facts", "Streams, comparisons, time", [_facts(records, early)]),
    ]


def _facts(records: Records, early: Sequence[Record]) -> Row:
    streams = [record for record in records if "stream" in record]
    long = [record for record in records if record["tokens"] > LONG]
    tokens = sum(record["tokens"] for record in records)
    seconds = {name: [sum(r["seconds"][name][at] for r in records) for at in (0, 1)] for name in CODECS}
    facts: Row = {}
    if streams:
        last = [record["fractions"][STREAM[-1]]["compact"] for record in streams]
        facts["a stream, bytes in all"] = summary([record["stream"] for record in streams])["mean"]
        facts["its last payload alone"] = summary(last)["mean"]
    facts |= {
        "at 10%": len(early),
        "of them compact below template-gzip": sum(x["compact"] < x["template-gzip"] for x in early),
        f"answers over {LONG} tokens": len(long),
        "of them compact below zstd-19 with the prompt": sum(
            record["fractions"][FULL]["compact"] < record["text"]["zstd-dictionary"] for record in long
        ),
        "whole template-gzip payloads decoded a second": round(len(records) / seconds["template-gzip"][1], 1),
    }
    for at, does in enumerate(("encoded", "decoded")):
        facts[f"compact, ms for 100 anchors {does}"] = round(1e5 * seconds["compact"][at] / tokens, 2)
    return facts


@lru_cache(1)
def _tokenizer(path: Path) -> TraceTokenizer:
    return TraceTokenizer(path)


def measure(setup: Setup, items: Sequence[Trace]) -> Iterator[Record]:
    own = setup.own
    tokenizer = _tokenizer(Path(own.tokenizer or Path(own.traces).parent / DEFAULT_TOKENIZER))
    for trace in items:
        yield sizes_of(trace, tokenizer)


EXPERIMENT = Experiment(
    "codec_bench",
    "Bytes per codec on published runs",
    measure,
    tables,
    options=TraceOptions,
    items=lambda setup: setup.own.runs,
    opens=False,
)
