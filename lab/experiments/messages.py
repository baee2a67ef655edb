"""Experiment `messages`: decisions by real models, on a device, by a server, and by both.

    python -m lab run messages --edge bundles/smollm2-135m-instruct --variant int8 \\
        --server openai:http://localhost:18080/v1 --name coder --mmlu mmlu.jsonl -o runs/messages

The messages of `questions/messages.jsonl` with seven questions about each, and MMLU's by their letters. Odd
lines calibrate, the others judge; what four languages say alike is in one half. Not responsible for reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, count
from pathlib import Path

import numpy as np

from common.cli import option
from edge_runtime import decisions
from edge_runtime.client.chat_server import ChatServer
from edge_runtime.decisions import LEAST_ROWS, Calibration, Read, Scores
from edge_runtime.form import Form, Slot
from edge_runtime.runtime import EdgeRuntime
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.decide import cascade, figures, right_of
from lab.loading import edge_of
from lab.questions.items import Item, read_items
from lab.statistics import difference
from lab.store import Record
from lab.tables import Row, Table
from payload.decisions import encode_decisions

PLACE = Path(__file__).parents[1] / "questions"
FORM = Form.of(PLACE / "messages.json")
TITLES = [slot.title for slot in FORM.slots]
LETTERS = Form(("The answer is", "."), (Slot("MMLU", (" A", " B", " C", " D"), tuple("ABCD")),))
NONSENSE = (" walrus", " seventeen", " the letter", " sideways", " no such")
DEVICE, SERVER, POOLED = "device", "server", "all but MMLU, pooled"
TURNED, FIRST, NONE = (f"{DEVICE}, {how}" for how in ("options turned round", "first tokens", "nonsense"))


@dataclass(frozen=True)
class MessagesOptions:
    server: str = option("", "server that reads too, such as openai:http://localhost:8000/v1")
    name: str = option("", "its name of the model")
    mmlu: Path | None = option(None, "MMLU's questions, JSONL")


def asked(setup: Setup) -> list[Item]:
    """--prompts: the first of the messages, and of MMLU's."""
    file, most = setup.own.mmlu, setup.options.prompts
    rows = enumerate(decisions.read_rows(PLACE / "messages.jsonl", FORM), 1)
    found = [Item(f"message-{at:04d}", "", "", text, "form", {"right": right}) for at, (text, right) in rows]
    return found[:most] + (read_items("mmlu", file)[:most] if file else [])


_opened = cache(edge_of)


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    own, edge = setup.own, _opened(setup.options)
    server = ChatServer.open(own.server, own.name) if own.server else None
    for item in items:
        of_form, read = item.kind == "form", dict[str, list[list[float]]]()
        form, fit = FORM if of_form else LETTERS, int(item.id[-4:]) % 2 == 1
        for how, (options, asks, prior) in _forms(edge, form).items():
            if how == DEVICE or not fit:  # controls judge alone
                less = zip(edge.scores(options, asks.question(item.prompt)), prior, strict=True)
                read[how] = [(of - before)[:: -1 if how == TURNED else 1].tolist() for of, before in less]
        if server:
            told = server.decide(form, item.prompt, range(len(form.slots)))
            read[SERVER] = [decisions.said(each).tolist() for each in told.values()]
        right = item.key["right"] if of_form else ["ABCD".index(item.key["letter"])]
        about: Record = {"edge": f"{edge.bundle.path.name} {edge.bundle.variant_name}", "text": item.prompt}
        about |= {"questions": [slot.title for slot in form.slots], "right": right}
        yield about | {"fit": fit, "read": read}


@cache
def _forms(edge: EdgeRuntime, form: Form) -> dict[str, tuple[Form, Form, list[Scores]]]:
    """By how it is read the form with those options, the one whose question is asked, and the prior."""

    def made(of: Callable[[tuple[str, ...]], Sequence[str]]) -> Form:
        slots = tuple(replace(slot, options=tuple(of(slot.options))) for slot in form.slots)
        return Form(form.literals, slots, form.says)

    def begun(options: tuple[str, ...]) -> list[str]:  # as far as it takes to tell them apart
        ids = [edge.bundle.tokenizer.encode(each) for each in options]
        most = next(most for most in count(1) if len({tuple(each[:most]) for each in ids}) == len(ids))
        return [edge.bundle.tokenizer.decode(each[:most]) for each in ids]

    first = made(begun)
    turned, none = made(lambda options: options[::-1]), made(lambda options: NONSENSE[: len(options)])
    found = {DEVICE: (form, form), TURNED: (turned, turned), FIRST: (first, form), NONE: (none, none)}
    return {how: (of, asks, edge.scores(of, asks.question(""))) for how, (of, asks) in found.items()}


