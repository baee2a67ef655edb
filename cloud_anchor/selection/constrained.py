"""Selection for an answer in a grammar: neither what it forces is sent nor what the edge model writes itself.

Responsible for the text that the device will write within the grammar and for the tokens that it needs for
that. Not responsible for the draft (see `sampling`) or for decoding within a grammar
(`edge_runtime.decode.constrained`).

The device's own decoder finds the text: all predictions of at least the threshold are its anchors, and it
places them where the grammar allows, as it would on the device. One more pass over that text, with the logits
of what the grammar forbids left out, says which of its tokens the edge model would not write; these are sent,
at the positions that they have in the text. Where the device might end its answer otherwise with these
anchors, it is written with them once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk
from edge_runtime.decode.constrained import GrammarPlan
from edge_runtime.decode.endings import Stop
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.decode.refine import kept_by
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.grammar.matcher import CompiledGrammar
from edge_runtime.predictor import read_logits
from payload import AnchorSet, Contract

_TRIES = 4
"""So often an answer is written again that the device ends otherwise; what it writes then is its text."""


def constrained(
    engine: Engine,
    run: Denoised,
    contract: Contract,
    config: EdgeAwareConfig,
    grammar: CompiledGrammar,
    check: Callable[[], None] = lambda: None,
) -> tuple[AnchorSet, EdgeWalk]:
    """The anchors of a run for a device that holds its answer to the grammar, and the text that it writes.

    The anchors' contract names the grammar. They state no length: the grammar ends the answer. check: called
    for every token, each of which takes bounded time; what it raises ends the work. Raises GrammarRoomError
    where no sentence of the grammar fits, and what the engine raises.
    """
    draft = {
        position: id_
        for position, (id_, sure) in enumerate(zip(run.predicted_answer, run.confidence, strict=False))
        if sure >= config.threshold and contract.is_ordinary(id_)
    }
    stats, held = FillStats(), replace(contract, grammar=grammar.grammar.identity)
    options = FillOptions(grammar=grammar, score_anchors=False)

    def written(anchors: AnchorSet) -> list[Token]:
        tokens = []
        for token in fill(engine, run.prompt_ids, anchors, options, stats):
            tokens.append(token)
            check()
        return tokens

    tokens = written(AnchorSet.of(draft, run.canvas, contract))
    sent: list[int] | None = None
    for _ in range(_TRIES):
        text = [token.id for token in tokens]
        nothing = AnchorSet.empty(max(run.canvas, len(text)), held)
        if sent is None:
            sent = _needed(engine, run.prompt_ids, text, nothing, grammar, config.guard, stats, check)
        anchors = AnchorSet.of({position: text[position] for position in sent}, nothing.canvas, held)
        if _stays(tokens, anchors, grammar, engine.context - len(run.prompt_ids), stats):
            break
        tokens = written(anchors)
        taken = [index for index, token in enumerate(tokens) if token.source is Source.ANCHOR]
        same = text == [token.id for token in tokens]
        if same and taken == sent:
            break
        sent = taken if same else None
    text, placed = [token.id for token in tokens], list(anchors.positions)
    return anchors, EdgeWalk(text, placed, dict.fromkeys(placed, 0.0), stats.passes, stats.computed)


def _stays(
    tokens: Sequence[Token], anchors: AnchorSet, grammar: CompiledGrammar, room: int, stats: FillStats
) -> bool:
    """Whether a text is surely what the device writes with these anchors in place of those it was found with.

    It need not be where the answer runs out of room: which ending is known then depends on what was tried.
    """
    free = [token._replace(source=Source.FILL) for token in tokens]
    kept = kept_by(GrammarPlan(grammar, anchors, room), free, len(free))
    return stats.stop is not Stop.LIMIT and kept == len(tokens)


def _needed(
    engine: Engine,
    prompt_ids: Sequence[int],
    text: Sequence[int],
    nothing: AnchorSet,
    grammar: CompiledGrammar,
    guard: float,
    stats: FillStats,
    check: Callable[[], None],
) -> list[int]:
    """The positions of the text at which the device alone would not surely write its token."""
    room = engine.context - len(prompt_ids)
    plan = GrammarPlan(grammar, nothing, room)
    needed = []
    for position, (id_, logits) in enumerate(
        zip(text, read_logits(engine, prompt_ids, text, 0, stats), strict=False)
    ):
        check()
        known = plan.known()
        if known is not None:
            if known[0] != id_:
                needed.append(position)
        elif _margin(plan.allowed(logits, greedy=False), id_) < guard:
            needed.append(position)
        plan.take(id_)
    return needed


def _margin(logits: Logits, id_: int) -> float:
    """By how much a token's logit is above all others; negative where it is not the largest."""
    others = logits.copy()
    others[id_] = -np.inf
    return float(logits[id_] - others.max())
