"""Experiment `json`: answers as objects, with and without the grammar, with and without anchors.

The questions are the testbed's profiles and comparisons; the schema is one for all of them, a name and a list
of attributes with values. The testbed's models have never seen JSON: without the grammar no answer is an
object, and with it the model on the device writes what it would have said into the first strings that the
schema has. So this measures what the grammar and the anchors do to each other, not how well a model fills in
a form: `told` counts the values asked for that stand in some string of the answer, whatever its key.

Responsible for the measurement. Not responsible for decoding (see `edge_runtime.decode.constrained`) or for
the selection (see `selection.constrained`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cloud_anchor.sampling.config import commit_in_parallel, steps_for
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import EDGE_AWARE, Selection
from common.cli import option
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar
from edge_runtime.runtime import EdgeRuntime
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import Item
from lab.questions.judge import graded
from lab.store import Record
from lab.tables import Answers, Table, mean, rows
from payload import AnchorSet

FRACTIONS = (0.1, 0.25, 0.4)
FAMILIES = ("profile", "comparison")

_TEXT = {"type": "string", "maxLength": 80}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "attributes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": _TEXT, "value": _TEXT},
                "required": ["name", "value"],
                "additionalProperties": False,
            },
            "minItems": 1,
            "maxItems": 8,
        },
    },
    "required": ["name", "attributes"],
    "additionalProperties": False,
}

ALONE, ALONE_HELD = "device alone", "device alone, grammar"
PLAIN, PLAIN_HELD = "anchors", "anchors, grammar on the device"
HELD = "anchors for the grammar, grammar"


@dataclass(frozen=True)
class JsonOptions:
    threshold: float = option(0.3, "probability from which a prediction binds (default 0.3)")


@lru_cache(1)
def _compiled(edge: EdgeRuntime) -> CompiledGrammar:
    return edge.compiled(Grammar.json_schema(SCHEMA), trusted=True)


def strings(text: str) -> str | None:
    """The strings of an object that is valid against the schema, one a line; None for another text."""
    import jsonschema

    try:
        value = json.loads(text)
        jsonschema.validate(value, SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return None
    return "\n".join([value["name"], *(part for each in value["attributes"] for part in each.values())])


def answered(case: Case, anchors: AnchorSet, edge: EdgeRuntime, *, held: bool) -> dict[str, Any]:
    """One answer: validity, the share told, its cost, and what became of the anchors."""
    stats = FillStats()
    options = FillOptions(score_anchors=False, grammar=_compiled(edge) if held else None)
    ids = [token.id for token in fill(edge.engine, case.prompt_ids, anchors, options, stats)]
    text = case.text(ids)
    values = strings(text)
    return {
        "valid": float(values is not None),
        "told": graded(case.item, text if values is None else values),
        "tokens": len(ids),
        "passes": stats.passes,
        "forced": stats.forced or 0,
        "realigned": stats.realigned or 0,
        "dropped": stats.dropped or 0,
    }


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """Every condition of every item, after each share of the steps."""
    own: JsonOptions = setup.own
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    plan = pipeline.plan()
    selection = Selection(EDGE_AWARE, EdgeAwareConfig(threshold=own.threshold))
    prompts = [item.prompt for item in items]
    ids = [pipeline.form.ids(prompt) for prompt in prompts]
    found: list[list[dict[str, Any]]] = [[] for _ in items]
    for fraction in FRACTIONS:
        config = commit_in_parallel(replace(plan, steps=steps_for(fraction, plan.total_steps)))
        runs = denoise(pipeline.model, ids, config)
        plain = pipeline.select(prompts, runs, selection)
        aware = pipeline.select_in(Grammar.json_schema(SCHEMA), prompts, runs, selection)
        for index, item in enumerate(items):
            run = runs[index]
            case = Case(item, run.prompt_ids, pipeline.form, [edge], run.canvas, 0)
            conditions = [
                (ALONE, case.empty(), False),
                (ALONE_HELD, case.empty(), True),
                (PLAIN, plain[index].anchors, False),
                (PLAIN_HELD, plain[index].anchors, True),
                (HELD, aware[index].anchors, True),
            ]
            for name, anchors, held in conditions:
                row: dict[str, Any] = {"condition": name, "fraction": fraction, "steps": config.steps}
                row["bytes"] = len(pipeline.payload(replace(plain[index], anchors=anchors)))
                row["bytes"] *= bool(len(anchors) or anchors.length is not None)
                found[index].append(row | answered(case, anchors, edge.runtime, held=held))
    for each in found:
        yield {"answers": each}


def tables(records: Records, about: About) -> list[Table]:
    names = ("valid", "told", "bytes", "tokens", "passes", "forced", "realigned", "dropped", "steps")
    columns = {"N": len, **{name: mean(name) for name in names}}
    groups = Answers.of(records).by(
        {"steps of the cloud": ("fraction", "{:.0%}".format), "condition": ("condition", str)}
    )
    note = (
        "Profiles and comparisons of the testbed, whose models were not trained on JSON. valid: against the "
        "schema, by jsonschema. told: share of the values asked for that stand in some string of a valid "
        "answer, or in the text of another. passes: of the device's model; steps: of the cloud's."
    )
    return [Table.of("json", "Answers as objects", rows(groups, columns), note)]


EXPERIMENT = Experiment(
    "json",
    "Answers as objects: with and without the grammar, with and without anchors",
    measure,
    tables,
    options=JsonOptions,
    wanted=lambda item: item.benchmark in FAMILIES,
    together=8,
)
"""Run it with --data testbed:profile testbed:comparison to ask nothing else."""
