"""Forced decoding: anchors at their positions, tokens of the model in the gaps (paper section 3.2).

A plan says which tokens are known (`AnchorPlan`, or `constrained.GrammarPlan` for an answer in a grammar). A
run of known tokens takes one pass of the model, whose last row gives the token of the gap behind them; the
paper runs one pass per position.

Not responsible for the end of an answer (see `endings`), text, payload bytes or the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator, Sequence

from edge_runtime.decode.constrained import GrammarPlan
from edge_runtime.decode.endings import Ending, Stop, ending
from edge_runtime.decode.sampling import Sampler, without
from edge_runtime.decode.tokens import FillOptions as FillOptions
from edge_runtime.decode.tokens import FillStats as FillStats
from edge_runtime.decode.tokens import Source as Source
from edge_runtime.decode.tokens import Token as Token
from edge_runtime.engine.base import Engine, Logits, common_prefix, log_total
from edge_runtime.engine.shared import SharedModel
from edge_runtime.errors import ContextError, UsageError
from payload import AnchorSet


def fill(
    model: Engine | SharedModel,
    prompt_ids: Sequence[int],
    anchors: AnchorSet,
    options: FillOptions | None = None,
    stats: FillStats | None = None,
    *,
    answered: Sequence[int] = (),
) -> Generator[Token]:
    """Yields the answer's tokens in order, each as soon as it is known, without the end token.

    model:      held until the generator ends or is closed: an engine for one caller, or a model for many.
    prompt_ids: ids of the prompt in the chat template, at least one. Those that the cache already starts with
                are not run again.
    stats:      updated while decoding; adds to what it holds.
    answered:   first ids of the answer where they are known already; the stream continues after them.

    Decoding is deterministic, and greedy without `FillOptions.sampling`; an empty anchor set gives plain
    decoding. The generator may be closed at any time. Raises UsageError for an empty
    prompt, ContextError where prompt and anchors do not fit or no sentence of the grammar does, EngineError
    where the model fails.
    """
    options = options or FillOptions()
    if not prompt_ids:
        raise UsageError("expected a prompt of at least one token, found none")
    if len(prompt_ids) >= model.context:
        raise ContextError(
            f"expected a prompt of less than {model.context} tokens, found {len(prompt_ids)}. "
            "Raise --context or shorten the prompt."
        )
    plan = plan_for(anchors, model.context - len(prompt_ids), options)
    return _decoded(model, list(prompt_ids), list(answered), plan, options, stats or FillStats())


class AnchorPlan:
    """What is known of an answer before the model runs: its anchors and where it ends.

    position: of the next token. Raises ContextError where the anchors do not fit.
    """

    def __init__(self, anchors: AnchorSet, room: int, max_tokens: int | None) -> None:
        self.rule: Ending = ending(anchors, room, max_tokens)
        self.position = 0
        self._anchors = anchors.by_position
        self.eos = sorted(anchors.contract.eos_ids)

    def known(self) -> tuple[int, Source] | None:
        """The next token and its origin, where it needs no model. None also where the answer has ended."""
        if self.stop is not None or self.position not in self._anchors:
            return None
        return self._anchors[self.position], Source.ANCHOR

    @property
    def stop(self) -> Stop | None:
        """The reason why the answer ends here; None where it goes on."""
        return None if self.position < self.rule.end else self.rule.stop

    @property
    def may_end(self) -> bool:
        """Whether an end token counts here: not while anything that the cloud has committed remains."""
        return self.position >= self.rule.eos_from

    def allowed(self, logits: Logits, greedy: bool) -> Logits:
        """The logits, minus infinity for tokens that may not stand here; greedy: only where that matters."""
        if self.may_end or (greedy and int(logits.argmax()) not in self.eos):
            return logits
        return without(logits, self.eos)

    def fits(self, id_: int) -> bool:
        """Whether the answer can still end within its limit behind a token of the model."""
        return True

    def take(self, id_: int) -> None:
        """The answer goes on with a token: a known one, or one that the model wrote."""
        self.position += 1

    def offer(self, id_: int) -> bool:
        """Takes the model's token; False where the plan writes another instead, which it then knows."""
        self.take(id_)
        return True

    def count(self, run: Iterable[tuple[int, Source]], stats: FillStats) -> None:
        """Writes what has become of the anchors; here each is taken."""


