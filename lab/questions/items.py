"""Items: prompts with checkable answers, from the project's own worlds or from files of public benchmarks.

Responsible for the record of an item and for turning each source's rows into items. Not responsible for
judging answers (see `judge`) or making them.

A source is named `tiny` or `testbed`, or `testbed:KIND` for one kind of its questions, or `NAME=FILE` for a
JSONL file of gsm8k, mmlu, arc or humaneval.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from common.files import read_text
from lab.pairs.problem import Problem
from lab.pairs.testbed import library
from lab.pairs.testbed.kinds import KINDS
from lab.pairs.testbed.questions import held_out_questions
from lab.pairs.tiny.tasks import held_out_problems

WORD_PROBLEMS = ("arithmetic", "sum", "gsm8k")
"""Benchmarks of word problems, on which the Pearl point is measured."""

LEVELS = {"easy": 0, "medium": 1, "hard": 2}


@dataclass(frozen=True)
class Item:
    """One prompt.

    id:         unique in a run. benchmark: the family or data set. difficulty: a label of `LEVELS`, or
                "mixed" where the source does not tell.
    kind:       how it is judged: `tiny`, `testbed`, `number`, `letter` or `code`; key: what that needs.
    steps:      of the worked solution, for word problems.
    """

    id: str
    benchmark: str
    difficulty: str
    prompt: str
    kind: str
    key: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None

    @property
    def level(self) -> int | None:
        return LEVELS.get(self.difficulty)


def load_items(sources: list[str], count: int, seed: int) -> list[Item]:
    """`count` items, the sources in turn; the first n of them are the same for any count of at least n.

    Raises RequestError where a source cannot be read or has too few rows.
    """
    streams = [_stream(source, count, seed) for source in sources]
    items: list[Item] = []
    asked: set[str] = set()
    while len(items) < count:
        stream = streams[len(items) % len(streams)]
        # Sources of one world may ask the same; files are taken as they are.
        item = next((i for i in stream if i.kind not in _WORLDS or i.prompt not in asked), None)
        if item is None:
            raise RequestError(
                f"{sources[len(items) % len(streams)]}: expected rows for {count} items over {len(sources)} "
                f"sources, found too few after {len(items)} items. Lower --prompts."
            )
        asked.add(item.prompt)
        items.append(item)
    return items


def _stream(source: str, count: int, seed: int) -> Iterator[Item]:
    world, _, kind = source.partition(":")
    if source == "tiny":
        return _of_world(source, held_out_problems(count, seed))
    if world == "testbed":
        if kind and kind not in KINDS:
            raise RequestError(f"{source}: expected a kind of {', '.join(KINDS)}, found {kind!r}")
        problems = held_out_questions(library.load(), count, seed, kinds=[kind] if kind else ())
        return _of_world(world, problems, f"only-{kind}" if kind else None)
    name, _, file = source.partition("=")
    if name not in _READERS or not file:
        raise RequestError(
            f"--data {source}: expected {', '.join(_WORLDS)}, or {', '.join(_READERS)} with =FILE.jsonl, "
            f"found {source!r}"
        )
    items = read_items(name, Path(file))
    random.Random(seed).shuffle(items)
    return iter(items)


def read_items(name: str, file: Path) -> list[Item]:
    """All items of a benchmark, from a JSONL file (.gz or not); raises RequestError."""
    items: list[Item] = []
    for number, line in enumerate(read_text(file, RequestError).split("\n"), 1):
        try:
            if line.strip():
                items.append(_READERS[name](json.loads(line), f"{name}-{len(items) + 1:04d}", str(file)))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise RequestError(
                f"{file}, line {number}: expected a row of {name}, found {type(error).__name__}: {error}"
            ) from None
    return items


_WORLDS = ("tiny", "testbed")
"""The project's own worlds."""


def _of_world(name: str, problems: list[Problem], prefix: str | None = None) -> Iterator[Item]:
    """The problems as items; prefix: of their ids, by default the family."""
    return (
        Item(
            id=f"{prefix or problem.family}-{number:04d}",
            benchmark=problem.family,
            difficulty=problem.difficulty,
            prompt=problem.prompt,
            kind=name,
            key=asdict(problem),
            steps=problem.answer.count("=") if problem.family in WORD_PROBLEMS else None,
        )
        for number, problem in enumerate(problems)
    )


def _gsm8k(row: Mapping[str, Any], id_: str, source: str) -> Item:
    worked, answer = str(row["answer"]).rsplit("####", 1)
    steps = worked.count("<<") or worked.strip().count("\n") + 1
    difficulty = "easy" if steps <= 2 else "medium" if steps <= 4 else "hard"
    key = {"number": answer.strip().replace(",", "")}
    return Item(id_, "gsm8k", difficulty, str(row["question"]), "number", key, steps)


_HARD = re.compile(
    r"college_|professional_|abstract_algebra|formal_logic|econometrics|electrical_engineering|machine_learning"
    r"|logical_fallacies|moral_scenarios|high_school_(mathematics|physics|chemistry|statistics)"
)
"""Subjects of MMLU that count as hard; the others count as easy. The paper does not state its choice."""


def _options(question: str, labels: list[str], texts: list[str]) -> str:
    lines = [f"  {label}. {text}" for label, text in zip(labels, texts, strict=True)]
    return "\n".join([question, *lines, "Answer:"])


def _mmlu(row: Mapping[str, Any], id_: str, source: str) -> Item:
    answer = row["answer"]
    letter = "ABCD"[answer] if isinstance(answer, int) else str(answer)
    if letter not in tuple("ABCD"):
        raise ValueError(f"answer {answer!r} is none of A to D")
    subject = str(row.get("subject", ""))
    prompt = _options(str(row["question"]), list("ABCD"), [str(choice) for choice in row["choices"]])
    return Item(
        id_, "mmlu", "hard" if _HARD.search(subject) else "easy", prompt, "letter", {"letter": letter}
    )


def _arc(row: Mapping[str, Any], id_: str, source: str) -> Item:
    if isinstance(row["question"], Mapping):  # the form of the published files
        question, choices = str(row["question"]["stem"]), row["question"]["choices"]
        labels, texts = [str(c["label"]) for c in choices], [str(c["text"]) for c in choices]
    else:
        question, choices = str(row["question"]), row["choices"]
        labels, texts = list(map(str, choices["label"])), list(map(str, choices["text"]))
    letter = "ABCDE"[labels.index(str(row["answerKey"]))]  # some rows label their options 1, 2, 3
    where = source.lower()
    difficulty = "hard" if "challenge" in where else "easy" if "easy" in where else "mixed"
    prompt = _options(question, list("ABCDE")[: len(labels)], texts)
    return Item(id_, "arc", difficulty, prompt, "letter", {"letter": letter})


def _humaneval(row: Mapping[str, Any], id_: str, source: str) -> Item:
    key = {name: str(row[name]) for name in ("prompt", "test", "entry_point")}
    return Item(id_, "humaneval", "mixed", str(row["prompt"]), "code", key)


_READERS: dict[str, Callable[[Mapping[str, Any], str, str], Item]] = {
    "gsm8k": _gsm8k,
    "mmlu": _mmlu,
    "arc": _arc,
    "humaneval": _humaneval,
}
