"""Experiment `answers`: finished answers as payloads, beside the compressors of text and the links' seconds.

    python -m lab run answers --edge bundles/smollm2-135m-instruct --variants int8 int4 -o runs/answers

The texts of `lab.answers`, source by source, each coded by a device's model that did not write it and decoded
again; beside it edge-aware's selection of the texts that are decoded. A bundle that has `fp32` too gives the
ideal: what an exact coder would take with the same model in float32, without header, length and check.
`--prompts N` takes the first N texts of each source.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import zstandard

from cloud_anchor.errors import CloudError
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, edge_aware, verify_draft
from cloud_anchor.selection.scorer import Scorer
from common.cli import option
from edge_runtime.bundle.bundle import read_manifest
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.bundle.manifest import GUARDS, PORTABLE_GUARD
from edge_runtime.finished import payload_of, text_ids
from edge_runtime.runtime import EdgeRuntime
from lab.answers.read import Text, sources, texts_of, wrote
from lab.experiment import About, Experiment, Records, Setup
from lab.formats.codec_bench import text_codecs, with_dictionary
from lab.statistics import Summary, ratio
from lab.store import Record
from lab.tables import Answers, Column, Figure, Table, mean, rows
from payload import Codec, Contract, Shared, encode

WRITTEN = "gsm8k"
"""The source that people wrote."""
EVERY = "of models, all"
GUARDED, PORTABLE = f"edge-aware, guard {GUARDS['int4']:g}", "edge-aware, portable"
TRAINED = 8 << 10
"""Bytes of the trained dictionary."""
LINKS = {"0.3 kbit/s": (300, 5.0), "1 kbit/s": (1e3, 5.0), "5 kbit/s": (5e3, 0.8), "50 kbit/s": (5e4, 1.0)}
"""Bits per second and seconds of delay: LoRaWAN at SF12 (its window), NB-IoT by
satellite, a LoRa mesh, NB-IoT."""


@dataclass(frozen=True)
class AnswersOptions:
    variants: tuple[str, ...] = option((), "several in place of --variant", metavar="NAME")
    decoded: int | None = option(
        None, "how many texts of each source are decoded again, and selected from (default: all)", metavar="N"
    )
    llama_zip: tuple[str, ...] = option(
        (), "the program llama-zip and a .gguf file: its bytes too, and ours without a prompt", metavar="FILE"
    )


@dataclass(frozen=True)
class Coded:
    """A text for a device. decoded: whether it is written again."""

    text: Text
    place: Path
    variant: str | None
    decoded: bool

    @property
    def id(self) -> str:
        return f"{self.place.name} {self.variant or ''} {self.text.id}"


def texts(setup: Setup) -> list[Coded]:
    """Those of every source but the device's own model, a device and a source after the other."""
    own, most = setup.own, setup.options.prompts
    return [
        Coded(text, place, variant, own.decoded is None or number < own.decoded)
        for place in (find_bundles("", model=name)[0] for name in setup.options.edges)
        for variant in own.variants or (setup.options.variant,)
        for source in sources()
        if not wrote(source, read_manifest(place).model)
        for number, text in enumerate(texts_of(source)[:most])
    ]


@lru_cache(1)
def _opened(place: Path, variant: str | None, threads: int | None) -> tuple[EdgeRuntime, EdgeRuntime | None]:
    """The device's model, and the same in float32 where the bundle has it."""
    edge = EdgeRuntime.open(place, variant, threads=threads)
    payload_of(edge, "Yes.", "", Codec.PREDICTIVE)  # loads the model: no text's seconds hold that
    exact = "fp32" in edge.bundle.manifest.variants
    return edge, EdgeRuntime.open(place, "fp32", threads=threads) if exact else None