Plan = AnchorPlan | GrammarPlan


def plan_for(anchors: AnchorSet, room: int, options: FillOptions) -> Plan:
    """The plan of an answer of which at most `room` tokens fit the context."""
    if options.grammar is None:
        return AnchorPlan(anchors, room, options.max_tokens)
    return GrammarPlan(options.grammar, anchors, room, options.max_tokens)


def _decoded(
    model: Engine | SharedModel,
    prompt: list[int],
    answered: list[int],
    plan: Plan,
    options: FillOptions,
    stats: FillStats,
) -> Generator[Token]:
    started, before = time.perf_counter(), stats.prefill + stats.fill
    sampler = Sampler(options.sampling)
    text = prompt + answered  # the prompt and every token of the answer so far
    for id_ in answered:
        plan.take(id_)
    try:
        with model.lease(text) as engine:
            # The last token always runs: it predicts the next one.
            reused = min(common_prefix(engine.tokens, text), len(text) - 1)
            engine.rewind(reused)
            if not stats.passes:
                stats.reused = min(reused, len(prompt))
            while True:
                run = []
                while (known := plan.known()) is not None:
                    plan.take(known[0])
                    run.append(known)
                stop = plan.stop
                plan.count(run, stats)
                ids = [*text[engine.length :], *(id_ for id_, _ in run)]
                first = len(ids) - len(run) - 1  # the row that predicts the run's first token
                scored = [source is Source.ANCHOR and options.score_anchors for _, source in run]
                rows = [first + index for index, wanted in enumerate([*scored, stop is None]) if wanted]
                predictions = _passes(engine, ids, rows, options, stats, started)
                for (id_, source), wanted in zip(run, scored, strict=True):
                    score = log_prob(next(predictions), id_) if wanted else None
                    text.append(id_)
                    yield Token(id_, len(text) - len(prompt) - 1, source, score)
                if stop is not None:
                    stats.stop = stop
                    return
                logits = next(predictions)
                token = sampler.token(plan.allowed(logits, sampler.greedy))
                if token in plan.eos and plan.may_end:
                    stats.stop = Stop.EOS
                    return
                if plan.offer(token):
                    text.append(token)
                    yield Token(token, len(text) - len(prompt) - 1, Source.FILL, log_prob(logits, token))
    finally:
        stats.fill = before + time.perf_counter() - started - stats.prefill


def _passes(
    engine: Engine,
    ids: Sequence[int],
    rows: Sequence[int],
    options: FillOptions,
    stats: FillStats,
    started: float,
) -> Iterator[Logits]:
    """Runs ids and yields the float32[vocab] logits of some rows, each valid until the next.

    Lazy: tokens that need no row are yielded before the pass. Tokens after the last row are not run: their
    logits are not needed yet.
    """
    size = rows[-1] + 1 if rows else 0
    for start, stop, wanted in chunks(size, rows, options.max_chunk, options.max_rows):
        logits = engine.append(ids[start:stop], wanted)
        stats.passes += 1
        stats.computed += stop - start
        if wanted and not stats.prefill:
            stats.prefill = time.perf_counter() - started
        yield from logits


def chunks(
    size: int, rows: Sequence[int], max_chunk: int, max_rows: int
) -> Iterator[tuple[int, int, list[int]]]:
    """Splits `size` tokens into passes within both limits: (start, stop, wanted rows relative to start)."""
    start = taken = 0
    while start < size:
        stop = min(start + max_chunk, size)
        if taken + max_rows < len(rows):
            stop = min(stop, rows[taken + max_rows])
        wanted = [row - start for row in rows[taken : taken + max_rows] if row < stop]
        yield start, stop, wanted
        taken += len(wanted)
        start = stop


def log_prob(logits: Logits, id_: int) -> float:
    """Natural logarithm of a token's probability under float32[vocab] logits; raises EngineError for NaN."""
    return float(logits[id_]) - log_total(logits)


def agreement(tokens: Iterable[Token]) -> float | None:
    """Agreement of edge and cloud on an answer, 0 to 1: the geometric mean probability of the anchors.

    1 means that the edge model is certain of every anchor; None that no anchor was scored.
    """
    scores = [t.logprob for t in tokens if t.source is Source.ANCHOR and t.logprob is not None]
    return math.exp(sum(scores) / len(scores)) if scores else None
