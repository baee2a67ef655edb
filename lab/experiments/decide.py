"""Experiment `decide`: options read in one pass of the diffusion model, beside answers that are written out.

Choices as the testbed asks them, its facts and comparisons with options made for them; device alone, cloud
alone, and the device that asks where it is not sure. Responsible for the forms of these questions and for the
tables. Not responsible for reading (see `cloud_anchor.decide`, `edge_runtime.decisions`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from cloud_anchor.decide import FormQuestion, read_forms
from cloud_anchor.sampling.config import steps_for
from edge_runtime.decisions import TEMPERATURES, Calibration, Read, Scores, loss
from edge_runtime.form import Form, Slot
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup, questions
from lab.experiments.passes import in_parallel, runs_at
from lab.questions.items import Item
from lab.statistics import difference, ratio, share
from lab.store import Record
from lab.tables import Answers, Column, Row, Table, less_than

CANVAS = 64
WRITTEN = (1, 2, 4)
"""Passes after which the text written so far is judged, beside a tenth and all of the steps."""
NONSENSE = ("a walrus", "the letter", "seven of them", "no such thing")
BINS = 10
SENT = (0.0, 0.1, 0.25, 0.4, 0.5, 0.75, 1.0)
"""Shares of the questions that the device is to ask the cloud."""
DEVICE, CLOUD = SCORED = ("device alone", "cloud, one pass")
FINISHED, NO_OPTION = "written, finished", "options that are nonsense"
CLOUD_YES_NO, YES_NO = "is it the one that is named?", (" yes", " no")


def options_of(item: Item, others: Mapping[str, Sequence[str]]) -> tuple[Form, int] | None:
    """The form of an item's question, and the right option; None for an item that has none.

    others: the values of each attribute, of which a fact gets three beside its own.
    """
    key, rng = item.key, random.Random(item.id)
    if item.benchmark == "choice":
        listed = _listed(item)
        texts = [f" {text} ({letter})" for text, letter in listed]
        right = [text for text, _ in listed].index(key["expected"][1])
        return _form("That is", texts), right
    if item.benchmark == "comparison":
        # Every wording of a comparison ends with its verdict.
        before, texts = "It is", list(key["expected"][:2])
        right_text = max(texts, key=key["answer"].rfind)
    else:
        (right_text,) = key["expected"][:1]
        before, found, _ = key["answer"].partition(f" {right_text}")
        wrong = sorted(set(others[key["key"].rpartition("/")[2]]) - {right_text})
        if not found or len(wrong) < 3:
            return None
        texts = [right_text, *rng.sample(wrong, 3)]
    rng.shuffle(texts)
    return _form(before, [f" {text}" for text in texts]), texts.index(right_text)


def _form(before: str, options: Sequence[str]) -> Form:
    return Form((before, "."), (Slot("answer", tuple(options), tuple(options)),))


def _listed(item: Item) -> list[tuple[str, str]]:
    """The options of a choice that its prompt lists, and their letters."""
    return re.findall(r"^- (.+) \(([A-D])\)$", item.prompt, re.MULTILINE)


def _turned(item: Item) -> str:
    """The prompt with its options in another order: each in the place, and with the letter, of the next."""
    texts = [text for text, _ in _listed(item)]
    places = iter([*texts[-1:], *texts[:-1]])
    return re.sub(r"(?m)^- .+( \([A-D]\))$", lambda place: f"- {next(places)}{place[1]}", item.prompt)


def _apart(form: Form) -> Form:
    """A choice as two questions, of the option and of its letter."""
    (slot,) = form.slots
    texts, letters = zip(*(option.strip(" )").rsplit(" (", 1) for option in slot.options), strict=True)
    texts = tuple(f" {text}" for text in texts)
    slots = Slot("answer", texts, texts), Slot("letter", letters, letters)
    return Form((form.literals[0], " (", ")."), slots)


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are read together and written together."""
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    others: dict[str, list[str]] = {}
    for item in questions(setup):
        if item.benchmark == "fact":
            others.setdefault(item.key["key"].rpartition("/")[2], []).append(item.key["expected"][0])
    forms = [options_of(item, others) for item in items]
    asked = [(item, *found) for item, found in zip(items, forms, strict=True) if found]
    answered: dict[str, list[Record]] = {item.id: [] for item in items}
    model, label = pipeline.masked_model, [right for _, _, right in asked]
    whole = [form for _, form, _ in asked]
    choices, pairs = (
        [at for at, (item, *_) in enumerate(asked) if item.benchmark == kind]
        for kind in ("choice", "comparison")
    )

    def add(way: str, at: int, scores: Scores, right: int, passes: int = 1, kind: str = "") -> None:
        scored = {"scores": scores.tolist(), "label": right} if way in SCORED else {}
        row = {"way": way, "right": int(np.argmax(scores)) == right, "passes": passes, **scored}
        answered[asked[at][0].id].append({"kind": kind or asked[at][0].benchmark, **row})

    def read(forms: Mapping[int, Form], prompts: Mapping[int, str] | None = None, passes: int = 1) -> Any:
        prompts = prompts or {at: asked[at][0].prompt for at in forms}
        found = [FormQuestion.of(pipeline, form, prompts[at]) for at, form in forms.items()]
        read = [scores[0] for scores in read_forms(model, found, passes)]
        cut = [tuple(tuple(option[:1] for option in slot) for slot in each.options) for each in found]
        short = [replace(each, options=only, fixed={}) for each, only in zip(found, cut, strict=True)]
        return zip(forms, read, short, strict=True)

    first = []
    for at, scores, short in read(dict(enumerate(whole))):
        add(CLOUD, at, scores, label[at])
        first.append(short)
    for at, scores in enumerate(read_forms(model, first)):
        add("the same, first token only", at, scores[0], label[at])
    for at, scores, _ in read({at: _other_letters(whole[at]) for at in choices}):
        add("the same, each option with another's letter", at, scores, label[at])
    turned = {at: replace(asked[at][0], prompt=_turned(asked[at][0])) for at in choices}
    again = {at: options_of(item, others) or asked[at][1:] for at, item in turned.items()}
    of_turned = {at: item.prompt for at, item in turned.items()}
    for at, scores, _ in read({at: form for at, (form, _) in again.items()}, of_turned):
        add("the same, options in another order", at, scores, again[at][1])
    for passes in (1, 2):
        for at, scores, _ in read({at: _apart(whole[at]) for at in choices}, passes=passes):
            add(f"option and letter apart, {passes} passes", at, scores, label[at], passes)
    named = {at: whole[at].slots[0].options[at % 2].strip() for at in pairs}
    for at, scores, _ in read({at: _form(f"Is it {named[at]}?", YES_NO) for at in pairs}):
        add(CLOUD_YES_NO, at, scores, int(label[at] != at % 2), kind="comparison, yes or no")
    for at, (item, form, right) in enumerate(asked):
        add(DEVICE, at, edge.runtime.scores(form, item.prompt)[0], right)
    nonsense = [f" {each}" for each in NONSENSE]
    for at, scores, _ in read({at: _form(form.literals[0], nonsense) for at, form in enumerate(whole)}):
        sure = float(Calibration().probabilities(scores).max())
        answered[asked[at][0].id].append({"kind": asked[at][0].benchmark, "way": NO_OPTION, "surest": sure})

    plan = replace(pipeline.plan(), canvas=CANVAS)
    tenth = steps_for(0.1, plan.total_steps)
    prompts = [pipeline.form.ids(item.prompt) for item, *_ in asked]
    runs = runs_at(pipeline, prompts, in_parallel(plan), sorted({*WRITTEN, tenth, plan.total_steps}))
    for (item, *_), prompt, run_at in zip(asked, prompts, runs, strict=True):
        case = Case(item, prompt, pipeline.form, edge, CANVAS, setup.options.seed)
        last = run_at[max(run_at)]
        for mark, run in run_at.items():
            finished = mark == max(run_at)
            name = FINISHED if finished else f"written, {mark} of {plan.total_steps} steps"
            right = case.judged(run.predicted_answer, last.answer)["graded"] == 1
            row = {"kind": item.benchmark, "way": name, "right": right, "passes": run.steps}
            answered[item.id].append(row)
    yield from ({"answers": answers} for answers in answered.values())


