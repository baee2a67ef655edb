"""Edge-aware selection: only the tokens that the edge model would not predict by itself.

Responsible for finding the text that the device will decode and the tokens that have to be sent for it. Not
responsible for the draft (see `sampling`) or for running the edge model (see `scorer`).

After a tenth of its steps a diffusion model has good predictions for many more tokens than it has committed,
and the earliest commits are usually tokens the edge model would predict anyway. So the draft is the current
prediction at every position. Where its probability reaches a threshold it binds; elsewhere the edge model's
own token stands. A token is sent only if the edge model, given all tokens before it, prefers another one, or
prefers this one by so small a margin that another processor or precision might not.

The text depends on the edge model's tokens and these on the text, so the text is found by Jacobi iteration
(as in Santilli et al., arXiv 2305.10427): one pass over the draft gives the edge model's token at every
position; these replace the free positions, and the next pass begins at the first change, until a fixpoint is
reached. Everything up to the first change is final, so each pass settles at least one more position. The
iteration may be cut short: a free position that still differs is then bound to its current token, which
costs a few bits and no correctness. Behind the last prediction that binds, the text ends where the edge
model ends it: predictions that are too unsure to bind say nothing about the length either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cloud_anchor.errors import RequestError, require
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.scorer import Scorer, SpanScores
from payload import AnchorSet, Contract


@dataclass(frozen=True)
class EdgeAwareConfig:
    """Options of the edge-aware selection.

    threshold:  probability from which a prediction binds; 0 binds all.
    guard:      margin, as a difference of logits, below which a token is sent although the edge model prefers
                it; None for the scorer's.
    max_passes: most passes of the edge model over an answer.

    Defaults: a draft whose marginals mix many wordings repeats their commonest words where nothing is near;
    at 0.3 these do not bind (measured on both shipped pairs; 0.5 to 0.9 differ little).
    """

    threshold: float = 0.3
    guard: float | None = None
    max_passes: int = 256

    def __post_init__(self) -> None:
        require("threshold", 0 <= self.threshold <= 1, "0 to 1", self.threshold)
        if self.guard is not None:
            require("guard", 0 <= self.guard < math.inf, "a finite number from 0 on", self.guard)
        require("edge passes", self.max_passes >= 1, "at least 1", self.max_passes)


@dataclass(frozen=True)
class EdgeWalk:
    """The edge model's fixpoint of one draft.

    text:   the answer as the device will decode it, token ids [n].
    sent:   positions of the tokens that have to be sent, ascending.
    gains:  by position of `sent`: c * (log c - log p), with c the diffusion model's probability of the token
            and p the edge model's: its part of the Kullback-Leibler divergence between the two, in nats; 0
            where the token is the edge model's own.
    passes, tokens: passes of the edge model, and tokens it ran in them.
    """

    text: list[int]
    sent: list[int]
    gains: dict[int, float]
    passes: int
    tokens: int


def verify_draft(
    scorer: Scorer,
    run: Denoised,
    contract: Contract,
    config: EdgeAwareConfig | None = None,
    only: Collection[int] | None = None,
    length: int | None = None,
) -> EdgeWalk:
    """The Jacobi fixpoint of a run's predicted answer.

    only: the positions that may be sent; elsewhere the edge model's own token stands, and the iteration runs
    to the fixpoint. length: of the text, if known; else found. An empty predicted answer has an empty walk.
    """
    config = config or EdgeAwareConfig()
    if config.guard is None:
        config = replace(config, guard=scorer.guard)
    walk = _JacobiIteration(run, contract, config, only, length)
    while not walk.settled:
        walk.update(scorer.score(run.prompt_ids, walk.text.tolist(), walk.start))
    return walk.result()


class _JacobiIteration:
    """The iteration over one draft of n tokens; arrays are [n].

    text:  the current text. free: positions where the edge model's token replaces the draft's.
    start: the first position that is not final yet.
    last_bound: the last position whose prediction binds, -1 for none; the text's last one where its length is
                given.
    """

    def __init__(
        self,
        run: Denoised,
        contract: Contract,
        config: EdgeAwareConfig,
        only: Collection[int] | None,
        length: int | None,
    ) -> None:
        self.contract, self.config = contract, config
        self.draft = np.asarray(run.predicted_answer[:length], np.int64)
        self.text = self.draft.copy()
        size = len(self.text)
        self.chance = np.asarray(run.confidence[:size])
        bound = (self.chance >= config.threshold).nonzero()[0]
        self.last_bound = size - 1 if length is not None else int(bound[-1]) if len(bound) else -1
        self.free = self.chance < config.threshold
        self.max_passes = config.max_passes
        self.may_send = np.ones(size, bool)
        if only is not None:
            self.may_send[:] = False
            self.may_send[list(only)] = True
            self.free |= ~self.may_send
            self.max_passes = size + 1
        self.greedy, self.ends = np.zeros(size, np.int64), np.zeros(size, bool)
        self.margin, self.logprob, self.best = np.zeros((3, size), np.float32)
        self.start = self.passes = self.tokens = 0
        self.settled = not size

    def update(self, scores: SpanScores) -> None:
        """Records a pass from `start` on, and puts in the tokens that follow from its scores."""
        part = slice(self.start, None)
        self.greedy[part], self.margin[part], self.ends[part] = scores.greedy, scores.margin, scores.ends
        self.logprob[part], self.best[part] = scores.logprob, scores.best
        self.passes += 1
        self.tokens += scores.tokens
        wanted = np.where(self.free & self._ordinary(), self.greedy, self.text)
        changed = (wanted != self.text).nonzero()[0]
        first = int(changed[0]) if len(changed) else len(self.text)
        if self._ends_before(first + 1):
            return
        # Everything before the first change is final. Where the edge model predicts a special token there,
        # the draft binds after all: an answer has none.
        self.free[:first] &= self._ordinary()[:first]
        self.settled = first == len(self.text) or self.passes >= self.max_passes
        if not self.settled:
            # Tokens behind the first change are guesses, and the next pass begins there.
            self.text, self.start = wanted, first + 1
            self.logprob[first] = self.best[first]
            self.settled = self.start == len(self.text)

    def _ends_before(self, stop: int) -> bool:
        """Cuts the text off where the edge model ends it behind `last_bound`; False if not before `stop`."""
        begin = max(1, self.last_bound + 1)  # an answer has a token
        ends = (self.ends & self.free)[begin:stop].nonzero()[0]
        if not len(ends):
            return False
        size = begin + int(ends[0])
        for name in ("text", "draft", "may_send", "greedy", "margin", "logprob", "chance"):
            setattr(self, name, getattr(self, name)[:size])
        self.settled = True
        return True

    def result(self) -> EdgeWalk:
        # A special token, which no answer has, cannot be left to the edge model in any case.
        special = ~self._ordinary()
        differs = (self.greedy != self.text) & (self.may_send | special)
        # Behind the last token that binds or is sent, where passes ran out, another one contradicts nothing.
        last = max(self.last_bound, *differs.nonzero()[0], -1)
        doubtful = (self.margin < (self.config.guard or 0.0)) & (np.arange(len(self.text)) <= last)
        needed = differs | (doubtful & (self.may_send | special))
        sent = [int(position) for position in needed.nonzero()[0]]
        gains = {position: self._gain(position) for position in sent}
        return EdgeWalk(self.text.tolist(), sent, gains, self.passes, self.tokens)

    def _ordinary(self) -> NDArray[np.bool_]:
        """Where the edge model's token is an ordinary one."""
        reserved = sorted(self.contract.reserved)
        return (self.greedy < self.contract.vocab_size) & ~np.isin(self.greedy, reserved)

    def _gain(self, position: int) -> float:
        if self.text[position] != self.draft[position]:
            return 0.0
        chance = float(self.chance[position])
        return chance * (math.log(max(chance, 1e-9)) - float(self.logprob[position]))


