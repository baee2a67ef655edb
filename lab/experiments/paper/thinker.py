"""Phase `thinker`: factored inference (section 6): a Thinker plans, the diffusion model commits, the edge
fills.

The plan follows the question in the diffusion model's prompt. Three plans: none; the Thinker's greedy answer,
cut to a plan's length; and an upper bound, the words that a right answer must have. Where the upper bound
does not help either, or the Thinker is right no more often than the edge model, nothing is measured about
Thinkers, and the claim says so. As a control the plan is also used as a prefix of the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloud_anchor.sampling.state import State
from lab.case import RunCase
from lab.conditions import ALONE, CLAIMED_THRESHOLD, committed, edge_aware, plan
from lab.experiment import About, Records, phase
from lab.experiments.paper.bridge import known_right, needs, unknowing
from lab.questions.items import Item
from lab.runs import Run, run_once
from lab.tables import NOT_MEASURED, Answers, Claim, Column, Table, compare, more, rows, told

ORDER = "confidence"
PLAN_TOKENS = 32
ASK = "{prompt}\nPlan the answer in a few words."
NONE, THINKER, ORACLE, PREFIX = (
    "no plan",
    "the Thinker's plan",
    "the right words as plan",
    "the Thinker's plan as prefix",
)
FULL, ANCHORS, AWARE = "full run", "anchors, filled", "edge-aware, filled"


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
    form = lab.pipeline.form
    asked = form.ids(ASK.format(prompt=case.item.prompt))
    thought = lab.thinker.write(asked, PLAN_TOKENS)
    oracle = form.tokenizer.encode(right_words(case.item))
    runs: dict[str, Run | None] = {NONE: case.runs[ORDER]}
    cut = {}
    for name, words in ((THINKER, thought), (ORACLE, oracle)):
        prompt, cut[name] = _with_plan(case, words)
        runs[name] = _run(case, prompt) if prompt else None
    runs[PREFIX] = _run(case, case.prompt_ids, thought)
    reference = case.runs[ORDER].answer
    found = [{"plan": NONE, "stage": ALONE, **case.score(case.alone().ids, reference)}]
    for name, run in runs.items():
        if run is None:
            continue
        early = replace(run.at(lab.paper_steps[0]), prompt_ids=tuple(case.prompt_ids))
        at = case.at(early, run.answer)
        stages = {
            FULL: run.answer,
            ANCHORS: case.fill(committed(at)).ids,
            AWARE: case.fill(edge_aware(at, CLAIMED_THRESHOLD)).ids,
        }
        found += [
            {"plan": name, "stage": stage, **case.score(ids, reference)} for stage, ids in stages.items()
        ]
    known = {"knows": known_right(case), "alone": found[0]["right"]}
    return {"answers": found, "plan": case.text(thought), "cut": sum(cut.values()), "teacher": [known]}


def _with_plan(case: RunCase, words: list[int]) -> tuple[list[int] | None, bool]:
    """The prompt with as much of the plan as fits, None where nothing does; and True where it was cut."""
    form, model = case.form, case.lab.pipeline.model
    for size in range(len(words), 0, -1):
        ids = form.ids(f"{case.item.prompt}\nPlan: {case.text(words[:size])}")
        if len(ids) + case.lab.base.canvas <= model.context:
            return ids, size < len(words)
    return None, True


def _run(case: RunCase, prompt: list[int], begin: list[int] | None = None) -> Run:
    """A full run, with `begin` on the canvas before step 0."""
    config = plan(ORDER, case.lab.base)
    model = case.lab.pipeline.masked_model
    state = State.start(model, [prompt], config)
    for position, token in enumerate((begin or [])[: config.canvas]):
        state.ids[0, position] = token
        state.when[0, position] = 1  # as if committed in the first step
    (run,) = run_once(model, [prompt], config, [case.lab.paper_steps[0]], state)
    return run


def tables(records: Records, about: About) -> list[Table]:
    columns: dict[str, Column] = {"N": len, "right": "right", "F1": "f1", "edit": "edit", "tokens": "tokens"}
    found = rows(Answers.of(records).by({"plan": "plan", "stage": "stage"}), columns)
    cut = sum(record["cut"] for record in records)
    note = (
        f"Thinker: {about.thinker}. Plans of at most {PLAN_TOKENS} tokens; {cut} were cut to the diffusion "
        f"model's context. Anchors after {about.share(about.paper_steps[0])} steps. F1 against the full run "
        "without a plan."
    )
    return [Table.of("thinker", "Factored inference (section 6)", found, note)]


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    full = answers.where(stage=FULL)
    none, oracle, thinker = (full.where(plan=name) for name in (NONE, ORACLE, THINKER))
    readable, reads = compare(ORACLE, oracle, NONE, none, "right")
    sentence, result = compare(THINKER, thinker, NONE, none, "right")
    end = told(lambda name: answers.where(plan=name, stage=AWARE), THINKER, NONE, "right")
    reason = unknowing(records)
    if reason is None and reads != "higher":
        reason = (
            "the diffusion model was not seen to use a plan, not even the right words, so the result says "
            "nothing about Thinkers; it needs one that has seen plans in training"
        )
    return [
        Claim(
            "A Thinker's plan makes the diffusion model's answer better (section 6, proposed there).",
            NOT_MEASURED if reason else more(result),
            (f"Not measured: {reason}. " if reason else "")
            + f"{sentence}. At the end of the whole way: {end}.",
            f"{readable}.",
        )
    ]


EXPERIMENT = phase("thinker", "Factored inference", measure, tables, claims, limit=40, needs=needs)