def _other_letters(form: Form) -> Form:
    """The options with the letter of the next one each.

    An option and its letter then disagree: a model that goes by the text keeps its answer.
    """
    texts, letters = zip(*(option.rsplit(" ", 1) for option in form.slots[0].options), strict=True)
    moved = [f"{text} {letter}" for text, letter in zip(texts, letters[1:] + letters[:1], strict=True)]
    return _form(form.literals[0], moved)


def _scored(answers: Answers) -> list[Read]:
    return [(np.array(row["scores"]), row["label"]) for row in answers.rows]


def _softened(read: Sequence[Read]) -> Calibration:
    """The likeliest temperature, for questions of several options."""
    return min((Calibration(float(t)) for t in TEMPERATURES), key=partial(loss, read))


def figures(read: Sequence[tuple[Scores, int]]) -> Row:
    """Of distributions and labels: the share right, calibration error by bins of equal width, Brier score of
    the surest option, and how well its probability tells right from wrong.
    """
    sure = np.array([each.max() for each, _ in read])
    right = np.array(right_of(read))
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [abs(sure[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in set(bins)]
    both = 0 < right.mean() < 1
    return {
        "N": len(read),
        "right": share(right.tolist()),
        "calibration error": float(sum(gaps)),
        "Brier score": float(((sure - right) ** 2).mean()),
        "of the base rate": float(right.mean() * (1 - right.mean())),
        "AUROC": _auroc(sure, right) if both else None,
        "surest": float(sure.mean()),
    }


def _auroc(sure: Scores, right: Scores) -> float:
    """How often a right answer is surer than a wrong one."""
    more = stats.mannwhitneyu(sure[right == 1], sure[right == 0]).statistic
    return float(more / ((right == 1).sum() * (right == 0).sum()))


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    written = answers.where(way=FINISHED)
    columns: dict[str, Column] = {
        "N": len,
        "right": "right",
        "less written": less_than(written, "right"),
        "passes": "passes",
    }
    columns["surest of nonsense"] = "surest"
    title = "Options read in one pass, and answers written out (canvas 64)"
    found = [answers.table("ways", title, {"kind": "kind", "way": "way"}, columns, NOTE)]
    halves: dict[str, tuple[Answers, Answers]] = {}
    rows: list[Row] = []
    hows: dict[str, Calibration] = {}
    for way in SCORED:
        # Every other one of each kind: kinds differ in how hard they are, and come in turn.
        scored = sorted(answers.where(way=way).rows, key=lambda row: str(row["kind"]))
        halves[way] = Answers(scored[::2]), Answers(scored[1::2])
        hows[way] = _softened(_scored(halves[way][0]))
        for name, how in (("as read", Calibration()), ("calibrated", hows[way])):
            held = [(how.probabilities(scores), right) for scores, right in _scored(halves[way][1])]
            rows.append({"who": way, "how": name, "temperature": f"{how.temperature:.2f}", **figures(held)})
    found.append(Table.of("calibration", "How sure, and how often right: fitted on the other half", rows))
    fitted, device, cloud = (
        [(how.probabilities(scores), label) for scores, label in read]
        for how, read in (
            (hows[DEVICE], _scored(halves[DEVICE][0])),
            *((hows[way], _scored(halves[way][1])) for way in SCORED),
        )
    )
    lines = [row for _, row in cascade(fitted, device, cloud)]
    return [*found, Table.of("cascade", "Device, and the cloud where it is not sure", lines)]


def right_of(read: Sequence[Read]) -> list[float]:
    """Whether the surest option is the right one."""
    return [float(told.argmax() == label) for told, label in read]


def cascade(
    before: Sequence[Read],
    device: Sequence[Read],
    cloud: Sequence[Read],
    subjects: Sequence[int] | None = None,
) -> Iterator[tuple[NDArray[np.bool_], Row]]:
    """A device that asks the cloud below a threshold: which questions it asks, and what is right then.

    before: other questions, which set the threshold. subjects: by which answers are resampled together.
    """
    known, sure = (np.array([told.max() for told, _ in read]) for read in (before, device))
    alone = right_of(cloud)
    for planned in SENT:
        asked = sure < (np.quantile(known, planned) if 0 < planned < 1 else 2 * planned)
        both = [theirs if ask else own for own, theirs, ask in zip(device, cloud, asked, strict=True)]
        row: Row = {"asked, planned": planned, "asked": float(asked.mean()), **figures(both)}
        row["of the cloud's"] = ratio(right_of(both), alone, subjects)
        yield asked, row | {"less the cloud": difference(right_of(both), alone, subjects)}


NOTE = (
    "choice: the testbed's questions, label and letter masked; fact, comparison: the answer's sentence up to "
    "the value, with options of the same attribute. less written: paired, with the finished answer."
)

EXPERIMENT = Experiment(
    "decide",
    "Decisions: options read in one pass, beside answers that are written out",
    measure,
    tables,
    defaults={
        "model": "testbed",
        "prompts": 800,
        "data": ("testbed:choice", "testbed:fact", "testbed:comparison"),
    },
    together=40,
)
