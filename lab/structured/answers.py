"""Experiment `json`: answers as objects, with and without the grammar, with and without anchors.

The questions are the testbed's profiles and comparisons; the schema is one for all of them, a name and a list
of attributes with values. The testbed's models have never seen JSON: without the grammar no answer is an
object, and with it the model on the device writes what it would have said into the first strings that the
schema has. So this measures what the grammar and the anchors do to each other, not how well a model fills in
a form: `told` counts the values asked for that stand in some string of the answer, whatever its key.

Of anchors for the grammar the bytes are told twice: as they are sent, and with what the grammar forces sent
as well, as for a device that knows no grammar.

Responsible for the measurement. Not responsible for decoding (see `edge_runtime.decode.constrained`) or for
the selection (see `selection.constrained`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, commit_in_parallel, steps_for
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.literals import Literals
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import EDGE_AWARE, Selection
from common.cli import option
from edge_runtime.decode.forced import FillOptions, FillStats, Source, fill
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup
from lab.questions.items import Item
from lab.questions.judge import graded
from lab.store import Record
from lab.tables import Answers, Column, Table, less_than, mean, rows
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
HELD, PINNED = "anchors for the grammar", "anchors for the grammar, its literal parts on the canvas"
BEFORE = {ALONE_HELD: ALONE, PLAIN_HELD: PLAIN, HELD: PLAIN_HELD, PINNED: HELD}


@dataclass(frozen=True)
class JsonOptions:
    threshold: float = option(0.3, "probability from which a prediction binds (default 0.3)")


def strings(text: str) -> str | None:
    """The strings of an object that is valid against the schema, one a line; None for another text."""
    import jsonschema

    try:
        value = json.loads(text)
        jsonschema.validate(value, SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return None
    return "\n".join([value["name"], *(part for each in value["attributes"] for part in each.values())])


def answered(
    case: Case, anchors: AnchorSet, grammar: CompiledGrammar | None
) -> tuple[dict[str, Any], dict[int, int]]:
    """One answer: validity, the share told, its cost, what became of the anchors; and the tokens by position
    that the grammar has forced.
    """
    stats = FillStats()
    options = FillOptions(score_anchors=False, grammar=grammar)
    tokens = list(fill(case.models[0].runtime.engine, case.prompt_ids, anchors, options, stats))
    text = case.text([token.id for token in tokens])
    values = strings(text)
    found = {
        "valid": float(values is not None),
        "told": graded(case.item, text if values is None else values),
        "tokens": len(tokens),
        "passes": stats.passes,
        "forced": stats.forced or 0,
        "realigned": stats.realigned or 0,
        "dropped": stats.dropped or 0,
    }
    return found, {token.position: token.id for token in tokens if token.source is Source.GRAMMAR}


def drafts(
    pipeline: Pipeline, prompts: Sequence[list[int]], config: DenoiseConfig, grammar: CompiledGrammar | None
) -> list[dict[float, Denoised]]:
    """Of each prompt the run after every share of the steps, or where it was complete before.

    grammar: whose literal parts are on the canvas; None for none.
    """
    marks = {fraction: steps_for(fraction, config.total_steps) for fraction in FRACTIONS}
    batch: ContinuousBatch[int] = ContinuousBatch(pipeline.model, config)
    for index, prompt in enumerate(prompts):
        batch.join(index, prompt, list(marks.values()), literals=Literals(grammar) if grammar else None)
    found: list[dict[float, Denoised]] = [{} for _ in prompts]
    while len(batch):
        for index, run, done in batch.step():
            reached = [f for f, mark in marks.items() if mark == run.steps or (done and mark > run.steps)]
            found[index] |= dict.fromkeys(reached, run)
    return found


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """Every condition of every item, after each share of the steps."""
    own: JsonOptions = setup.own
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    selection = Selection(EDGE_AWARE, EdgeAwareConfig(threshold=own.threshold))
    grammar = CompiledGrammar(Grammar.json_schema(SCHEMA), pipeline.grammar_vocabulary, trusted=True)
    config = commit_in_parallel(pipeline.plan())
    ids = [pipeline.form.ids(item.prompt) for item in items]
    plain, pinned = (drafts(pipeline, ids, config, each) for each in (None, grammar))
    for index, item in enumerate(items):
        case = Case(item, ids[index], pipeline.form, [edge], config.canvas, 0)
        nothing = {"fraction": 0.0, "steps": 0, "bytes": 0}
        found = [
            nothing | {"condition": name} | answered(case, case.empty(), held)[0]
            for name, held in ((ALONE, None), (ALONE_HELD, grammar))
        ]
        for fraction in FRACTIONS:
            run, early = plain[index][fraction], pinned[index][fraction]
            (sent,) = pipeline.select([item.prompt], [run], selection)
            (aware,) = pipeline.select_in(grammar, [item.prompt], [run], selection)
            (literal,) = pipeline.select_in(grammar, [item.prompt], [early], selection)
            for name, result, held in (
                (PLAIN, sent, None),
                (PLAIN_HELD, sent, grammar),
                (HELD, aware, grammar),
                (PINNED, literal, grammar),
            ):
                row: dict[str, Any] = {"condition": name, "fraction": fraction, "steps": result.run.steps}
                row["bytes"] = len(pipeline.payload(result))
                figures, forced = answered(case, result.anchors, held)
                if name in (HELD, PINNED):
                    whole = result.anchors
                    whole = AnchorSet.of({**whole.by_position, **forced}, whole.canvas, whole.contract)
                    row["bytes with it"] = len(pipeline.payload(replace(result, anchors=whole)))
                found.append(row | figures)
        yield {"answers": found}


def tables(records: Records, about: About) -> list[Table]:
    names = ("bytes", "bytes with it", "tokens", "passes", "forced", "realigned", "dropped", "steps")
    columns: dict[str, Column] = {
        "N": len,
        "valid": mean("valid"),
        "told": "told",
        **{name: mean(name) for name in names},
    }
    answers = Answers.of(records)

    def beside(group: Answers) -> Answers:
        """The same answers under the condition in whose place this one is."""
        row = group.rows[0]
        return answers.where(fraction=row["fraction"], condition=BEFORE.get(row["condition"]))

    columns["told, less the row above"] = less_than(beside, "told")
    groups = answers.by({"of the steps": ("fraction", "{:.0%}".format), "condition": ("condition", str)})
    note = (
        "Profiles and comparisons of the testbed, whose models were not trained on JSON. valid: against the "
        "schema, by jsonschema. told: share of the values asked for that stand in some string of a valid "
        "answer, or in the text of another. passes: of the device's model; steps: of the cloud's. bytes with "
        "it: the same anchors, and all that the grammar forces sent as well. The intervals are of 95%."
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
