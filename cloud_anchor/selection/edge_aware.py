"""Anchors chosen against the edge model: only what it would not have written by itself.

Knows how to find the text that the device will write, and which of its tokens have to be sent for that.
Does not know how the draft came about (see `sampler`) or how the edge model is run (see `readers`).

A diffusion model knows more after a tenth of its steps than it has committed, and what it commits first is
what everyone knows. So the draft is its current prediction at every position. Where the prediction is
trusted it binds; where it is not, the edge model's own token stands. A token is sent only if the edge
model, given all before it, would write another one, or would write this one by so small a margin that
another processor or another precision might not.

The text depends on the edge model's choices and they on the text. It is found as a fixpoint: one pass over
the draft gives the edge model's choice everywhere; put these in at the free positions, read again from the
first change, until nothing changes (Jacobi iteration, as in Santilli et al., arXiv 2305.10427). Everything
up to the first change is final, so each pass settles at least one position more. And any pass can be the
last: a free position that still differs is then bound to what stands there, which costs a few bits and no
correctness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from cloud_anchor.errors import NothingToSendError, RequestError
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.scorer import Scorer, Span, SpanScores
from payload import AnchorSet, Contract


@dataclass(frozen=True)
class EdgeAwareConfig:
    """The dials of the selection.

    threshold:  probability from which a prediction binds; 0 binds all. Between bytes and fidelity.
    guard:      margin, as a difference of logits, under which the edge model's choice is not relied upon.
    max_passes: most passes of the edge model over an answer.

    Defaults: with all predictions binding the walk is one pass, and on the tiny pair it took no more bytes
    than a higher threshold. On 200 held-out prompts (`tiny.agreement`) a guard of 0.5 let int8 write what was
    meant on all of them; int4 did on 96% with a guard of 2 and on 99% with 4, for 1.0 token and 1.4 bytes
    more an answer, and 6 gained nothing.
    """

    threshold: float = 0.0
    guard: float = 4.0
    max_passes: int = 6

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise RequestError(f"threshold: expected 0 to 1, found {self.threshold}")
        if not 0 <= self.guard < math.inf:
            raise RequestError(f"guard: expected a finite number from 0 on, found {self.guard}")
        if self.max_passes < 1:
            raise RequestError(f"edge passes: expected at least 1, found {self.max_passes}")


@dataclass(frozen=True)
class EdgeWalk:
    """The edge model's way through an answer.

    text:   the answer as the device will write it, int [n].
    sent:   positions of the tokens it has to be told, ascending.
    gains:  by position of `sent`: c * (log c - log p), with c the diffusion model's probability of the
            token and p the edge model's: its part of the Kullback-Leibler divergence between the two, in
            nats. What the device would miss most without it; 0 where the token is the edge model's own.
    passes, tokens: passes of the edge model, and tokens it ran in them.
    """

    text: list[int]
    sent: list[int]
    gains: dict[int, float]
    passes: int
    tokens: int


def walk(
    scorer: Scorer,
    runs: Sequence[Denoised],
    contract: Contract,
    config: EdgeAwareConfig | None = None,
    only: Collection[int] | None = None,
) -> list[EdgeWalk]:
    """Walks each run's predicted answer with the edge model, as many at a time as the scorer likes.

    only: the positions that may be sent; elsewhere the edge model's own token stands, however many passes
    that takes to find out. Raises NothingToSendError for a run whose predicted answer is empty.
    """
    walkers = [_Walker(run, contract, config or EdgeAwareConfig(), only) for run in runs]
    for begin in range(0, len(walkers), scorer.together):
        active = walkers[begin : begin + scorer.together]
        while active:
            readings = scorer.score([walker.span() for walker in active])
            for walker, reading in zip(active, readings, strict=True):
                walker.take(reading)
            active = [walker for walker in active if not walker.settled]
    return [walker.result() for walker in walkers]


class _Walker:
    """One answer on its way to the fixpoint."""

    def __init__(
        self, run: Denoised, contract: Contract, config: EdgeAwareConfig, only: Collection[int] | None = None
    ) -> None:
        self.run, self.contract, self.config = run, contract, config
        self.draft = run.predicted_answer
        if not self.draft:
            raise NothingToSendError(
                f"after {run.steps} of {run.total_steps} steps expected an answer of at least one token, but "
                "the model predicts an empty one. Run more steps (--fraction, --steps)."
            )
        self.text = list(self.draft)
        size = len(self.text)
        trust = np.asarray(run.confidence[:size])
        self.free = trust < config.threshold
        self.max_passes = config.max_passes
        self.may_tell = np.ones(size, bool)
        if only is not None:
            self.may_tell[:] = False
            self.may_tell[list(only)] = True
            self.free |= ~self.may_tell
            self.max_passes = size + 1
        self.greedy = np.zeros(size, np.int64)
        self.margin = np.zeros(size, np.float32)
        self.logprob = np.zeros(size, np.float32)
        self.start = 0
        self.passes = self.tokens = 0
        self.settled = False

    def span(self) -> Span:
        return Span(self.run.prompt_ids, self.text, self.start)

    def take(self, reading: SpanScores) -> None:
        """Takes note of a pass from `start` on, and puts the edge model's tokens in at the free positions."""
        at = self.start
        self.greedy[at:], self.margin[at:] = reading.greedy, reading.margin
        self.logprob[at:] = reading.logprob
        self.passes += 1
        self.tokens += reading.tokens
        text = np.asarray(self.text)
        ordinary = self.greedy < self.contract.vocab_size
        changed = (self.free & ordinary & (self.greedy != text)).nonzero()[0]
        first = int(changed[0]) if len(changed) else len(text)
        # What stands before the first change is final. Where the edge model would write a special token
        # there, the draft binds after all: an answer has none.
        self.free[:first] &= ordinary[:first]
        self.settled = first == len(text) or self.passes >= self.max_passes
        if self.settled:
            return
        self.text = np.where(self.free & ordinary, self.greedy, text).tolist()
        self.logprob[first] = reading.best[first - at]
        self.start = first + 1
        self.settled = self.start == len(text)

    def result(self) -> EdgeWalk:
        text = np.asarray(self.text)
        # A special token, which no answer has, cannot be left to the edge model in any case.
        special = self.greedy >= self.contract.vocab_size
        told = ((self.greedy != text) | (self.margin < self.config.guard)) & (self.may_tell | special)
        sent = [int(position) for position in told.nonzero()[0]]
        return EdgeWalk(self.text, sent, {p: self._gain(p) for p in sent}, self.passes, self.tokens)

    def _gain(self, position: int) -> float:
        if self.text[position] != self.draft[position]:
            return 0.0
        chance = self.run.confidence[position]
        return chance * (math.log(max(chance, 1e-9)) - float(self.logprob[position]))


