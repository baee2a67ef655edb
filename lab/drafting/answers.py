"""The target's greedy answers: what a block drafter is trained on and measured with.

Responsible for training prompts, for the answers in a file that an interrupted run goes on with, and for
batches of blocks. Not responsible for the loss or the loop (see `training`).
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cloud_anchor.errors import RequestError
from lab.drafting.block_model import BlockForm
from lab.pairs.problem import Draw, Problem
from lab.pairs.testbed import library
from lab.pairs.testbed.questions import training_families
from lab.pairs.tiny.tasks import FAMILIES
from lab.records import read_records

TOGETHER = 128
"""Answers written in one batch."""


def training_prompts(source: str, count: int) -> list[str]:
    """`count` distinct training prompts of tiny, testbed or testbed:KIND, the kinds in turn.

    Raises RequestError for another source, and SourceMissingError.
    """
    world, _, kind = source.partition(":")
    if world not in ("tiny", "testbed"):
        raise RequestError(f"--data: expected tiny, testbed or testbed:KIND first, found {source}")
    draws: list[Callable[[random.Random], Problem]] = list(FAMILIES.values())
    if world == "testbed":
        families = training_families(library.load())
        draws = [partial(_knowing, families[each]) for each in ([kind] if kind else families)]
    rng, found = random.Random("drafting/0"), dict[str, None]()
    for draw in itertools.cycle(draws):
        if len(found) == count:
            break
        problem = draw(rng)
        if not problem.held_out:
            found[problem.prompt] = None
    return list(found)


def _knowing(draw: Draw, rng: random.Random) -> Problem:
    return draw(rng, True)


class TargetAnswer(NamedTuple):
    """Ids of a prompt, and of the target's greedy answer with its end token where it came to one."""

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
    """An autoregressive checkpoint, its prompt form and the ids that end an answer.

    form: of its drafters. context: most tokens of prompt and answer.
    """

    net: Any
    form: BlockForm
    ids: Callable[[str], list[int]]
    ends: Sequence[int]
    context: int

    def answers(self, prompts: Sequence[str], file: Path) -> list[TargetAnswer]:
        """The answers to these prompts, from a file of JSON lines and where it ends from the model."""
        found = [TargetAnswer(*row.values()) for row in read_records(file)]
        for begin in range(len(found), len(prompts), TOGETHER):
            asked = [self.ids(prompt) for prompt in prompts[begin : begin + TOGETHER]]
            room = self.context - max(map(len, asked))
            written = write_answers(self.net, asked, self.ends, room)
            new = [TargetAnswer(*each) for each in zip(asked, written, strict=True)]
            with file.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(each._asdict()) + "\n" for each in new)
            found += new
            print(f"\r{len(found)} of {len(prompts)} answers of the target", end="", file=sys.stderr)
        return found[: len(prompts)]

    @torch.inference_mode()
    def states(self, text: Tensor) -> Tensor:
        """Hidden states after the last layer and norm of a text, int64 [B, L]: float [B, L, H]."""
        states: Tensor = self.net.model(input_ids=text).last_hidden_state
        return states


class BlockBatch(NamedTuple):
    """Texts, int64 [B, L]; the last position of each answer, int64 [B]; the positions of the first tokens
    that are drafted, int64 [B, N].
    """

    ids: Tensor
    end: Tensor
    starts: Tensor


def block_batch(answers: Sequence[TargetAnswer], blocks: int, tokens: int, rng: random.Random) -> BlockBatch:
    """About `tokens` tokens of answers, with `blocks` random places of each.

    answers: by length, so that a batch has answers of about the same one.
    """
    first = rng.randrange(len(answers))
    size = len(answers[first].prompt) + len(answers[first].answer)
    chosen = answers[first : first + max(1, tokens // size)]
    texts = [torch.tensor([*item.prompt, *item.answer]) for item in chosen]
    starts = [
        [rng.randrange(len(item.prompt), len(text)) for _ in range(blocks)]
        for item, text in zip(chosen, texts, strict=True)
    ]
    ends = torch.tensor([len(text) - 1 for text in texts])
    return BlockBatch(pad_sequence(texts, batch_first=True), ends, torch.tensor(starts))
