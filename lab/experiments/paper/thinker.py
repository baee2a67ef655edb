"""Phase `thinker`: factored inference (section 6): a Thinker plans, the diffusion model commits, the edge
fills.

The plan follows the question in the diffusion model's prompt: the Thinker's greedy answer, cut to a plan's
length, or as an upper bound the words that a right answer must have. As a control the Thinker's plan is also
used as a prefix of the answer. It can tell something only where the upper bound helps, and where the Thinker
is right more often than the edge model alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.case import RunCase
from lab.conditions import ALONE, CLAIMED_THRESHOLD, committed, edge_aware, plan
from lab.experiment import About, Records, phase
from lab.experiments.paper.bridge import TEACHER, needs, run_from
from lab.questions.items import Item
from lab.runs import Run
from lab.tables import Answers, Table, against, rows

ORDER = "confidence"
PLAN_TOKENS = 32
ASK = "{prompt}\nPlan the answer in a few words."
NONE, THINKER, ORACLE, PREFIX = (
    "no plan",
    "the Thinker's plan",
    "the right words as plan",
    "the Thinker's plan as prefix",
)


def right_words(item: Item) -> str:
    """The words that a right answer must have, from the item's key."""
    key = item.key
    if item.kind in ("tiny", "testbed"):
        written = item.benchmark in ("code", "function")
        return str(key["answer"]) if written else " ".join(key["expected"])
    return str(key.get("number") or key.get("letter") or "")


def measure(case: RunCase) -> dict[str, Any]:
    lab = case.lab
    assert lab.thinker is not None  # checked by `needs`
    form, reference = lab.pipeline.form, case.runs[ORDER].answer
    thought = lab.thinker.write(form.ids(ASK.format(prompt=case.item.prompt)), PLAN_TOKENS)
    runs = {NONE: case.runs[ORDER], PREFIX: _run(case, case.prompt_ids, thought)}
    for name, words in ((THINKER, thought), (ORACLE, form.tokenizer.encode(right_words(case.item)))):
        if prompt := _with_plan(case, words):
            runs[name] = _run(case, prompt)
    found = [
        {"plan": NONE, "stage": stage, **case.score(ids, reference)}
        for stage, ids in ((ALONE, case.alone().ids), (TEACHER, case.written))
    ]
    for name, run in runs.items():
        early = replace(run.at(lab.paper_steps[0]), prompt_ids=tuple(case.prompt_ids))
        at = case.at(early, run.answer)
        stages = {
            "full run": run.answer,
            "anchors, filled": case.fill(committed(at)).ids,
            "edge-aware, filled": case.fill(edge_aware(at, CLAIMED_THRESHOLD)).ids,
        }
        found += [
            {"plan": name, "stage": stage, **case.score(ids, reference)} for stage, ids in stages.items()
        ]
    return {"answers": found, "plan": case.text(thought)}


def _with_plan(case: RunCase, words: list[int]) -> list[int] | None:
    """The prompt with as much of the plan as fits the diffusion model's context, None where nothing does."""
    for size in range(len(words), 0, -1):
        ids = case.form.ids(f"{case.item.prompt}\nPlan: {case.text(words[:size])}")
        if len(ids) + case.lab.base.canvas <= case.lab.pipeline.model.context:
            return ids
    return None


def _run(case: RunCase, prompt: list[int], begin: list[int] | None = None) -> Run:
    """A full run, with `begin` on the canvas before step 0."""
    config = plan(ORDER, case.lab.base)
    tokens = dict(enumerate((begin or [])[: config.canvas]))
    return run_from(case, prompt, tokens, config, case.lab.paper_steps[0])


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    columns = {"right": "right", "F1": "f1", "tokens": "tokens"}
    less = {"right less no plan": against(answers, "right", "stage", plan=NONE)}
    found = rows(answers.by({"plan": "plan", "stage": "stage"}), {"N": len, **columns, **less})
    note = (
        f"Thinker: {about.thinker}. Plans of at most {PLAN_TOKENS} tokens. Anchors after "
        f"{about.share(about.paper_steps[0])} steps. F1 against the full run without a plan."
    )
    return [Table.of("thinker", "Factored inference (section 6)", found, note)]


EXPERIMENT = phase("thinker", "Factored inference", measure, tables, limit=40, needs=needs)
