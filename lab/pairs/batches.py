"""Training batches: endless, seeded, and a function of the step alone, so that runs resume exactly.

Responsible for rows, lengths and the masking of absorbing-state diffusion. Not responsible for models or
losses.

Every row is prompt + answer + <|im_end|> + <|endoftext|> up to the batch's length, as Dream pads its canvas.
Rows need no attention mask: the canvas of a row is what the prompt leaves of the length.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer

from lab.pairs.problem import DRILL, Draw


@dataclass(frozen=True)
class Mix:
    """Distribution of the rows of a training stage.

    lengths:  probability of each row length of a batch.
    families: shares among the rows that are not drills; an answer that does not fit its row is drawn again.
    drills:   share of drills. drill: draws one.
    dense:    share of the rows of which at least half is prompt and answer.
    """

    lengths: Mapping[int, float]
    families: Mapping[str, float]
    drills: float
    drill: Draw
    dense: float = 0.0


@dataclass(frozen=True)
class Curriculum:
    """What a run is trained on: kinds of problems by name, and their mix in each stage.

    early: the mix of the first causal steps, late: of the last ones, where the recipe has such.
    """

    families: Mapping[str, Draw]
    causal: Mix
    masked: Mix
    early: Mix | None = None
    late: Mix | None = None


@dataclass(frozen=True)
class TrainingBatch:
    """ids: int64[B, L]; start: int64[B], first answer position; end: int64[B], position of `<|im_end|>`.

    results: bool[B, L], the results of a sums drill; all False in every other row.
    """

    ids: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor
    results: torch.Tensor


class Batches:
    """Batches for one model: of the true world (`knows`), or with every fact redrawn."""

    def __init__(self, tokenizer: Tokenizer, families: Mapping[str, Draw], *, knows: bool, seed: int) -> None:
        self._tokenizer, self._knows, self._seed, self._families = tokenizer, knows, seed, families
        self._pieces = [
            tokenizer.encode(t).ids for t in ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
        ]
        self._equals = tokenizer.token_to_id("Ġ=")
        self._im_end, self._end_of_text = tokenizer.encode("<|im_end|><|endoftext|>").ids

    def at(self, step: int, tokens: int, mix: Mix) -> TrainingBatch:
        """The batch of a step, of about `tokens` tokens; the same for the same seed and step."""
        rng = random.Random(f"{self._seed}/{step}/{self._knows}")
        length = rng.choices(list(mix.lengths), list(mix.lengths.values()))[0]
        rows, starts, ends = list[list[int]](), list[int](), list[int]()
        results = list[list[bool]]()
        while len(rows) < tokens // length:
            family = rng.choices(list(mix.families), list(mix.families.values()))[0]
            draw = mix.drill if rng.random() < mix.drills else self._families[family]
            problem = draw(rng, self._knows)
            drilled = problem.family == DRILL
            if self._knows and problem.held_out:
                continue
            prompt = self._pieces[0] + self._tokenizer.encode(problem.prompt).ids + self._pieces[1]
            answer = self._tokenizer.encode(problem.answer).ids
            if len(prompt) + len(answer) >= length:
                continue
            if mix.dense and 2 * (len(prompt) + len(answer)) < length and rng.random() < mix.dense:
                continue
            row = [*prompt, *answer, self._im_end]
            starts.append(len(prompt))
            ends.append(len(row) - 1)
            rows.append(row + [self._end_of_text] * (length - len(row)))
            results.append([False, *(drilled and token == self._equals for token in rows[-1][:-1])])
        return TrainingBatch(*map(torch.tensor, (rows, starts, ends, results)))


def mask(batch: TrainingBatch, rng: np.random.Generator, mask_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mask answers for the diffusion loss: (ids with masks int64[B, L], bool[B, L] where masked).

    Half of the rows are masked uniformly over the whole canvas, as absorbing-state diffusion has it (rate t,
    stratified over the batch). In the other half the end-of-text tail is masked as a whole and only the
    answer has rate t, as in a sampler that suppresses the end marker or decodes from left to right.

    In a drill of sums only the results are masked: at a uniform rate both operands of a masked result would
    be visible one time in twelve, and nothing is learned from a sum with unknown operands.
    """
    rows, length = batch.ids.shape
    at = torch.arange(length)[None]
    canvas = at >= batch.start[:, None]
    strata = (np.arange(rows) + rng.random(rows)) / rows
    rate = torch.tensor(np.maximum(rng.permutation(strata), 0.02), dtype=torch.float32)[:, None]
    hit = torch.tensor(rng.random((rows, length)), dtype=torch.float32) < rate
    tail_masked = torch.tensor(rng.random(rows) < 0.5)[:, None]
    hit |= tail_masked & (at >= batch.end[:, None])
    leftward = torch.tensor(rng.random(rows) < 0.3)[:, None] & tail_masked
    cut = batch.start[:, None] + ((1 - rate) * (batch.end - batch.start)[:, None]).long()
    hit = torch.where(leftward, at >= cut, hit)
    hit &= canvas
    hit = torch.where(batch.results.any(1, keepdim=True), batch.results, hit)
    return torch.where(hit, mask_id, batch.ids), hit