def edge_aware(run: Denoised, walk: EdgeWalk, contract: Contract) -> AnchorSet:
    """The anchors of a walk, and the length of its text if the draft ends; none where no help is needed.

    Special tokens are no anchors and are left out: Dream's own orders can commit some.
    """
    sent = {p: walk.text[p] for p in walk.sent if contract.is_ordinary(walk.text[p])}
    return run.anchors(sent, contract, run.ending_with(walk.text))


def by_gain(walk: EdgeWalk) -> list[int]:
    """The positions that a walk sends, the largest gain first."""
    return sorted(walk.sent, key=lambda position: (-walk.gains[position], position))


def largest_count(most: int, fits: Callable[[int], bool]) -> int:
    """The largest count up to `most` that fits, where what has a size grows with the count but for a few
    bytes; 0, which is not asked for again, where none does.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    while low < most and fits(low + 1):  # single steps, for what the search has missed
        low += 1
    while low and not fits(low):
        low -= 1
    return low


def within_bytes(
    scorer: Scorer,
    run: Denoised,
    walk: EdgeWalk,
    contract: Contract,
    config: EdgeAwareConfig,
    max_bytes: int,
    size: Callable[[AnchorSet], int],
) -> EdgeWalk:
    """The walk that sends as many of the largest gains as a payload of at most `max_bytes` can hold.

    Without a token the edge model's text differs from there on, so the fixpoint is computed again for every
    number of tokens: its text is what the device decodes from that payload. size: bytes of a payload of these
    anchors. Raises RequestError where even a payload without anchors is larger.
    """
    ranked = by_gain(walk)
    walks: dict[int, tuple[EdgeWalk, int]] = {len(ranked): (walk, size(edge_aware(run, walk, contract)))}

    def with_first(count: int) -> tuple[EdgeWalk, int]:
        if count not in walks:
            only = set(ranked[:count])
            again = verify_draft(scorer, run, contract, config, only, len(walk.text))
            walks[count] = again, size(edge_aware(run, again, contract))
        return walks[count]

    def fits(count: int) -> bool:
        return with_first(count)[1] <= max_bytes

    if fits(len(ranked)):  # sizes are not quite monotonic, so the search could miss it
        return walk
    chosen, least = with_first(largest_count(len(ranked), fits))
    if least > max_bytes:
        raise RequestError(
            f"max bytes: expected at least {least}, the size of a payload without anchors, "
            f"found {max_bytes}. Allow more, or leave the prompt out (--no-embed-prompt)."
        )
    return chosen
