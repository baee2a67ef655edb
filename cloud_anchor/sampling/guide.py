"""Guide: the edge model's probabilities at every position of a draft, as commit rules use them.

Responsible for the interface of a model that scores texts, and for the product of its probabilities with the
diffusion model's. Not responsible for running it (see `selection.scorer`) or for what commits (see
`commits`).

A guided step costs one more pass, of the edge model over the draft: the diffusion model's most probable words
at all open positions, teacher-forced. It gives log p_AR(token | draft before it) at every position at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloud_anchor.errors import RequestError

CANDIDATES = 16
"""The diffusion model's most probable words at a position that a product is computed for, beside its end
markers. What the others could weigh at most is counted in (see `multiply`).
"""

FLOOR = -100.0
"""Lower bound of the guide's log-probabilities, in nats."""


@dataclass(frozen=True)
class Span:
    """Token ids of a text behind a prompt; scored from position `start` (0-based in the text) to its end.

    candidates: int64 [n, K], further ids at each of the n scored positions; None for none.
    """

    prompt: Sequence[int]
    text: Sequence[int]
    start: int = 0
    candidates: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class SpanScores:
    """The edge model's predictions at the n positions of a span, each given all tokens before it.

    greedy:  int64 [n], the most probable token; never an end marker, which the device suppresses until the
             end.
    margin:  float32 [n], difference of logits between it and the second most probable token.
    logprob: float32 [n], log-probability (nats) of the text's token.
    best:    float32 [n], the same of the greedy token.
    ends:    bool [n], whether an end marker is more probable than the greedy token.
    tokens:  tokens that went through the model for these scores.
    candidates: float32 [n, K], log-probabilities (nats) of the span's candidates in the distribution with end
             markers; None where the span has none.
    """

    greedy: NDArray[np.int64]
    margin: NDArray[np.float32]
    logprob: NDArray[np.float32]
    best: NDArray[np.float32]
    ends: NDArray[np.bool_]
    tokens: int
    candidates: NDArray[np.float32] | None = None


class Guide(Protocol):
    """An autoregressive model with the diffusion model's vocabulary.

    together: number of spans that it scores in one pass. context: most tokens of a span with its prompt, None
    for no limit.
    """

    together: int
    context: int | None

    def score(self, spans: Sequence[Span]) -> list[SpanScores]:
        """The scores of each span, of one pass over it."""


@dataclass(frozen=True)
class Product:
    """The product of both models at the N masked positions of a pass.

    ids:         int64 [N], the most probable token of the product. probability: float32 [N], its share.
    words, word_probability: the same among ordinary tokens.
    ending:      float32 [N], the product's share of all end markers.
    work:        (passes, tokens) of the guide, per row.
    guidance:    per row, None where nothing was masked.
    """

    ids: Tensor
    probability: Tensor
    words: Tensor
    word_probability: Tensor
    ending: Tensor
    work: list[tuple[int, int]]
    guidance: list[Guidance | None]


@dataclass(frozen=True)
class Candidates:
    """The tokens at N masked positions that a product is computed for: K words, most probable first, then the
    E end markers.

    ids: int64 [N, K + E]. logprob: float32 [N, K + E], the diffusion model's. ends: E.
    """

    ids: Tensor
    logprob: Tensor
    ends: int

    @classmethod
    def of(cls, logits: Tensor, ends: Tensor, count: int = CANDIDATES) -> Candidates:
        """Of logits [N, V] without unusable tokens, and the ids of end markers [E]."""
        logprob = logits.float().log_softmax(-1)
        top, words = logprob.index_fill(-1, ends, -torch.inf).topk(min(count, logits.shape[-1]))
        words = torch.where(top > -torch.inf, words, ends[0])  # the guide may not have unusable ids
        ids = torch.cat([words, ends.expand(len(logits), -1)], 1)
        return cls(ids, torch.cat([top, logprob[:, ends]], 1), len(ends))


def rest(logprob: Tensor) -> Tensor:
    """log(1 - sum exp) of log-probabilities [N, K] in nats, [N]: the others' share, FLOOR at least."""
    return (1 - logprob.double().exp().sum(-1)).clamp(min=0).log().float().clamp(min=FLOOR)


