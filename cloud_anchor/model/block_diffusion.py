"""Block diffusion: models that write an answer block by block, with an exact cache of what is finished.

Responsible for Fast-dLLM v2 (arXiv 2509.26328) and SDAR (arXiv 2510.06303): attention that is causal from
block to block and full within one, the keys and values of finished blocks, and the published samplers' choice
of positions. Not responsible for weights (see `checkpoint`) or for what is sent (see `selection`).

Blocks are counted from the prompt's first token. A finished block attends to nothing behind it, so its keys
and values never change: they are computed once, in the pass that opens the next block. Only the open block
has predictions, so a draft breaks off at its end until the answer has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from cloud_anchor.model.stock import StockModel
from cloud_anchor.sampling.commits import above, best
from cloud_anchor.sampling.config import CONFIDENCE, DenoiseConfig
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.filters import draw, filtered_probabilities
from cloud_anchor.sampling.protocol import require_options, require_room
from cloud_anchor.sampling.rows import RowAnswers

Layers = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of each layer, [heads, positions, head size]."""


class Prediction(NamedTuple):
    """The most probable token of a position that is open, and its probability."""

    token: int
    probability: float


@dataclass(frozen=True)
class BlockRow:
    """One answer.

    prompt: number of its tokens. tokens: prompt and answer, filled up to a whole block with masks.
    when, sure: of each token, as in Denoised; 0 for the prompt and for masks. steps: passes run.
    kept:   positions, whole blocks, whose keys and values are in `cache`.
    predictions: by position, of the last pass, where nothing is committed.
    """

    prompt: int
    tokens: tuple[int, ...]
    when: tuple[int, ...]
    sure: tuple[float, ...]
    generator: torch.Generator
    steps: int = 0
    kept: int = 0
    cache: Layers = ()
    predictions: Mapping[int, Prediction] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """What the next pass of a row runs: positions `row.kept` to `end`, those before `start` for the cache.

    wanted: the masked positions that may commit first; others: those of the open block behind them.
    """

    row: BlockRow
    start: int
    end: int
    wanted: list[int]
    others: list[int]


