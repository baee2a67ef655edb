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

import numpy as np
from scipy import stats  # type: ignore[import-untyped, unused-ignore]

from cloud_anchor.decide import FormQuestion, read_forms
from cloud_anchor.sampling.config import steps_for
from edge_runtime.decisions import calibration
from edge_runtime.decisions.reading import Calibration, Scores
from edge_runtime.form import Form, Slot
from lab.case import Case
from lab.experiment import About, Experiment, Records, Setup, questions
from lab.experiments.passes import in_parallel, runs_at
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Column, Row, Table, less_than

CANVAS = 64
WRITTEN = (1, 2, 4)
"""Passes after which the text written so far is judged, beside a tenth and all of the steps."""
NONSENSE = ("a walrus", "the letter", "seven of them", "no such thing")
BINS = 10
DEVICE, CLOUD = SCORED = ("device alone", "cloud, one pass")


def options_of(item: Item, others: Mapping[str, Sequence[str]]) -> tuple[Form, int] | None:
    """The form of an item's question, and the right option; None for an item that has none.

    others: the values of each attribute, of which a fact gets three beside its own.
    """
    key, rng = item.key, random.Random(item.id)
    if item.benchmark == "choice":
        listed = re.findall(r"^- (.+) \(([A-D])\)$", item.prompt, re.MULTILINE)
        texts = [f" {text} ({letter})" for text, letter in listed]
        right = [letter for _, letter in listed].index(key["expected"][0])
        return _form("That is", texts), right
    if item.benchmark == "comparison":
        texts, verdict = list(key["expected"][:2]), re.search(r"it is (.+?) that", key["answer"])
        if verdict is None or verdict[1] not in texts:
            return None
        before = "It is"
        right_text = verdict[1]
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
    return Form((before, Slot("answer", tuple(options), tuple(options)), "."))


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are read together and written together."""
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    others: dict[str, list[str]] = {}
    for item in questions(setup):
        if item.benchmark == "fact":
            others.setdefault(item.key["key"].rpartition("/")[2], []).append(item.key["expected"][0])
    forms = [options_of(item, others) for item in items]
    asked = [(item, *found) for item, found in zip(items, forms, strict=True) if found]
    answered: dict[str, Record] = {item.id: {"answers": []} for item in items}
    model = pipeline.masked_model

    def read(forms: Sequence[Form], first: bool = False) -> list[Scores]:
        pairs = zip(forms, asked, strict=True)
        read = [FormQuestion.of(pipeline, form, item.prompt) for form, (item, *_) in pairs]
        if first:
            cut = [tuple(tuple(option[:1] for option in slot) for slot in each.options) for each in read]
            read = [replace(each, options=only) for each, only in zip(read, cut, strict=True)]
        return [scores[0] for scores in read_forms(model, read)]

    plan = replace(pipeline.plan(), canvas=CANVAS)
    tenth = steps_for(0.1, plan.total_steps)
    prompts = [pipeline.form.ids(item.prompt) for item, *_ in asked]
    runs = runs_at(pipeline, prompts, in_parallel(plan), sorted({*WRITTEN, tenth, plan.total_steps}))
    moved = [_other_letters(form) for _, form, _ in asked]
    ways = {
        CLOUD: read([form for _, form, _ in asked]),
        "the same, first token only": read([form for _, form, _ in asked], first=True),
        "the same, letters moved": read(moved),
        DEVICE: [edge.runtime.scores(form, item.prompt)[0] for item, form, _ in asked],
    }
    nonsense = read([_form(str(form.parts[0]), [f" {each}" for each in NONSENSE]) for _, form, _ in asked])
    for at, (item, _, right) in enumerate(asked):
        answers: list[Record] = []
        for way, scores in ways.items():
            if way.endswith("moved") and item.benchmark != "choice":
                continue
            right_now = int(np.argmax(scores[at])) == right
            scored = {"scores": scores[at].tolist(), "label": right} if way in SCORED else {}
            answers.append({"way": way, "right": right_now, "passes": 1, **scored})
        sure = Calibration(prior=0.0).probabilities(nonsense[at], np.zeros(len(NONSENSE)))
        answers.append({"way": "options that are nonsense", "surest": float(sure.max())})
        case = Case(item, prompts[at], pipeline.form, edge, CANVAS, setup.options.seed)
        whole = runs[at][max(runs[at])]
        for mark, run in runs[at].items():
            finished = mark == max(runs[at])
            name = "written, finished" if finished else f"written, {mark} of {plan.total_steps} steps"
            graded = case.judged(run.predicted_answer, whole.answer)["graded"]
            answers.append({"way": name, "right": graded == 1, "passes": run.steps})
        answered[item.id]["answers"] = [{"kind": item.benchmark, **each} for each in answers]
    yield from answered.values()


def _other_letters(form: Form) -> Form:
    """The options with the letter of the next one each, where they have letters.

    An option and its letter then disagree: a model that goes by the text keeps its answer.
    """
    (slot,) = form.slots
    texts = [re.sub(r" \([A-D]\)$", "", option) for option in slot.options]
    letters = [option[len(text) :] for option, text in zip(slot.options, texts, strict=True)]
    moved = [text + letter for text, letter in zip(texts, letters[1:] + letters[:1], strict=True)]
    return _form(str(form.parts[0]), moved)


Scored = Sequence[tuple[Scores, Scores, int]]


def _scored(answers: Answers) -> Scored:
    return [(np.array(r["scores"]), np.zeros(len(r["scores"])), r["label"]) for r in answers.rows]


def figures(found: Scored, how: Calibration) -> Row:
    """Calibration error by bins of equal width, Brier score of the surest option, and how well its
    probability tells right from wrong.
    """
    read = [(how.probabilities(scores, prior), label) for scores, prior, label in found]
    sure = np.array([each.max() for each, _ in read])
    right = np.array([int(each.argmax()) == label for each, label in read], float)
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = [abs(sure[bins == b].mean() - right[bins == b].mean()) * (bins == b).mean() for b in set(bins)]
    both = 0 < right.mean() < 1
    return {
        "calibration error": float(sum(gaps)),
        "Brier score": float(((sure - right) ** 2).mean()),
        "of the base rate": float(right.mean() * (1 - right.mean())),
        "AUROC": _auroc(sure, right) if both else None,
    }


def _auroc(sure: Scores, right: Scores) -> float:
    """How often a right answer is surer than a wrong one."""
    more = stats.mannwhitneyu(sure[right == 1], sure[right == 0]).statistic
    return float(more / ((right == 1).sum() * (right == 0).sum()))


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    written = answers.where(way="written, finished")
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
    for way in SCORED:
        scored = answers.where(way=way)
        halves[way] = Answers(scored.rows[::2]), Answers(scored.rows[1::2])
        fitted = calibration.fit(_scored(halves[way][0]))
        for name, how in (("as read", Calibration(prior=0.0)), ("calibrated", fitted)):
            temperature = f"{how.temperature:.2f}"
            rows.append({"who": way, "how": name, "temperature": temperature, "N": len(halves[way][1])})
            rows[-1] |= figures(_scored(halves[way][1]), how)
    found.append(Table.of("calibration", "How sure, and how often right: fitted on the other half", rows))
    return [*found, _cascade(halves)]


def _cascade(halves: Mapping[str, tuple[Answers, Answers]]) -> Table:
    """The device that asks the cloud below a threshold, chosen on the other half for a share of questions."""
    fits = {way: calibration.fit(_scored(first)) for way, (first, _) in halves.items()}

    def sure(way: str, half: int) -> tuple[Scores, Scores]:
        read = [(fits[way].probabilities(s, p), label) for s, p, label in _scored(halves[way][half])]
        return np.array([e.max() for e, _ in read]), np.array(
            [int(e.argmax()) == at for e, at in read], float
        )

    before, (device, device_right) = sure(DEVICE, 0)[0], sure(DEVICE, 1)
    cloud_right = sure(CLOUD, 1)[1]
    rows: list[Row] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        asked = device < (np.quantile(before, share) if 0 < share < 1 else 2 * share)
        right = np.where(asked, cloud_right, device_right)
        rows.append({"asked, planned": share, "asked": float(asked.mean()), "right": float(right.mean())})
    return Table.of("cascade", "Device, and the cloud where it is not sure", rows)


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
