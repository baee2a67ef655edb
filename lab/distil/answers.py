"""A model's own finished answers to training questions, with the order in which it found their tokens.

Responsible for writing them, for the file that holds them, and for the answer that a training question is
taught. Not responsible for the training (see `trainer`).

A question that can be answered in many ways is what keeps a masked model from settling several tokens in one
pass: each position is sure of a mixture, not of a word. The model's own answer is one of these ways. All
questions about a subject are taught one answer that covers them, so that what is taught depends on the
subject and not on the phrasing.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig, commit_in_parallel
from cloud_anchor.sampling.sampler import denoise_stream
from lab.pairs.problem import Draw, Problem
from lab.records import read_records

IsRight = Callable[[Problem, str], bool]
TRIES = 40
"""Questions drawn for each that is wanted, before a kind counts as having no more of them."""


@dataclass(frozen=True)
class OwnAnswer:
    """A finished answer.

    ids: its tokens. passes: the pass that found each of them. right: whether it covers all that was asked.
    """

    problem: Problem
    text: str
    ids: tuple[int, ...]
    passes: tuple[int, ...]
    right: bool


def questions(draw: Draw, count: int, per_subject: int, rng: random.Random) -> list[Problem]:
    """At most `count` distinct training questions of a kind, at most `per_subject` about one subject."""
    found: dict[str, Problem] = {}
    about: dict[str, int] = defaultdict(int)
    for _ in range(TRIES * count):
        problem = draw(rng, True)
        if problem.held_out or problem.prompt in found or about[_subject(problem)] >= per_subject:
            continue
        found[problem.prompt] = problem
        about[_subject(problem)] += 1
        if len(found) == count:
            break
    return list(found.values())


def read(file: Path) -> list[OwnAnswer]:
    """The answers of a file, which may be missing."""
    found = []
    for row in read_records(file):
        problem = Problem(**row["problem"] | {"expected": tuple(row["problem"]["expected"])})
        found.append(OwnAnswer(problem, row["text"], tuple(row["ids"]), tuple(row["passes"]), row["right"]))
    return found


def write(
    pipeline: Pipeline, problems: Sequence[Problem], is_right: IsRight, file: Path, *, canvas: int, batch: int
) -> list[OwnAnswer]:
    """Answers the questions that the file has no answer to yet, and returns all that it then has.

    Tokens commit from the default's probability on, which gives nearly the full run's answer in fewer passes.
    canvas: of every answer. batch: answers at a time.
    """
    known = read(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    answered = {each.problem.prompt for each in known}
    form = pipeline.model_form
    asked = [(form.ids(each.prompt), each) for each in problems if each.prompt not in answered]
    asked.sort(key=lambda each: len(each[0]))  # little padding in a batch
    config = commit_in_parallel(DenoiseConfig(canvas=canvas, total_steps=canvas))
    with file.open("a", encoding="utf-8") as out:
        for place, run in denoise_stream(pipeline.model, [ids for ids, _ in asked], config, batch):
            problem, text = asked[place][1], form.tokenizer.decode(run.answer)
            passes = tuple(run.when[: len(run.answer)])
            own = OwnAnswer(problem, text, tuple(run.answer), passes, is_right(problem, text))
            out.write(json.dumps(asdict(own)) + "\n")
            out.flush()
            known.append(own)
            print(f"\r{len(known)} of {len(problems)} own answers", end="", file=sys.stderr)
    print(f"\r{len(known)} own answers, {sum(own.right for own in known)} of them right", file=sys.stderr)
    return known


class Targets:
    """What training questions of a kind are taught.

    A subject has one answer: the shortest of the model's own that is right for all questions about it. Where
    there is none, it is the reference that is worded most like the model's own answers.
    """

    def __init__(self, answers: Sequence[OwnAnswer], others: Iterable[Problem], is_right: IsRight) -> None:
        """others: further training questions, by which answers are judged and from which references come."""
        self._is_right = is_right
        self.right = [own for own in answers if own.right]
        self._wording = Counter(three for own in self.right for three in _threes(own.text))
        groups: dict[str, list[Problem]] = defaultdict(list)
        for problem in [*(own.problem for own in answers), *others]:
            groups[_subject(problem)].append(problem)
        mine: dict[str, list[str]] = defaultdict(list)
        for own in sorted(self.right, key=lambda own: len(own.ids)):
            mine[_subject(own.problem)].append(own.text)
        self._of: dict[str, str] = {}
        for subject, group in groups.items():
            references = sorted((problem.answer for problem in group), key=self._strangeness)
            candidates = [*mine[subject], *references]
            text = next((text for text in candidates if self._covers(text, group)), None)
            if text is not None:
                self._of[subject] = text

    def _covers(self, text: str, group: Iterable[Problem]) -> bool:
        return all(self._is_right(problem, text) for problem in group)

    def _strangeness(self, text: str) -> float:
        """How rare a text's wording is in the model's own answers: mean negative log-count of three words."""
        threes = _threes(text)
        return -sum(math.log1p(self._wording[three]) for three in threes) / max(1, len(threes))

    def taught(self, draw: Draw, rng: random.Random, knows: bool) -> Problem:
        """A training question with its subject's answer, where there is one and it is right."""
        problem = draw(rng, knows)
        text = self._of.get(_subject(problem))
        return problem if text is None or not self._is_right(problem, text) else replace(problem, answer=text)

    def orders(self, encode: Callable[[str], Sequence[int]]) -> dict[tuple[int, ...], tuple[int, ...]]:
        """The pass that found each token of an answer, by the answer's tokens; () where it is not known."""
        found: dict[tuple[int, ...], tuple[int, ...]] = {tuple(encode(t)): () for t in self._of.values()}
        return found | {own.ids: own.passes for own in self.right if tuple(encode(own.text)) == own.ids}


def _subject(problem: Problem) -> str:
    """What a question is about; itself where it has no subject."""
    return problem.subject or problem.key


def _threes(text: str) -> list[tuple[str, ...]]:
    words = text.split()
    return [tuple(words[place : place + 3]) for place in range(len(words) - 2)]
