"""The order of work: opens the models, measures what has no record yet, and writes the report.

Responsible for batching, resuming, progress and the files of a results folder: an item with a record is not
measured again. Not responsible for what experiments measure (see `experiment`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lab.experiment import RUNS, About, Experiment, Models, Setup, about_item
from lab.loading import fingerprint
from lab.options import PAPER, Options
from lab.protocol import PAPER_STEPS, protocol
from lab.questions.items import Item
from lab.report import Report, build, write
from lab.store import Store

Limits = Mapping[str, int | None]


def run(experiments: Sequence[Experiment], options: Options, own: Any) -> Report:
    """Measures one experiment, or some of the paper's, and writes the results folder."""
    first = experiments[0]
    if options.quick:
        options = replace(options, prompts=options.prompts or QUICK_PROMPTS)
        experiments = [each for each in experiments if each.name in QUICK] or experiments
    options = replace(options, **{k: v for k, v in first.defaults.items() if not getattr(options, k)})
    if options.protocol == PAPER and first.paper:
        options = replace(options, total_steps=options.total_steps or PAPER_STEPS)
    setup = Setup(options, own, max((each.models for each in experiments), key=lambda models: models.value))
    limits: Limits = {each.name: each.limit for each in experiments}
    if first.paper:
        sets = protocol(options.protocol, options.sources, options.prompts, options.seed, experiments)
        items, limits = sets.items, sets.limits
    else:
        items = first.items(setup)
    settings = settings_of(setup, first, items)
    setup.store = store = Store(options.output, settings)
    skipped = {}
    if setup.models is not Models.NONE:
        skipped = {each.name: why for each in experiments if (why := each.needs(setup.lab)) is not None}
    chosen = [each for each in experiments if each.name not in skipped]
    track(items, measure(setup, chosen, items, limits))
    records = {}
    for name in (RUNS, *limits):
        # An earlier run into this folder may have had another subset.
        ids = {about_item(item)["id"] for item in items[: limits.get(name)]}
        records[name] = [record for id_, record in store.records(name).items() if id_ in ids]
    about = About(own=own) if setup.models is Models.NONE else About.of(setup.lab, options, own)
    report = build(experiments, about, settings, records, skipped)
    write(report, store)
    for each in experiments:
        for name, text in each.files(records[each.name], about).items():
            store.write(name, text)
    return report


def settings_of(setup: Setup, experiment: Experiment, items: Sequence[Any]) -> dict[str, Any]:
    """What a later run into the same folder must have as well."""
    options, found = setup.options, dict[str, Any]()
    if items and isinstance(items[0], Item):
        found["data"] = options.sources
    elif options.prompts:  # a cell is measured over all of them
        found |= {"data": options.sources, "prompts": options.prompts}
    if experiment.paper:
        found["protocol"] = options.protocol
    found["seed"] = options.seed
    if setup.models is not Models.NONE:
        base = setup.lab.base
        found |= {"canvas": base.canvas, "total_steps": base.total_steps}
        found["weights"] = fingerprint(setup.lab, options)
    found |= {name: value for name in ("dtype", "variant") if (value := getattr(options, name))}
    if options.dtype:  # in bfloat16 an answer depends on the batch
        found["batch"] = experiment.together
    return found | json_of(setup.own)


def json_of(own: Any) -> dict[str, Any]:
    """An experiment's own options as JSON."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(own), default=str))
    return found


def measure(
    setup: Setup, experiments: Sequence[Experiment], items: Sequence[Any], limits: Limits
) -> Iterator[Any]:
    """Measures what has no record yet; yields the name of each phase as it begins, and each item when it is
    finished.

    The paper's experiments are measured item by item, for they share an item's fills.
    """
    store = setup.store
    together = max((each.together for each in experiments), default=1)

    def left(each: Experiment, part: Sequence[tuple[int, Any]]) -> list[Any]:
        most, done = limits[each.name], store.records(each.name)
        return [
            item
            for index, item in part
            if (most is None or index < most)
            and each.wanted(item)
            and about_item(item)["id"] not in done
            and "error" not in store.records(RUNS).get(about_item(item)["id"], {})
        ]

    for begin in range(0, len(items), together):
        group = list(enumerate(items))[begin : begin + together]
        parts = [group]
        if any(each.paper for each in experiments):
            open_ = {item.id for each in experiments for item in left(each, group)}
            yield "full runs"
            setup.make_runs([item for _, item in group if item.id in open_])
            parts = [[numbered] for numbered in group]
        for part in parts:
            for each in experiments:
                if chosen := left(each, part):
                    yield each.name
                    for item, record in zip(chosen, each.measure(setup, chosen), strict=True):
                        store.add(each.name, about_item(item) | record)
            yield from (item for _, item in part)


QUICK = ("fill", "bytes")
QUICK_PROMPTS = 20
"""What `--quick` measures of the paper's experiments."""

EVERY = 10.0
"""Seconds between two lines of progress where there is no terminal."""


def track(items: Sequence[object], work: Iterable[object]) -> None:
    """Runs the work, with the phase that it is in: a bar on a terminal, else a line now and then.

    work: yields the name of a phase as it begins, and an item when it is done with it.
    """
    console = Console(stderr=True)
    names, wanted = [], set(map(id, items))
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    started = said = time.monotonic()
    done = 0
    with Progress(
        TextColumn("{task.description:12}"), *columns, console=console, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("items", total=len(items))
        for each in work:
            if id(each) in wanted:
                done += 1
                progress.advance(bar)
            else:
                names = [str(each)]
                progress.update(bar, description=str(each))
            now = time.monotonic()
            if not console.is_terminal and (now - said >= EVERY or done == len(items)) and names:
                said = now
                left = f", about {(now - started) / done * (len(items) - done):.0f} s left" if done else ""
                line = f"{done} of {len(items)} items, {now - started:.0f} s{left}; now {names[0]}"
                print(line, file=sys.stderr, flush=True)