def _told(records: Records, how: str, fit: bool = False, raw: bool = False) -> dict[str, list[Read]]:
    """By question the distributions and labels of the half `fit`, calibrated on the half for it, or raw."""
    halves: tuple[dict[str, list[Read]], dict[str, list[Read]]] = {}, {}
    for each in (record for record in records if how in record["read"]):
        for title, scores, right in zip(each["questions"], each["read"][how], each["right"], strict=True):
            halves[each["fit"]].setdefault(title, []).append((np.array(scores), right))
    enough = not raw and min(map(len, halves[True].values())) >= LEAST_ROWS
    hows = decisions.fit([*halves[True].values()]) if enough else [Calibration()] * len(halves[fit])
    found = {
        title: [(by.probabilities(scores), right) for scores, right in read]
        for by, (title, read) in zip(hows, halves[fit].items(), strict=True)
    }
    return found | {POOLED: [*chain(*(found[title] for title in TITLES))]}


def tables(records: Records, about: About) -> list[Table]:
    known, own = (_told(records, DEVICE, fit, raw=True) for fit in (True, False))
    most = {title: np.bincount([right for _, right in read]).argmax() for title, read in known.items()}
    same = {title: [float(right == most[title]) for _, right in read] for title, read in own.items()}
    same[POOLED] = [*chain(*(same[title] for title in TITLES))]
    hows = dict.fromkeys(chain(*(each["read"] for each in records)))
    calibrated = {f"{how}, calibrated": _told(records, how) for how in (DEVICE, SERVER) if how in hows}
    rows = list[Row]()
    for how, told in ({how: _told(records, how, raw=True) for how in hows} | calibrated).items():
        for title, read in told.items():
            alike = [a.argmax() == b.argmax() for (a, _), (b, _) in zip(read, own[title], strict=True)]
            row: Row = {"question": title, "read by": how, **figures(read)}
            row |= {"always the same": float(np.mean(same[title])), "device's option": float(np.mean(alike))}
            rows.append(row | {"less always": difference(right_of(read), same[title], shares=True)})
    rows.sort(key=lambda row: [*TITLES, POOLED, "MMLU"].index(str(row["question"])))
    found = [Table.of("readers", f"Texts sorted by real models: {records[0]['edge']}", rows, NOTE)]
    return found + ([_cascade(records)] if SERVER in hows else [])


def _cascade(records: Records) -> Table:
    """The device that asks the server about messages below a threshold, which the other half has set."""
    halves = (DEVICE, True), (DEVICE, False), (SERVER, False)
    fitted, mine, theirs = (_told(records, *each)[POOLED] for each in halves)
    texts = [each["text"] for each in records if not each["fit"] and len(each["right"]) > 1]
    rows, of = list[Row](), len(texts)
    for sent, row in cascade(fitted, mine, theirs, [*range(of)] * len(TITLES)):
        size = 0
        for at, text in enumerate(texts):
            told = {q: theirs[q * of + at][0].tolist() for q in np.flatnonzero(sent[at::of]).tolist()}
            size += len(encode_decisions(FORM.identity, text, FORM.sizes, told)) if told else 0
        rows.append(row | {"bytes back": size / of})
    return Table.of("cascade", "The device, and the server where it is not sure, about messages", rows)


NOTE = (
    "Of the half that calibrates nothing; uncalibrated, the prior is taken off. always the same: the other "
    "half's most common option; less always: paired. device's option: shares it as read."
)

EXPERIMENT = Experiment(
    "messages",
    "Decisions about messages, by real models",
    measure,
    tables,
    options=MessagesOptions,
    items=asked,
    opens=False,
)
