"""Phase `thinker`: factored inference (section 6): a Thinker plans, the diffusion model commits, the edge
fills.

The plan follows the question in the diffusion model's prompt: the Thinker's greedy answer, cut to a plan's
length, or as an upper bound the words that a right answer must have. It can tell something only where the
upper bound helps, and where the Thinker is right more often than the edge model alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.case import RunCase, needs_thinker
from lab.conditions import ALONE, CLAIMED_THRESHOLD, committed, edge_aware, plan
from lab.experiment import About, phase
from lab.experiments.paper.bridge import TEACHER
from lab.questions.items import Item
from lab.runs import run_once
from lab.store import Record
from lab.tables import Answers, Column, Table, against

ORDER = "confidence"
PLAN_TOKENS = 32
ASK = "{prompt}\nPlan the answer in a few words."
NONE, THINKER, ORACLE = "no plan", "the Thinker's plan", "the right words as plan"


def right_words(item: Item) -> str:
    """The words that a right answer must have, from the item's key."""
    key = item.key
    if item.kind in ("tiny", "testbed"):
        written = item.benchmark in ("code", "function")
        return str(key["answer"]) if written else " ".join(key["expected"])
    return str(key.get("number") or key.get("letter") or "")


def measure(case: RunCase) -> Iterator[Record]:
    lab, run = case.lab, case.runs[ORDER]
    assert lab.thinker is not None  # checked by `needs_thinker`
    reference, step = run.answer, lab.paper_steps[0]
    thought = lab.thinker.write(case.form.ids(ASK.format(prompt=case.item.prompt)), PLAN_TOKENS)
    for stage, ids in ((ALONE, case.alone().ids), (TEACHER, case.written)):
        yield {"plan": NONE, "stage": stage} | case.score(ids, reference)
    plans = {THINKER: thought, ORACLE: case.form.tokenizer.encode(right_words(case.item))}
    for name, prompt in {
        NONE: case.prompt_ids,
        **{n: _with_plan(case, words) for n, words in plans.items()},
    }.items():
        if prompt is None:
            continue
        if name != NONE:
            (run,) = run_once(lab.pipeline.masked_model, [prompt], plan(ORDER, lab.base), [step])
        at = case.at(replace(run.at(step), prompt_ids=tuple(case.prompt_ids)), run.answer)
        stages = {
            "full run": run.answer,
            "anchors, filled": case.fill(committed(at)).ids,
            "edge-aware, filled": case.fill(edge_aware(at, CLAIMED_THRESHOLD)).ids,
        }
        for stage, ids in stages.items():
            yield {"plan": name, "stage": stage} | case.score(ids, reference)


def _with_plan(case: RunCase, words: list[int]) -> list[int] | None:
    """The prompt with as much of the plan as fits the diffusion model's context, None where nothing does."""
    room = case.lab.pipeline.model.context - case.lab.base.canvas
    cut = (case.text(words[:size]) for size in range(len(words), 0, -1))
    prompts = (case.form.ids(f"{case.item.prompt}\nPlan: {text}") for text in cut)
    return next((ids for ids in prompts if len(ids) <= room), None)


def tables(answers: Answers, about: About) -> Iterator[Table]:
    columns: dict[str, Column] = {"N": len, "right": "right", "F1": "f1", "tokens": "tokens"}
    less = {"right less no plan": against(answers, "right", "stage", plan=NONE)}
    note = (
        f"Thinker: {about.thinker}. Plans of at most {PLAN_TOKENS} tokens. Anchors after "
        f"{about.share(about.paper_steps[0])} steps. F1 against the full run without a plan."
    )
    labels = {"plan": "plan", "stage": "stage"}
    yield answers.table("thinker", "Factored inference (section 6)", labels, columns | less, note)


EXPERIMENT = phase("thinker", "Factored inference", measure, tables, limit=40, needs=needs_thinker)
