"""The order of work: per group of items their diffusion runs, then every phase, one record each.

Responsible for batching, resuming and errors: an item with a record is not measured again, and an item that
cannot be measured gets a record with the reason. Not responsible for what the phases measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cloud_anchor.errors import CloudError
from edge_runtime.errors import EdgeError
from lab.case import Case, Lab
from lab.experiments.paper import PHASES, Phase
from lab.experiments.paper.pearl import PHASE as PEARL
from lab.experiments.paper.pearl import grid
from lab.questions.items import Item
from lab.runs import Run, make_runs
from lab.store import Record, Store
from payload import PayloadError

RUNS = "runs"
TOGETHER = 4
"""Items denoised together: a larger batch gains little on a CPU, and an interruption loses few items."""


def measure(
    lab: Lab,
    items: Sequence[Item],
    phases: Sequence[str],
    store: Store,
    together: int = TOGETHER,
    limits: Mapping[str, int | None] | None = None,
) -> Iterator[Item]:
    """Measure what has no record yet; yields each item when it is finished.

    limits: by phase how many items, the first ones, it measures; by default the phases' own.
    """
    chosen = [PHASES[name] for name in phases if PHASES[name].needs(lab) is None]
    if limits is not None:
        chosen = [replace(phase, limit=limits[phase.name]) for phase in chosen]
    for begin in range(0, len(items), together):
        group = list(enumerate(items))[begin : begin + together]
        open_ = [item for index, item in group if _open(chosen, item, index, store)]
        _run([item for item in open_ if item.id not in store.records(RUNS)], lab, store)
        for index, item in group:
            record = store.records(RUNS).get(item.id, {})
            if "error" not in record and _open(chosen, item, index, store):
                case = Case(lab, item, _read_runs(record, lab))
                for phase in chosen:
                    if _applies(phase, item, index) and item.id not in store.records(phase.name):
                        store.add(phase.name, _measured(phase, case))
            yield item


def _applies(phase: Phase, item: Item, index: int) -> bool:
    return phase.wanted(item) and (phase.limit is None or index < phase.limit)


def _open(phases: Sequence[Phase], item: Item, index: int, store: Store) -> bool:
    """True where an item has a phase without a record."""
    return any(_applies(p, item, index) and item.id not in store.records(p.name) for p in phases)


def _run(items: Sequence[Item], lab: Lab, store: Store) -> None:
    """The diffusion runs of some items, in one batch."""
    prompts: dict[str, list[int]] = {}
    for item in items:
        ids = lab.pipeline.form.ids(item.prompt)
        problem = lab.room(ids)
        if problem:
            store.add(RUNS, _about(item) | {"error": problem})
        else:
            prompts[item.id] = ids
    if not prompts:
        return
    stops = {*lab.steps, *lab.paper_steps}
    if any(PEARL.wanted(item) for item in items):
        stops |= set(grid(lab.base.total_steps))
    runs = make_runs(lab.pipeline.model, list(prompts.values()), lab.base, sorted(stops), lab.steps)
    by_id = {item.id: item for item in items}
    for (name, ids), found in zip(prompts.items(), runs, strict=True):
        orders = {order: run.to_json() for order, run in found.items()}
        store.add(RUNS, _about(by_id[name]) | {"prompt_ids": ids, "orders": orders})


def _read_runs(record: Mapping[str, object], lab: Lab) -> dict[str, Run]:
    orders: Mapping[str, Mapping[str, object]] = record["orders"]  # type: ignore[assignment]
    prompt: Sequence[int] = record["prompt_ids"]  # type: ignore[assignment]
    steps, dream = lab.base.total_steps, lab.pipeline.model
    return {order: Run.from_json(data, prompt, steps, dream) for order, data in orders.items()}


def _about(item: Item) -> Record:
    return {"id": item.id, "benchmark": item.benchmark, "difficulty": item.difficulty}


def _measured(phase: Phase, case: Case) -> Record:
    try:
        return _about(case.item) | phase.measure(case)
    except (CloudError, EdgeError, PayloadError) as error:
        return _about(case.item) | {"error": f"{type(error).__name__}: {error}"}