class BlockModel(StockModel):
    """A model with attention that is causal from block to block."""

    @property
    def block(self) -> int:
        """Positions of a block."""
        assert self.family.causal_block is not None
        return self.family.causal_block

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> BlockAnswers:
        """The answers before the first step.

        Raises RequestError for options of samplers that see the whole canvas.
        """
        require_room(self, prompts, config.canvas)
        require_options(
            config,
            self.family.name,
            order=(CONFIDENCE,),
            stop=(None, "complete"),
        )
        return BlockAnswers(self, config, [self._row(prompt, config) for prompt in prompts])

    def _row(self, prompt: Sequence[int], config: DenoiseConfig) -> BlockRow:
        length = -(-(len(prompt) + config.canvas) // self.block) * self.block
        return BlockRow(
            len(prompt),
            (*prompt, *[self.mask_id] * (length - len(prompt))),
            (0,) * length,
            (0.0,) * length,
            torch.Generator(self.device).manual_seed(config.seed),
        )

    def plan_pass(self, row: BlockRow) -> Pass:
        """The row's next pass.

        Where a position is predicted at the one before it, the first token of a block is that of the pass
        over the block before, finished, as published.
        """
        front = row.tokens.index(self.mask_id)
        start = front - front % self.block
        if self.family.shifted and front == start:
            return Pass(row, start, start, [front], [])
        size = self.family.sub_block or self.block
        end, behind = start + self.block, front - front % size + size
        open_ = [at for at in range(front, end) if row.tokens[at] == self.mask_id]
        return Pass(
            row, start, end, [at for at in open_ if at < behind], [at for at in open_ if at >= behind]
        )

    @torch.no_grad()
    def run(self, passes: Sequence[Pass]) -> tuple[Tensor, list[Layers]]:
        """Logits [N, V] of the N wanted and other positions, row after row, and each row's cache after it."""
        from transformers import DynamicCache

        rows = [each.row for each in passes]
        before, fed = max(row.kept for row in rows), max(each.end - each.row.kept for each in passes)
        kept = torch.tensor([row.kept for row in rows], device=self.device)[:, None]
        ends = torch.tensor([each.end for each in passes], device=self.device)[:, None]
        place = torch.arange(fed, device=self.device) + kept
        # Caches are padded on the left, tokens on the right.
        keys = torch.cat([torch.arange(-before, 0, device=self.device) + kept, place], 1)
        seen = ((keys >= 0) & (keys < ends))[:, None] & (
            keys[:, None] // self.block <= place[:, :, None] // self.block
        )
        weight = self.net.model.embed_tokens.weight
        mask = torch.zeros(seen.shape, dtype=weight.dtype, device=self.device)
        mask.masked_fill_(~seen, torch.finfo(weight.dtype).min)
        tokens = [
            [*each.row.tokens[each.row.kept : each.end], *[self.mask_id] * (fed - each.end + each.row.kept)]
            for each in passes
        ]
        cache = DynamicCache()
        for layer, parts in enumerate(zip(*[row.cache for row in rows], strict=True)):
            padded = [
                [pad(each, (0, 0, before - each.shape[1], 0)) for each in part]
                for part in zip(*parts, strict=True)
            ]
            cache.update(torch.stack(padded[0]), torch.stack(padded[1]), layer)
        states: Tensor = self.net.model(
            input_ids=torch.tensor(tokens, device=self.device),
            attention_mask={"full_attention": mask[:, None]},
            position_ids=place,
            past_key_values=cache,
            is_causal=False,
            use_cache=True,
        ).last_hidden_state
        shift = 1 if self.family.shifted else 0
        at = [
            (index, position - shift - each.row.kept)
            for index, each in enumerate(passes)
            for position in each.wanted + each.others
        ]
        index, position = torch.tensor(at, device=self.device).T
        logits: Tensor = self.net.lm_head(states[index, position])
        caches = [
            _extended(each.row.cache, cache, index, before, each.start - each.row.kept)
            for index, each in enumerate(passes)
        ]
        return logits, caches


def _extended(old: Layers, cache: Any, index: int, before: int, count: int) -> Layers:
    """A row's cache with the first `count` positions of a pass, which are behind `before` in the batch's."""
    if not count:
        return old
    new = [
        [part[index, :, before : before + count] for part in (layer.keys, layer.values)]
        for layer in cache.layers
    ]
    if not old:
        return tuple((keys.clone(), values.clone()) for keys, values in new)
    return tuple(
        (torch.cat([a, keys], 1), torch.cat([b, values], 1))
        for (a, b), (keys, values) in zip(old, new, strict=True)
    )


@dataclass
class BlockAnswers(RowAnswers[BlockRow]):
    """The answers of a `BlockModel`."""

    model: BlockModel

    def advance(self) -> None:
        """One pass of every row; those without a cache, whose prompts are run, are a batch of their own."""
        after: dict[int, BlockRow] = {}
        for prompts in (True, False):
            group = [at for at, row in enumerate(self.rows) if (row.kept == 0) is prompts]
            if group:
                passes = [self.model.plan_pass(self.rows[at]) for at in group]
                after |= zip(group, self._advanced(passes), strict=True)
        self.rows = [after[at] for at in range(len(self.rows))]

    def _advanced(self, passes: Sequence[Pass]) -> list[BlockRow]:
        """The rows after their passes, which are one batch."""
        logits, caches = self.model.run(passes)
        counts = [len(each.wanted) + len(each.others) for each in passes]
        usable = self.model.without_unusable(logits).float()
        best, norm = usable.max(-1), logits.float().logsumexp(-1)
        likeliest, chance, ids = best.indices, (best.values - norm).exp(), best.indices
        if self.config.temperature > 0:
            config = self.config
            shares = filtered_probabilities(usable, config.temperature, config.top_p)
            ids = draw(shares, counts, [each.row.generator for each in passes])
        sure = (usable.gather(-1, ids[:, None])[:, 0] - norm).exp()
        predicted = [Prediction(*each) for each in zip(likeliest.tolist(), chance.tolist(), strict=True)]
        ends = list(accumulate(counts))
        parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
        return [
            self._committed(each, ids[part], sure[part], predicted[part], cache)
            for each, part, cache in zip(passes, parts, caches, strict=True)
        ]

    def _committed(
        self, run: Pass, ids: Tensor, sure: Tensor, predicted: Sequence[Prediction], cache: Layers
    ) -> BlockRow:
        """The row with its commits; all values are of the positions wanted and others."""
        row, mask_id, wanted = run.row, self.model.mask_id, len(run.wanted)
        allowed = torch.ones(1, wanted, dtype=torch.bool, device=sure.device)
        quota = torch.tensor([self._quota(row)], device=sure.device)
        chosen = best(sure[None, :wanted], allowed, quota)
        if not isinstance(self.config.commit, str):
            chosen = chosen | above(sure[None, :wanted], allowed, self.config.commit)
        tokens, when, sures = list(row.tokens), list(row.when), list(row.sure)
        for index in chosen[0].nonzero()[:, 0].tolist():
            at = run.wanted[index]
            tokens[at], when[at], sures[at] = int(ids[index]), row.steps + 1, float(sure[index])
        places = zip(run.wanted + run.others, predicted, strict=True)
        return replace(
            row,
            tokens=tuple(tokens),
            when=tuple(when),
            sure=tuple(sures),
            steps=row.steps + 1,
            kept=run.start,
            cache=cache,
            predictions={at: each for at, each in places if tokens[at] == mask_id},
        )

    def _quota(self, row: BlockRow) -> int:
        """Fewest tokens to commit now, so that the planned steps suffice.

        A pass that finishes a block where positions are predicted at the one before commits one in any case.
        """
        masked = [at for at, token in enumerate(row.tokens) if token == self.model.mask_id]
        firsts = sum(at % self.model.block == 0 for at in masked) if self.model.family.shifted else 0
        left = max(1, self.config.total_steps - row.steps - firsts)
        return max(1, -(-(len(masked) - firsts) // left))

    def stopped(self, row: BlockRow) -> str | None:
        answer = row.tokens[row.prompt : row.prompt + self.config.canvas]
        open_ = answer.index(self.model.mask_id) if self.model.mask_id in answer else None
        if open_ is None:
            return "finished"
        return "complete" if any(token in self.model.eos_ids for token in answer[:open_]) else None

    def result(self, row: BlockRow, reason: str) -> Denoised:
        model, canvas = self.model, self.config.canvas
        answer = slice(row.prompt, row.prompt + canvas)
        ids, when, sure = list(row.tokens[answer]), list(row.when[answer]), list(row.sure[answer])
        draft, chances, ends = list[int](), list[float](), True
        for at, token in enumerate(ids):
            known = Prediction(token, 1.0) if when[at] else row.predictions.get(row.prompt + at)
            if known is None:
                ends = False
                break
            if known.token in model.eos_ids:
                break
            draft.append(known.token)
            chances.append(known.probability)
            sure[at] = sure[at] if when[at] else known.probability
        return Denoised.of_draft(
            row.tokens[: row.prompt],
            draft,
            chances,
            ids=ids,
            when=when,
            certainty=sure,
            steps=row.steps,
            total_steps=self.config.total_steps,
            mask_id=model.mask_id,
            eos_ids=model.eos_ids,
            stopped_by=reason,
            draft_ends=ends,
        )