@lru_cache(2)
def _trained(half: int) -> zstandard.ZstdCompressor:
    """A dictionary of the texts of the other half of every source."""
    known: list[Any] = [text.text.encode() for name in sources() for text in texts_of(name)[1 - half :: 2]]
    return with_dictionary(zstandard.train_dictionary(min(TRAINED, sum(map(len, known)) // 10), known))


def measure(setup: Setup, items: Sequence[Coded]) -> Iterator[Record]:
    for item in items:
        edge, exact = _opened(item.place, item.variant, setup.options.threads)
        text, prompt, data = item.text.text, item.text.prompt, item.text.text.encode()
        sizes: Record = {name: len(code(data)) for name, code in text_codecs(prompt).items()}
        half = texts_of(item.text.source).index(item.text) % 2
        sizes["zstd-trained"] = len(_trained(half).compress(data))
        begin = time.perf_counter()
        sent = payload_of(edge, text, prompt, Codec.PREDICTIVE)
        written = time.perf_counter()
        seconds, passes = {"encode": written - begin}, None
        if item.decoded:
            read = edge.read(sent, prompt)
            back = b"".join(edge.bundle.tokenizer.token_bytes(token.id) for token in read.tokens)
            if back != data or read.stats is None:
                raise CloudError(f"{item.id}: expected the text back from codec predictive, found another")
            seconds |= {"decode": time.perf_counter() - written}
            passes = read.stats.passes
        sizes |= {"compact": len(payload_of(edge, text, prompt, Codec.COMPACT)), "predictive": len(sent)}
        sizes |= _selected(edge, item.text) if item.decoded else {}
        sizes |= {"ideal": _ideal(exact, item.text)} if exact else {}
        if setup.own.llama_zip:
            sizes["no prompt"] = len(payload_of(edge, text, "", Codec.PREDICTIVE))
            sizes["llama-zip"] = _llama_zip(setup.own.llama_zip, text)
        yield {
            "source": item.text.source,
            "device": f"{item.place.name} {edge.bundle.variant_name}",
            "characters": len(text),
            "first word": len(text.split()[0].encode()),
            "tokens": len(text_ids(edge, text)),
            "passes": passes,
            "bytes": sizes,
            "seconds": seconds,
        }


def drafted(prompt_ids: Sequence[int], ids: Sequence[int], contract: Contract) -> Denoised:
    """A finished text as a run whose every token binds."""
    plan: dict[str, Any] = {"steps": 1, "total_steps": 1, "eos_ids": contract.eos_ids}
    return Denoised.of_draft(prompt_ids, ids, [1.0] * len(ids), ids=list(ids), when=[1] * len(ids), **plan)


def _selected(edge: EdgeRuntime, item: Text) -> dict[str, int]:
    """Bytes of edge-aware: with the engine's own activations and int4's guard, and with portable ones."""
    ids, prompt_ids, contract = text_ids(edge, item.text), edge.prompt_ids(item.prompt), edge.bundle.contract
    run, shared = drafted(prompt_ids, ids, contract), edge.predictor(prompt_ids)
    found = {}
    for name, model, guard, codec in (
        (GUARDED, edge.model, GUARDS["int4"], Codec.COMPACT),
        (PORTABLE, edge.predictive_model, PORTABLE_GUARD, Codec.PORTABLE),
    ):
        walk = verify_draft(Scorer(model, contract.eos_ids), run, contract, EdgeAwareConfig(0.0, guard))
        sent = edge_aware(run, walk, contract)
        found[name] = len(encode(sent, Shared(contract, prompt_ids, predictor=shared), codec))
    return found


def _ideal(exact: EdgeRuntime, item: Text) -> float:
    """Bytes of a text and its end by the model's own probabilities."""
    ids = text_ids(exact, item.text)
    rows = exact.predictor(exact.prompt_ids(item.prompt)).read(ids, 0)
    nats = -sum(float(row[id_]) for row, id_ in zip(rows, [*ids, -1], strict=True))
    return nats / math.log(2) / 8


def _llama_zip(command: Sequence[str], text: str) -> int:
    """Bytes of a text by another compressor."""
    done = subprocess.run([*command, "-c"], input=text.encode(), capture_output=True, check=True)
    return len(done.stdout)


def tables(records: Records, about: About) -> list[Table]:
    flat: list[Record] = [record | record["bytes"] for record in records]
    models = [record | {"source": EVERY} for record in flat if record["source"] != WRITTEN]
    groups = Answers([*flat, *models]).by({"device": "device", "source": "source"})
    columns: dict[str, Column] = {"texts": len, "tokens": mean("tokens"), "text": mean("raw")}
    names = dict.fromkeys(name for record in records for name in record["bytes"])
    columns |= {name: mean(name) for name in names if name not in ("raw", "predictive")}
    columns |= {"predictive": "predictive", "bits": _ratio("predictive", "characters", 8)}
    columns |= {f"{name} / ours": _ratio(name, "predictive") for name in ("gzip", "brotli") if name in names}
    if GUARDED in names:
        columns["portable / guard"] = _paired
    note = (
        "Means of a text; the prompt is known on both sides. predictive: header, length and check included, "
        "with the mean's 95% interval. no prompt: the same with none. bits: of predictive, a character. "
        "ideal: the same model's own probabilities in float32, without header, length and check. "
        "zstd-dictionary: the prompt. zstd-trained: 8 KiB trained on the other half of all texts, which both "
        "sides have. edge-aware: of the texts that are decoded again, all tokens bind, the prompt known; "
        "portable / guard: the sums' ratio."
    )
    found = [
        Table.of(
            "bytes",
            "Whole answers as bytes",
            rows(sorted(groups, key=lambda each: str(each[0]["device"])), columns),
            note,
        )
    ]
    timed = [
        record | record["seconds"] | {"link": link, **_seconds(record, *LINKS[link])}
        for link in LINKS
        for record in records
        if "decode" in record["seconds"]
    ]
    shown = ("text, first word", "text, whole", "brotli, whole", "ours, first word and whole")
    took: dict[str, Column] = {"texts": len, "tokens": mean("tokens"), **{name: mean(name) for name in shown}}
    took |= {f"of it {name[:-1]}ing": mean(name) for name in ("encode", "decode")}
    delays = (
        "Means of the texts that were decoded, each to its very bytes: encoding, the delay and rate of the "
        "link, and decoding, before whose end nothing is shown; plain text is read while it arrives. Delays: "
        f"{', '.join(f'{name} {delay:g} s' for name, (_, delay) in LINKS.items())}."
    )
    title = "Seconds to the first word and to the whole, beside plain text"
    labels = {"device": "device", "link": "link"}
    return [*found, Answers(timed).table("seconds", title, labels, took, delays)]


def _paired(group: Answers) -> Summary | None:
    selected, guarded = group.values(PORTABLE), group.values(GUARDED)
    return ratio(selected, guarded) if guarded else None


def _ratio(first: str, second: str, times: float = 1) -> Figure:
    return lambda group: times * sum(group.values(first)) / sum(group.values(second))


def _seconds(record: Record, rate: float, delay: float) -> dict[str, float]:
    """Until an answer is there, by the way it is sent."""
    sizes, seconds = record["bytes"], record["seconds"]
    found = {name: delay + 8 * size / rate for name, size in sizes.items()}
    return {
        "text, first word": delay + 8 * record["first word"] / rate,
        "text, whole": found["raw"],
        "brotli, whole": found.get("brotli", math.nan),
        "ours, first word and whole": seconds["encode"] + found["predictive"] + seconds["decode"],
    }


EXPERIMENT = Experiment(
    "answers",
    "Finished answers as payloads, beside compressors of text, on links",
    measure,
    tables,
    options=AnswersOptions,
    items=texts,
    opens=False,
)
