"""Experiment `answers`: finished answers as payloads, beside the compressors of text and the links' seconds.

    python -m lab run answers --edge bundles/smollm2-135m-instruct -o runs/answers --variant int8

The texts of `lab.answers`, source by source, each coded by a device's model that did not write it and decoded
again: a source is left out where its name begins the bundle's. A bundle that has `fp32` too gives the ideal:
what an exact coder would take with the same model in float32, without header, length and check. `--prompts N`
takes the first N texts of each source.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cloud_anchor.errors import CloudError
from common.cli import option
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.commands import positive
from edge_runtime.finished import payload_of, text_ids
from edge_runtime.runtime import EdgeRuntime
from lab.answers.read import Text, sources, texts_of
from lab.experiment import About, Experiment, Records, Setup
from lab.formats.codec_bench import text_codecs
from lab.store import Record
from lab.tables import Row, Table
from payload import Codec

WRITTEN = "gsm8k"
"""The source that people wrote."""
LINKS = {"0.3 kbit/s": (300, 5.0), "1 kbit/s": (1e3, 5.0), "5 kbit/s": (5e3, 0.8), "50 kbit/s": (5e4, 1.0)}
"""Bits per second and seconds of delay: LoRaWAN at SF12 (its window), NB-IoT by
satellite, a LoRa mesh, NB-IoT."""


@dataclass(frozen=True)
class AnswersOptions:
    decoded: int | None = option(
        None,
        "how many texts of each source are decoded again, for the seconds (default: all)",
        positive,
        metavar="N",
    )


def texts(setup: Setup) -> list[Text]:
    """Those of every source but the device's own model, a source after the other."""
    device, most = _place(setup).name, setup.options.prompts
    names = [name for name in sources() if not device.startswith(name)]
    return [text for name in names for text in texts_of(name)[:most]]


def _place(setup: Setup) -> Path:
    return find_bundles("", setup.options.edges[0])[0]


@lru_cache(1)
def _opened(place: Path, variant: str | None, threads: int | None) -> tuple[EdgeRuntime, EdgeRuntime | None]:
    """The device's model, and the same in float32 where the bundle has it."""
    edge = EdgeRuntime.open(place, variant, threads=threads)
    exact = "fp32" in edge.bundle.manifest.variants
    return edge, EdgeRuntime.open(place, "fp32", threads=threads) if exact else None


def measure(setup: Setup, items: Sequence[Text]) -> Iterator[Record]:
    edge, exact = _opened(_place(setup), setup.options.variant, setup.options.threads)
    for item in items:
        data = item.text.encode()
        sizes: Record = {name: len(code(data)) for name, code in text_codecs(item.prompt).items()}
        begin = time.perf_counter()
        sent = payload_of(edge, item.text, item.prompt, Codec.PREDICTIVE)
        written = time.perf_counter()
        seconds, passes = {"encode": written - begin}, None
        if setup.own.decoded is None or item in texts_of(item.source)[: setup.own.decoded]:
            read = edge.read(sent, item.prompt)
            back = b"".join(edge.bundle.tokenizer.token_bytes(token.id) for token in read.tokens)
            if back != data or read.stats is None:
                raise CloudError(f"{item.id}: expected the text back from codec predictive, found another")
            seconds |= {"decode": time.perf_counter() - written}
            passes = read.stats.passes
        sizes |= {"compact": len(payload_of(edge, item.text, item.prompt, Codec.COMPACT))}
        sizes |= {"predictive": len(sent)} | ({"ideal": _ideal(exact, item)} if exact else {})
        yield {
            "source": item.source,
            "device": f"{edge.bundle.path.name} {edge.bundle.variant_name}",
            "characters": len(item.text),
            "first word": len(item.text.split()[0].encode()),
            "tokens": len(text_ids(edge, item.text)),
            "passes": passes,
            "bytes": sizes,
            "seconds": seconds,
        }


def _ideal(exact: EdgeRuntime, item: Text) -> float:
    """Bytes of a text and its end by the model's own probabilities."""
    ids = text_ids(exact, item.text)
    rows = exact.predictor(exact.prompt_ids(item.prompt)).read(ids, 0)
    nats = -sum(float(row[id_]) for row, id_ in zip(rows, [*ids, -1], strict=True))
    return nats / math.log(2) / 8


def tables(records: Records, about: About) -> list[Table]:
    sources = list(dict.fromkeys(record["source"] for record in records))
    groups = {source: [record for record in records if record["source"] == source] for source in sources}
    models = [record for record in records if record["source"] != WRITTEN]
    groups |= {"of models, all": models} if len(sources) > 2 else {}
    device = ", ".join(dict.fromkeys(record["device"] for record in records))
    return [
        Table.of(
            "bytes",
            f"Whole answers as bytes: {device}",
            [_bytes(source, group) for source, group in groups.items()],
            "Means of a text; the prompt is known on both sides. predictive: header, length and check "
            "included. bits: of predictive, a character. ideal: the same "
            "model's own probabilities in float32, without header, length and check. "
            "zstd-dictionary: the prompt.",
        ),
        Table.of(
            "seconds",
            f"Seconds to the first word and to the whole, beside plain text: {device}",
            [_seconds(name, groups) for name in LINKS],
            "Means of the texts that were decoded, each to its very bytes: encoding, the delay and rate of "
            "the link, and decoding, before whose end nothing is shown; plain text is read while it arrives. "
            f"Delays: {', '.join(f'{name} {delay:g} s' for name, (_, delay) in LINKS.items())}.",
        ),
    ]


def _bytes(source: str, group: Records) -> Row:
    sizes = [record["bytes"] for record in group]
    means = {name: sum(of[name] for of in sizes) / len(group) for name in sizes[0]}
    characters = sum(record["characters"] for record in group)
    total = sum(record["bytes"]["predictive"] for record in group)
    found: Row = {"source": source, "texts": len(group), "tokens": _mean(group, lambda r: r["tokens"])}
    found |= {("text" if name == "raw" else name): value for name, value in means.items()}
    found |= {"bits": 8 * total / characters}
    return found | {f"{name} / ours": means[name] / means["predictive"] for name in ("gzip", "brotli")}


def _seconds(link: str, groups: Mapping[str, Records]) -> Row:
    rate, delay = LINKS[link]
    every = [record for source, group in groups.items() if not source.startswith("of ") for record in group]
    records = [record for record in every if "decode" in record["seconds"]]

    def arrived(record: Record, size: int) -> float:
        return delay + 8 * size / rate

    def ours(record: Record) -> float:
        took: float = record["seconds"]["encode"] + record["seconds"]["decode"]
        return took + arrived(record, record["bytes"]["predictive"])

    return {
        "link": link,
        "text, first word": _mean(records, lambda r: arrived(r, r["first word"])),
        "text, whole": _mean(records, lambda r: arrived(r, r["bytes"]["raw"])),
        "brotli, whole": _mean(records, lambda r: arrived(r, r["bytes"]["brotli"])),
        "ours, whole": _mean(records, ours),
        "of it encoding": _mean(records, lambda r: r["seconds"]["encode"]),
        "of it decoding": _mean(records, lambda r: r["seconds"]["decode"]),
    }


def _mean(records: Records, of: Callable[[Record], float]) -> float:
    return sum(map(of, records)) / len(records)


EXPERIMENT = Experiment(
    "answers",
    "Finished answers as payloads, beside compressors of text, on links",
    measure,
    tables,
    options=AnswersOptions,
    items=texts,
    opens=False,
    together=1,
)
