"""The order of work: opens the models, measures what has no record yet, and writes the report.

Responsible for batching, resuming, progress and the files of a results folder: an item with a record is not
measured again. Not responsible for what experiments measure (see `experiment`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from common.progress import Bars
from lab.experiment import RUNS, About, Experiment, Setup, about_item
from lab.loading import fingerprint
from lab.options import Options
from lab.questions.items import Item
from lab.report import Report, build, write
from lab.store import Store


def run(experiments: Sequence[Experiment], options: Options, own: Any) -> Report:
    """Measures one experiment, or some of the paper's, and writes the results folder."""
    first = experiments[0]
    setup = Setup(options, own, teachers=first.paper)
    items = first.items(setup)
    settings = settings_of(setup, first, items)
    setup.store = store = Store(options.output, settings)
    skipped = {}
    if first.opens:
        skipped = {each.name: why for each in experiments if (why := each.needs(setup.lab)) is not None}
    chosen = [each for each in experiments if each.name not in skipped]
    track(len(items), measure(setup, chosen, items))
    records = {}
    for name, limit in {RUNS: None, **{each.name: each.limit for each in experiments}}.items():
        # An earlier run into this folder may have had another subset.
        ids = {about_item(item)["id"] for item in items[:limit]}
        records[name] = [record for id_, record in store.records(name).items() if id_ in ids]
    about = About.of(setup.lab, options, own) if first.opens else About(own=own)
    report = build(experiments, about, settings, records, skipped)
    write(report, store)
    return report


def settings_of(setup: Setup, experiment: Experiment, items: Sequence[Any]) -> dict[str, Any]:
    """What a later run into the same folder must have as well."""
    options, found = setup.options, dict[str, Any]()
    if items and isinstance(items[0], Item):
        found["data"] = options.sources
    elif options.prompts:  # a cell is measured over all of them
        found |= {"data": options.sources, "prompts": options.prompts}
    found["seed"] = options.seed
    if experiment.opens:
        base = setup.lab.base
        found |= {"canvas": base.canvas, "total_steps": base.total_steps}
        found["weights"] = fingerprint(setup.lab, options)
    found |= {name: value for name in ("dtype", "variant") if (value := getattr(options, name))}
    if options.dtype:  # in bfloat16 an answer depends on the batch
        found["batch"] = experiment.together
    own: dict[str, Any] = json.loads(json.dumps(asdict(setup.own), default=str))
    return found | own


def measure(setup: Setup, experiments: Sequence[Experiment], items: Sequence[Any]) -> Iterator[Any]:
    """Measures what has no record yet; yields each item when it is finished.

    The paper's experiments are measured item by item, for they share an item's fills.
    """
    store = setup.store
    together = max((each.together for each in experiments), default=1)

    def left(each: Experiment, part: Sequence[tuple[int, Any]]) -> list[Any]:
        done = store.records(each.name)
        return [
            item
            for index, item in part
            if (each.limit is None or index < each.limit)
            and each.wanted(item)
            and about_item(item)["id"] not in done
            and "error" not in store.records(RUNS).get(about_item(item)["id"], {})
        ]

    for begin in range(0, len(items), together):
        group = list(enumerate(items))[begin : begin + together]
        parts = [group]
        if any(each.paper for each in experiments):
            open_ = {item.id for each in experiments for item in left(each, group)}
            setup.make_runs([item for _, item in group if item.id in open_])
            parts = [[numbered] for numbered in group]
        for part in parts:
            for each in experiments:
                if chosen := left(each, part):
                    for item, record in zip(chosen, each.measure(setup, chosen), strict=True):
                        store.add(each.name, about_item(item) | record)
            yield from (item for _, item in part)


def track(total: int, work: Iterable[object]) -> None:
    """Runs the work, which yields once for each item that is done, with a bar."""
    with Bars().stage("items", total) as done:
        for _ in work:
            done(1)
