"""An experiment: how items are measured, and the tables and plots that follow from the records.

One file in `lab/experiments/` with an `EXPERIMENT`; docs/inside/extending.md has one of 20 lines. `python -m
lab run NAME -o FOLDER` measures, continues after an interruption, and writes the report. A bench has no
questions: `items=lambda setup: ["batch 1", "batch 8"]` are the cells that it measures, and `opens=False`. The
paper's experiments are those of `phase`: they measure one `RunCase` at a time, all of one set of questions
and of their stored runs.

Responsible for the interface; `tables` and `plots` are pure functions of records. Not responsible for the
order of work (see `run`) or for options (see `options`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cloud_anchor.errors import CloudError
from edge_runtime.errors import EdgeError
from lab.case import Lab, RunCase
from lab.loading import open_lab
from lab.options import NoOptions, Options
from lab.plots import Picture
from lab.questions.items import Item, load_items
from lab.runs import Run, make_runs, stops_of
from lab.store import Record, Store
from lab.tables import Answers, Label, Table
from payload import PayloadError

Records = Sequence[Record]
RUNS = "runs"
"""The records of the diffusion runs, which the paper's experiments share."""


@dataclass(frozen=True)
class About:
    """Models and plan of a run, for its tables: names and sizes, nothing loaded. Empty where none is opened.

    edges:   name -> parameters, the main one first, in this variant of their bundles.
    steps, paper_steps: as in Lab. own: the experiment's own options.
    """

    model: str = ""
    parameters: int = 0
    canvas: int = 0
    total_steps: int = 0
    steps: tuple[int, ...] = ()
    paper_steps: tuple[int, ...] = ()
    edges: Mapping[str, int] = field(default_factory=dict)
    variant: str = ""
    thinker: str | None = None
    thinker_parameters: int = 0
    own: Any = None

    @classmethod
    def of(cls, lab: Lab, options: Options, own: Any) -> About:
        return cls(
            options.model,
            lab.pipeline.model.parameters,
            lab.base.canvas,
            lab.base.total_steps,
            tuple(lab.steps),
            tuple(lab.paper_steps),
            {edge.name: edge.parameters for edge in lab.edges},
            lab.edges[0].runtime.bundle.variant_name,
            lab.thinker.name if lab.thinker else None,
            lab.thinker.parameters if lab.thinker else 0,
            own,
        )

    def share(self, step: int) -> str:
        """Steps of the full run, as text."""
        return f"{step} of {self.total_steps}"

    @property
    def by_step(self) -> dict[str, Label]:
        """The labels of most of the paper's tables."""
        return {"order": "order", "steps": ("step", self.share), "condition": "condition"}


@dataclass
class Setup:
    """What an experiment measures with.

    own: its own options. teachers: the larger autoregressive models are opened as well.
    """

    options: Options
    own: Any
    teachers: bool = False
    store: Store = field(init=False)

    @cached_property
    def lab(self) -> Lab:
        """The models, opened at first use."""
        return open_lab(self.options, self.teachers)

    def make_runs(self, items: Sequence[Item]) -> None:
        """The diffusion runs of those items that have none yet, in one batch, into the store."""
        lab = self.lab
        left: list[tuple[Item, list[int]]] = []
        for item in items:
            if item.id in self.store.records(RUNS):
                continue
            ids = lab.pipeline.form.ids(item.prompt)
            if problem := lab.room(ids):
                self.store.add(RUNS, about_item(item) | {"error": problem})
            else:
                left.append((item, ids))
        if not left:
            return
        stops = stops_of([item for item, _ in left], lab.steps, lab.base.total_steps)
        runs = make_runs(lab.pipeline.masked_model, [ids for _, ids in left], lab.base, stops)
        for (item, ids), found in zip(left, runs, strict=True):
            orders = {order: run.to_json() for order, run in found.items()}
            self.store.add(RUNS, about_item(item) | {"prompt_ids": ids, "orders": orders})

    def case(self, item: Item) -> RunCase:
        """An item with its runs from the store; the last one is kept, with what was filled of it."""
        if self._case is None or self._case.item != item:
            record = self.store.records(RUNS)[item.id]
            known = (record["prompt_ids"], self.lab.base.total_steps, self.lab.pipeline.masked_model)
            runs = {order: Run.from_json(data, *known) for order, data in record["orders"].items()}
            self._case = RunCase(self.lab, item, runs)
        return self._case

    _case: RunCase | None = field(default=None, init=False)


def about_item(item: Any) -> Record:
    """The fields of a record that say which item it is of; a bench's cell is a text."""
    if isinstance(item, Item):
        subject = {"subject": item.key["subject"]} if item.key.get("subject") else {}
        return {"id": item.id, "benchmark": item.benchmark, "difficulty": item.difficulty} | subject
    return {"id": item if isinstance(item, str) else item.id}


def questions(setup: Setup) -> list[Item]:
    """The questions of --data; raises RequestError."""
    options = setup.options
    return load_items(options.sources, options.prompts or DEFAULT_PROMPTS, options.seed)


DEFAULT_PROMPTS = 200
"""Questions where neither the command nor the experiment says how many."""


@dataclass(frozen=True)
class Experiment:
    """One measurement.

    measure:  yields one record per item, in order. together: how many items at once.
    options:  a dataclass of its own options (see `options.option`). defaults: of the common ones, by name.
    items:    what is measured: questions, or names of cells. opens: whether it needs models.
    limit:    number of items, the first ones; None for all. wanted: True for the items that it measures.
    needs:    the reason for which it cannot be run with these models; None where it can.
    paper:    one of the paper's, which are measured together.
    """

    name: str
    title: str
    measure: Callable[[Setup, Sequence[Any]], Iterable[Record]]
    tables: Callable[[Records, About], Sequence[Table]]
    plots: Callable[[Records, About], Iterable[Picture]] = lambda records, about: ()
    options: type = NoOptions
    defaults: Mapping[str, Any] = field(default_factory=dict)
    items: Callable[[Setup], Sequence[Any]] = questions
    opens: bool = True
    together: int = 8
    limit: int | None = None
    wanted: Callable[[Item], bool] = lambda item: True
    needs: Callable[[Lab], str | None] = lambda lab: None
    paper: bool = False


TOGETHER = 4
"""Items denoised together: a larger batch gains little on a CPU, and an interruption loses few items."""


def phase(
    name: str,
    title: str,
    measure: Callable[[RunCase], Iterable[Record]],
    tables: Callable[[Answers, About], Iterable[Table]],
    plots: Callable[[Answers, About], Iterable[Picture]] = lambda answers, about: (),
    **more: Any,
) -> Experiment:
    """One of the paper's experiments: the rows of an item, and the tables of all rows.

    An item that cannot be measured has a record with the reason.
    """

    def of_items(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
        for item in items:
            try:
                yield {"answers": list(measure(setup.case(item)))}
            except (CloudError, EdgeError, PayloadError) as error:
                yield {"error": f"{type(error).__name__}: {error}"}

    return Experiment(
        name,
        title,
        of_items,
        lambda records, about: list(tables(Answers.of(records), about)),
        lambda records, about: plots(Answers.of(records), about),
        together=TOGETHER,
        paper=True,
        **more,
    )