def edge_aware(run: Denoised, found: EdgeWalk, contract: Contract) -> AnchorSet:
    """The anchors of a walk, with the length of its text. There may be none: then the edge needs no help.

    Special tokens are no anchors and are left out: Dream's own orders can commit some.
    """
    sent = {p: found.text[p] for p in found.sent if found.text[p] < contract.vocab_size}
    return run.anchors(sent, contract, len(found.text))


def within_bytes(
    scorer: Scorer,
    run: Denoised,
    found: EdgeWalk,
    contract: Contract,
    config: EdgeAwareConfig,
    max_bytes: int,
    size: Callable[[AnchorSet], int],
) -> EdgeWalk:
    """The walk that sends as many of the largest gains as a payload of at most `max_bytes` can hold.

    Without a token the edge model goes on differently, so for every number of them the walk is made again:
    its text is what the device writes with that payload. size: bytes of the payload of an AnchorSet. Raises
    RequestError where even a payload without anchors is larger.
    """
    ranked = sorted(found.sent, key=lambda position: (-found.gains[position], position))
    walks: dict[int, tuple[EdgeWalk, int]] = {len(ranked): (found, size(edge_aware(run, found, contract)))}

    def with_first(count: int) -> tuple[EdgeWalk, int]:
        if count not in walks:
            (again,) = walk(scorer, [run], contract, config, set(ranked[:count]))
            walks[count] = again, size(edge_aware(run, again, contract))
        return walks[count]

    def fits(count: int) -> bool:
        return with_first(count)[1] <= max_bytes

    low, high = 0, len(ranked)
    while low < high:  # sizes grow with the count but for a few bytes, so the last steps are made one by one
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    while low < len(ranked) and fits(low + 1):
        low += 1
    while low and not fits(low):
        low -= 1
    chosen, least = with_first(low)
    if least > max_bytes:
        raise RequestError(
            f"max bytes: expected at least {least}, the size of a payload without anchors, "
            f"found {max_bytes}. Allow more, or leave the prompt out (--no-embed-prompt)."
        )
    return chosen