def multiply(
    candidates: Candidates, guide: Tensor, guided: Tensor, diffusion_weight: float, guide_weight: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N, K + E] of the product p_D^a * p_AR^b, renormalised, for exponents a and b.

    guide: float32 [N, K + E], log p_AR of the candidates. guided: bool [N], positions it has scored; at the
    others the product is p_D. Also returns the best column of each, int64 [N].

    An end is one event for the guide: each end marker has the probability of all. Tokens outside the
    candidates enter the sum with the most they can weigh, (1 - sum p_D)^a * (1 - sum p_AR)^b: an upper bound
    for a = 1, b >= 0, and for a + b = 1 by Hoelder's inequality. So the result is never too large.
    """
    words = guide.shape[1] - candidates.ends
    own, own_rest = candidates.logprob, rest(candidates.logprob)
    absent = own == -torch.inf
    word = guide[:, :words].masked_fill(absent[:, :words], -torch.inf)
    end = guide[:, words:].logsumexp(-1, keepdim=True)
    others = rest(torch.cat([word, end], 1))
    guide = torch.cat([word, end.expand(-1, candidates.ends)], 1).clamp(min=FLOOR)
    both = diffusion_weight * own.clamp(min=FLOOR) + guide_weight * guide
    score = torch.where(guided[:, None], both, own).masked_fill(absent, -torch.inf)
    left = torch.where(guided, diffusion_weight * own_rest + guide_weight * others, own_rest)
    norm = torch.cat([score, left[:, None]], 1).logsumexp(-1, keepdim=True)
    return score - norm, score.argmax(-1)


def product_of(
    candidates: Candidates, guide: Tensor, guided: Tensor, weights: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """ids, probability, words, word_probability and ending of a Product; arguments as for `multiply`."""
    logprob, best = multiply(candidates, guide, guided, *weights)
    words = logprob.shape[1] - candidates.ends
    word, column = logprob[:, :words].max(-1)
    return (
        candidates.ids.gather(1, best[:, None])[:, 0],
        logprob.gather(1, best[:, None])[:, 0].exp(),
        candidates.ids.gather(1, column[:, None])[:, 0],
        word.exp(),
        logprob[:, words:].logsumexp(-1).exp(),
    )


@dataclass(frozen=True)
class Guidance:
    """What the last guided step of an answer leaves for its selection, which continues from it.

    text:   the draft that the guide has scored, token ids [n].
    scores: of its positions, and of the one behind it where the canvas has one.
    candidates: of every position of the canvas, [C, K + E]; of no meaning where none was masked.
    weights: exponents of p_D and p_AR.
    """

    text: Sequence[int]
    scores: SpanScores
    candidates: Candidates
    weights: tuple[float, float]

    def ids(self, start: int, stop: int) -> NDArray[np.int64]:
        """The candidates of positions start to stop, int64 [n, K + E]."""
        found: NDArray[np.int64] = self.candidates.ids[start:stop].cpu().numpy()
        return found

    def words(
        self, start: int, guide: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """The product's most probable words from position `start` on, their share of it, and the guide's
        log-probability of them (nats) without end markers; [n] for `guide` [n, K + E].
        """
        part = slice(start, start + len(guide))
        mine, ends = self.candidates, self.candidates.ends
        here = Candidates(mine.ids[part].cpu(), mine.logprob[part].cpu(), ends)
        other = torch.from_numpy(guide)
        scored = torch.ones(len(other), dtype=torch.bool)
        _, _, words, probability, _ = product_of(here, other, scored, self.weights)
        column = (here.ids == words[:, None]).int().argmax(1)
        no_end = rest(other[:, other.shape[1] - ends :])
        logprob = other.gather(1, column[:, None])[:, 0] - no_end
        return words.numpy(), probability.numpy(), logprob.numpy()


def consult(
    guide: Guide,
    prompts: Sequence[Sequence[int]],
    drafts: Sequence[Sequence[int]],
    masked: Tensor,
    candidates: Candidates,
    weights: tuple[float, float],
) -> Product:
    """The product after one pass of the guide over each row's draft.

    prompts, drafts: token ids per row; a draft covers a row's positions up to its likely end. masked: bool
    [B, C]; candidates: of its N positions. weights: exponents of p_D and p_AR. The position behind a draft is
    scored as well: an end marker may stand there. Rows without masked positions cost nothing.
    """
    size, device = masked.shape[1], masked.device
    spread = torch.zeros(*masked.shape, candidates.ids.shape[1], dtype=torch.long, device=device)
    spread[masked] = candidates.ids
    wanted = spread.cpu().numpy()
    filler = int(candidates.ids[0, -1]) if len(candidates.ids) else 0  # the last token predicts nothing
    rows = [row for row, open_ in enumerate(masked.any(1).tolist()) if open_]
    spans = []
    for row in rows:
        text = [*drafts[row], filler][:size]
        spans.append(Span(prompts[row], text, 0, wanted[row, : len(text)]))
    logprob = torch.zeros(spread.shape, dtype=torch.float32, device=device)
    logprob[masked] = candidates.logprob
    found = torch.zeros(spread.shape, dtype=torch.float32, device=device)
    scored = torch.zeros_like(masked)
    work = [(0, 0)] * len(prompts)
    guidance: list[Guidance | None] = [None] * len(prompts)
    for begin in range(0, len(rows), guide.together):
        part = slice(begin, begin + guide.together)
        for row, scores in zip(rows[part], guide.score(spans[part]), strict=True):
            if scores.candidates is None:
                raise RequestError("guide: expected log-probabilities of the candidates, found none")
            length = len(scores.candidates)
            found[row, :length] = torch.from_numpy(scores.candidates).to(device)
            scored[row, :length] = True
            work[row] = (1, scores.tokens)
            mine = Candidates(spread[row], logprob[row], candidates.ends)
            guidance[row] = Guidance(drafts[row], scores, mine, weights)
    return Product(*product_of(candidates, found[masked], scored[masked], weights), work, guidance)
