"""The target's own answers: what a block drafter is trained on and measured with.

Responsible for prompts, for the target's greedy answers to them in a file that an interrupted run goes on
with, and for batches of blocks. Not responsible for losses or for the loop (see `lab.pairs.trainer`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from cloud_anchor.errors import RequestError
from common.files import read_records
from lab.drafting.block_model import BlockForm
from lab.pairs.batches import TrainingBatch
from lab.pairs.problem import Draw, Problem
from lab.pairs.testbed import library
from lab.pairs.testbed.kinds import KINDS
from lab.pairs.testbed.questions import training_families
from lab.pairs.tiny.tasks import FAMILIES

TOGETHER = 128
"""Answers written in one batch."""


def families_of(source: str) -> Mapping[str, Draw]:
    """Families of training prompts: `tiny`, `testbed`, or one kind of its questions, `testbed:KIND`.

    Raises RequestError, and SourceMissingError.
    """
    if source == "tiny":
        return FAMILIES
    world, _, kind = source.partition(":")
    if world != "testbed" or (kind and kind not in KINDS):
        raise RequestError(
            f"--data: expected tiny, testbed or testbed:KIND of {', '.join(KINDS)}, found {source!r}"
        )
    families = training_families(library.load())
    return {kind: families[kind]} if kind else families


def training_prompts(families: Mapping[str, Draw], seed: int) -> Iterator[Problem]:
    """Endless distinct training prompts, the families in turn; the same for the same seed."""
    rng = random.Random(f"drafting/{seed}")
    seen: set[str] = set()
    while True:
        for draw in families.values():
            problem = draw(rng, True)
            if not problem.held_out and problem.prompt not in seen:
                seen.add(problem.prompt)
                yield problem


@dataclass(frozen=True)
class TargetAnswer:
    """Ids of a prompt, and of the target's greedy answer with its end token where it came to one."""

    family: str
    prompt: list[int]
    answer: list[int]


@torch.inference_mode()
def write_answers(
    net: Any, prompts: Sequence[Sequence[int]], ends: Sequence[int], room: int
) -> list[list[int]]:
    """Greedy answers of at most `room` tokens, with the end token; prompts of any lengths in one batch."""
    longest = max(map(len, prompts))
    pad = ends[0]
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    shown = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = net.generate(
        ids.to(net.device),
        attention_mask=shown.to(net.device),
        max_new_tokens=room,
        do_sample=False,
        eos_token_id=list(ends),
        pad_token_id=pad,
    )
    answers = []
    for row in out[:, longest:].tolist():
        end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
        answers.append(row[:end])
    return answers


@dataclass(frozen=True)
class Target:
    """An autoregressive checkpoint in a folder, its prompt form and the ids that end an answer.

    context: most tokens of prompt and answer. form: of its drafters. config: the checkpoint's own.
    """

    folder: Path
    config: Mapping[str, Any]
    form: BlockForm
    net: Any
    ids: Callable[[str], list[int]]
    ends: Sequence[int]
    context: int

    def answers(
        self, questions: Sequence[tuple[str, str]], file: Path, settings: Mapping[str, Any]
    ) -> list[TargetAnswer]:
        """The answers to these questions, from a file of JSON lines and where it ends from the model.

        questions: family and prompt of each. settings: what the answers depend on; raises RequestError where
        the file was made with others.
        """
        records = read_records(file)
        if records and records[0] != dict(settings):
            raise RequestError(
                f"{file}: expected answers made with {dict(settings)}, found {records[0]}. Use the same "
                "options to go on, or another folder."
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = records or [dict(settings)]
        file.write_text("".join(json.dumps(record) + "\n" for record in kept), encoding="utf-8")
        begins = range(len(kept) - 1, len(questions), TOGETHER)
        for begin in track(begins, "the target's answers", console=Console(stderr=True)):
            part = questions[begin : begin + TOGETHER]
            prompts = [self.ids(prompt) for _, prompt in part]
            room = self.context - max(map(len, prompts))
            found = write_answers(self.net, prompts, self.ends, room)
            rows = [
                {"family": family, "prompt": prompt, "answer": answer}
                for (family, _), prompt, answer in zip(part, prompts, found, strict=True)
            ]
            with file.open("a", encoding="utf-8") as out:
                out.write("".join(json.dumps(row) + "\n" for row in rows))
            kept += rows
        return [TargetAnswer(**row) for row in kept[1 : len(questions) + 1]]


@dataclass(frozen=True)
class BlockBatch(TrainingBatch):
    """A batch of texts, and the places that are drafted: starts int64 [B, N], see `block_model`."""

    starts: torch.Tensor


class AnswerBlocks:
    """Batches of answers of about the same length, with `blocks` random places of each answer."""

    def __init__(self, answers: Sequence[TargetAnswer], blocks: int, seed: int) -> None:
        self._answers = sorted(answers, key=lambda item: len(item.prompt) + len(item.answer))
        self._blocks, self._seed = blocks, seed

    def at(self, step: int, tokens: int) -> BlockBatch:
        """The batch of a step, of about `tokens` tokens of text; the same for the same seed and step."""
        rng = random.Random(f"{self._seed}/{step}")
        first = rng.randrange(len(self._answers))
        size = len(self._answers[first].prompt) + len(self._answers[first].answer)
        chosen = self._answers[first : first + max(1, tokens // size)]
        longest = max(len(item.prompt) + len(item.answer) for item in chosen)
        rows, starts = [], []
        for item in chosen:
            text = [*item.prompt, *item.answer]
            rows.append(text + [0] * (longest - len(text)))
            starts.append([rng.randrange(len(item.prompt), len(text)) for _ in range(self._blocks)])
        ids = torch.tensor(rows)
        return BlockBatch(
            ids,
            torch.tensor([len(item.prompt) for item in chosen]),
            torch.tensor([len(item.prompt) + len(item.answer) - 1 for item in chosen]),
            torch.zeros(ids.shape, dtype=torch.bool),
            torch.tensor(starts),
        )
