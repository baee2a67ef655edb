"""Phase `template`: template prompting, the paper's negative control (section 4.7).

The anchors are put into the prompt, as a text with blanks for the edge model to complete, instead of being
forced.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from lab.case import RunCase
from lab.conditions import ALONE, ANCHORS, PREFIX, Situation
from lab.experiment import About, phase
from lab.store import Record
from lab.tables import MEASURES_NOTE, Answers, Table, against, metric_columns

PROMPTED = "template in the prompt"
BLANK = "___"
LEAST_ROOM = 16
"""Fewest tokens of an answer that have to fit behind the prompt."""


def blanks(case: RunCase, at: Situation) -> str:
    """The anchors' text with one blank per gap, up to the end of the answer where that is known."""
    end = at.early.length or max(at.committed, default=-1) + 2
    parts = groupby(range(end), lambda position: position in at.committed)
    shown = (case.text([at.committed[p] for p in run]) if there else f" {BLANK}" for there, run in parts)
    return "".join(shown).strip()


def measure(case: RunCase) -> Iterator[Record]:
    """Nothing of a situation whose template is too long for the edge model's context."""
    for order, step in case.paper_steps:
        at = case.situation(order, step)
        ids = case.form.ids(
            f"{case.item.prompt}\n\nFill in the blanks {BLANK} of this answer and write it in full:\n"
            f"{blanks(case, at)}"
        )
        if len(ids) + LEAST_ROOM > case.edge.runtime.engine.context:
            continue
        filled = case.fill(case.empty(), prompt_ids=ids)
        yield {"order": order, "step": step, "condition": PROMPTED} | case.score(filled.ids, at.full)
        yield from (case.answer(order, step, name) for name in (ANCHORS, PREFIX))
        yield case.reference(order, ALONE) | {"step": step}


def tables(answers: Answers, about: About) -> Iterator[Table]:
    less = {"F1 less that in the prompt": against(answers, "f1", "order", "step", condition=PROMPTED)}
    columns = metric_columns(("F1", "edit", "right", "tokens")) | less
    note = f"Of the prompts with a template that fit the edge model's context. {MEASURES_NOTE}"
    yield answers.table("template", "Template prompting (section 4.7)", about.by_step, columns, note)


EXPERIMENT = phase("template", "Template prompting", measure, tables, limit=60)
