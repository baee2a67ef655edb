"""Experiment `agreement`: how often the device's text is the intended one.

The cloud verifies an answer with one variant of the edge model and the device fills with another, on another
processor; where the two differ at an unsent token, the answers differ from there on. For every guard and
every variant of a bundle: the share of prompts whose filled text is the intended one, and the cost of the
guard in tokens and bytes. Not responsible for the selection (see `edge_aware`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from cloud_anchor.sampling.config import commit_in_parallel, steps_for
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import EDGE_AWARE, Selection, select
from common.cli import option
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.runtime import EdgeRuntime
from lab.case import Case, Edge
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Column, Table, mean, rows

GUARDS = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0)


@dataclass(frozen=True)
class AgreementOptions:
    fraction: float = option(0.1, "share of the steps")
    threshold: float = option(0.0, "probability from which a prediction binds")


@lru_cache(1)
def variants(bundle: Path, threads: int | None) -> list[Edge]:
    """Every variant of a bundle, opened, under its name."""
    names = Bundle.open(bundle).manifest.variants
    return [Edge(name, EdgeRuntime.open(bundle, name, threads=threads), 0) for name in names]


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """Every guard on every prompt, filled with every variant of the bundle."""
    own: AgreementOptions = setup.own
    pipeline = setup.lab.pipeline
    assert pipeline.scorer is not None  # it was opened with an edge model
    edges = variants(setup.lab.edges[0].runtime.bundle.path, setup.options.threads)
    plan = pipeline.plan()
    config = commit_in_parallel(replace(plan, steps=steps_for(own.fraction, plan.total_steps)))
    prompts = [pipeline.form.ids(item.prompt) for item in items]
    for item, run in zip(items, denoise(pipeline.model, prompts, config), strict=True):
        case = Case(item, run.prompt_ids, pipeline.form, edges, run.canvas, 0)
        found = []
        for guard in GUARDS:
            selection = Selection(EDGE_AWARE, EdgeAwareConfig(threshold=own.threshold, guard=guard))
            (selected,) = select([run], case.contract, selection, pipeline.scorer)
            assert selected.walk is not None  # it is edge-aware
            sent = selected.anchors
            row = {"guard": guard, "passes": selected.walk.passes, "sent": len(sent)}
            row |= {"bytes": case.size(sent, extras=run.extras())}
            texts = {edge.name: case.fill(sent, index).ids for index, edge in enumerate(edges)}
            found.append(row | {name: ids == selected.walk.text for name, ids in texts.items()})
        yield {"answers": found, "variants": [edge.name for edge in edges]}


def tables(records: Records, about: About) -> list[Table]:
    own: AgreementOptions = about.own
    equal: dict[str, Column] = {name: mean(name) for name in records[0]["variants"]}
    columns = {"N": len, "cloud passes": mean("passes"), "sent": mean("sent"), "bytes": mean("bytes")}
    steps = about.share(steps_for(own.fraction, about.total_steps))
    note = (
        "Share of the prompts whose text, filled by each variant of the bundle, is the one that the cloud "
        "verified; passes are of the edge model in the cloud."
    )
    guards = Answers.of(records).by({"guard": ("guard", "{:g}".format)})
    return [
        Table.of("agreement", f"Text as intended after {steps} steps", rows(guards, columns | equal), note)
    ]


EXPERIMENT = Experiment(
    "agreement",
    "How often the device writes what the cloud meant, by guard and variant of the bundle",
    measure,
    tables,
    options=AgreementOptions,
    together=20,
)
