"""Phase `template`: template prompting, the paper's negative control (section 4.7).

The anchors are put into the prompt, as a text with blanks for the edge model to complete, instead of being
forced.
"""

from __future__ import annotations

from typing import Any

from lab.case import RunCase
from lab.conditions import ALONE, ANCHORS, CONDITIONS, ORDERS, PREFIX, Situation
from lab.experiment import About, Records, phase
from lab.tables import MEASURES_NOTE, Answers, Label, Table, against, metric_columns, rows

PROMPTED = "template in the prompt"
BLANK = "___"
COLUMNS = ("F1", "edit", "right", "tokens")
LEAST_ROOM = 16
"""Fewest tokens of an answer that have to fit behind the prompt."""


def blanks(case: RunCase, at: Situation) -> str:
    """The anchors' text with one blank per gap, up to the end of the answer where that is known."""
    parts: list[str] = []
    run: list[int] = []
    end = at.early.length or max(at.committed, default=-1) + 2
    for position in range(end):
        if position in at.committed:
            run.append(at.committed[position])
            continue
        parts += [case.text(run)] if run else []
        run = []
        if not parts or parts[-1] != f" {BLANK}":
            parts.append(f" {BLANK}")
    return "".join(parts + ([case.text(run)] if run else [])).strip()


def measure(case: RunCase) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    left_out = 0
    form, engine = case.form, case.lab.edges[0].runtime.engine
    for order in ORDERS:
        (alone,) = (row for row in case.reference(order) if row["condition"] == ALONE)
        for step in case.lab.paper_steps:
            at = case.situation(order, step)
            question = (
                f"{case.item.prompt}\n\nFill in the blanks {BLANK} of this answer and write it in full:\n"
                f"{blanks(case, at)}"
            )
            ids = form.ids(question)
            if len(ids) + LEAST_ROOM > engine.context:
                left_out += 1
                continue
            filled = case.fill(case.empty(), prompt_ids=ids)
            row = {"order": order, "step": step, "condition": PROMPTED}
            found.append(row | case.score(filled.ids, at.full))
            found += [case.answer(order, step, name, CONDITIONS[name]) for name in (ANCHORS, PREFIX)]
            found.append(alone | {"step": step})
    return {"answers": found, "left_out": left_out}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    labels: dict[str, Label] = {"order": "order", "steps": ("step", about.share), "condition": "condition"}
    less = {"F1 less that in the prompt": against(answers, "f1", "order", "step", condition=PROMPTED)}
    found = rows(answers.by(labels), metric_columns(COLUMNS) | less)
    left = sum(record["left_out"] for record in records)
    note = f"{left} prompts with a template were too long for the edge model's context. {MEASURES_NOTE}"
    return [Table.of("template", "Template prompting (section 4.7)", found, note)]


EXPERIMENT = phase("template", "Template prompting", measure, tables, limit=60)
