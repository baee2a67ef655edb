"""Selection for an answer in a grammar: neither what it forces is sent nor what the edge model writes itself.

Responsible for the text that the device will write within the grammar and for the tokens that it needs for
that. Not responsible for the draft (see `sampling`) or for decoding within a grammar
(`edge_runtime.decode.constrained`).

The device's own decoder finds the text: all predictions of at least the threshold are its anchors, and it
places them where the grammar allows, as it would on the device. One more pass over that text, with the logits
of what the grammar forbids left out, says which of its tokens the edge model would not write; these are sent,
at the positions that they have in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk
from edge_runtime.decode.constrained import Plan
from edge_runtime.decode.endings import ending
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.grammar.matcher import CompiledGrammar
from edge_runtime.predictor import read_logits
from payload import AnchorSet, Contract


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
    stats = FillStats()
    wanted = AnchorSet.of(draft, run.canvas, contract)
    options = FillOptions(grammar=grammar, score_anchors=False)
    text = []
    for token in fill(engine, run.prompt_ids, wanted, options, stats):
        text.append(token.id)
        check()
    nothing = AnchorSet.empty(max(run.canvas, len(text)), replace(contract, grammar=grammar.grammar.identity))
    sent = _needed(engine, run.prompt_ids, text, nothing, grammar, config.guard, stats, check)
    anchors = AnchorSet.of({position: text[position] for position in sent}, nothing.canvas, nothing.contract)
    return anchors, EdgeWalk(text, sent, dict.fromkeys(sent, 0.0), stats.passes, stats.computed)


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
    plan = Plan(grammar, nothing, ending(nothing, room), room)
    needed = []
    for position, (id_, logits) in enumerate(
        zip(text, read_logits(engine, prompt_ids, text, 0, stats), strict=False)
    ):
        check()
        known = plan.known()
        if known is not None:
            if known[0] != id_:
                needed.append(position)
        elif _margin(plan.masked(logits, greedy=False), id_) < guard:
            needed.append(position)
        plan.take(id_)
    return needed


def _margin(logits: Logits, id_: int) -> float:
    """By how much a token's logit is above all others; negative where it is not the largest."""
    others = logits.copy()
    others[id_] = -np.inf
    return float(logits[id_] - others.max())
