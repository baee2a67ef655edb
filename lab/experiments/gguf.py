"""Experiment `gguf`: a diffusion model's answers at the bit widths of GGUF files (section 4.7).

The files are made here of the checkpoint in float32, by llama.cpp's own quantiser, the intermediate size
padded with zeros to a multiple of 256, which K-quants want. The reference is the checkpoint in PyTorch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cloud_anchor.model.checkpoint import find_checkpoint, load_model, read_json
from cloud_anchor.sampling.sampler import denoise
from lab.benches.write_gguf import quantise_file, write_diffusion
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.paper.quantised import overlap, repetition
from lab.experiments.passes import in_parallel
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Column, Row, Table, against, mean

CHECKPOINT, PLAIN = "checkpoint", "F32"
KINDS = (PLAIN, "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q2_K")
BLOCK = 256  # of K-quants


@cache
def made(source: str, kind: str, folder: Path) -> Path:
    """The file of a checkpoint at a bit width, written where it is not there."""
    path, place = folder / f"{kind}.gguf", find_checkpoint(source)
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        if kind == PLAIN:
            inner = int(read_json(place / "config.json")["intermediate_size"])
            write_diffusion(place, part, "f32", -(-inner // BLOCK) * BLOCK)
        else:
            quantise_file(made(source, PLAIN, folder), part, kind)
        part.replace(path)
    return path


def types(path: Path) -> dict[str, dict[str, int]]:
    """How many tensors of each name have which type; the name without the layer."""
    from gguf import GGUFReader

    found: dict[str, dict[str, int]] = defaultdict(Counter)
    for tensor in GGUFReader(path).tensors:
        name = ".".join(part for part in tensor.name.split(".") if not part.isdigit() and part != "blk")
        found[name.removesuffix(".weight")][tensor.tensor_type.name] += 1
    return found


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are denoised together."""
    pipeline, edge, options = setup.lab.pipeline, setup.lab.edges[0], setup.options
    config = in_parallel(setup.lab.base)
    prompts = [pipeline.form.ids(item.prompt) for item in items]
    runs, first, sizes, kinds = {}, {}, {CHECKPOINT: 0}, {}
    for kind in (CHECKPOINT, *KINDS):
        model: Any = pipeline.model
        if kind != CHECKPOINT:
            path = made(options.model, kind, options.output / "files")
            model, sizes[kind], kinds[kind] = _opened(path), path.stat().st_size, types(path)
            model.adopt(pipeline.form.contract)
        runs[kind] = denoise(model, prompts, config)
        first[kind] = denoise(model, prompts, replace(config, steps=1))
    for at, item in enumerate(items):
        case = Case(item, prompts[at], pipeline.form, edge, config.canvas, options.seed)
        reference = runs[CHECKPOINT][at].answer
        early = first[CHECKPOINT][at].predicted[: len(reference)]
        answers = []
        for kind, of in runs.items():
            ids, pairs = of[at].answer, zip(early, first[kind][at].predicted, strict=False)
            row = {"weights": kind, "MB": sizes[kind] / 1e6} | case.judged(ids, reference)
            row |= {"same": float(ids == reference), "overlap": overlap(ids, reference)}
            row |= {"agreement": sum(a == b for a, b in pairs) / max(1, len(early))}
            answers.append(row | {"repeated": repetition(ids), "passes": of[at].steps})
        yield {"answers": answers, "types": kinds}


_opened = cache(lambda path: load_model(str(path)))


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    columns: dict[str, Column] = {
        "N": len,
        "MB": mean("MB"),
        "same answer": "same",
        "token overlap": "overlap",
        "first pass agrees": "agreement",
        "right": "right",
        "right less the checkpoint's": against(answers, "right", weights=CHECKPOINT),
        "repeated runs of 4": "repeated",
        "passes": mean("passes"),
    }
    note = (
        f"All against the answers of the checkpoint of {about.model} in PyTorch and float32: whole runs, "
        "commits from 0.9 on. The paper: 33% overlap with Q4_K_M, and loops."
    )
    first = answers.table("gguf", "A diffusion model in GGUF files", {"weights": "weights"}, columns, note)
    found: dict[str, Any] = next((record["types"] for record in records if "types" in record), {})
    names = list(dict.fromkeys(name for of in found.values() for name in of))
    shown: list[Row] = [
        {"tensor": name}
        | {kind: ", ".join(f"{type_} ({n})" for type_, n in of[name].items()) for kind, of in found.items()}
        for name in names
    ]
    return [first, Table.of("gguf types", "The type that each tensor has, and how many have it", shown)]


EXPERIMENT = Experiment("gguf", "Bit widths of a diffusion model in GGUF files", measure, tables)
