"""Forced decoding with a grammar: the answer is a sentence of it, whatever the anchors are."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_runtime.decode.constrained import GrammarPlan
from edge_runtime.decode.endings import Stop
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.decode.refine import AnchorFeed, Retract, fill_refined
from edge_runtime.decode.sampling import Sampling
from edge_runtime.errors import GrammarRoomError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from payload import AnchorSet
from tests.bytewise import CONTRACT, SIZE, BytewiseTokens, hashed_model
from tests.schemas import random_schema

pytest.importorskip("llguidance")

TOKENS = BytewiseTokens()
VOCABULARY = GrammarVocabulary(TOKENS, CONTRACT)
PROMPT = [65, 66]
CANVAS = 128
FORM = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])

PROFILE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
    "required": ["name", "born"],
    "additionalProperties": False,
}


def compiled(grammar: Grammar) -> CompiledGrammar:
    return CompiledGrammar(grammar, VOCABULARY)


def anchored(text: str, at: int = 0, canvas: int = CANVAS, length: int | None = None) -> AnchorSet:
    """Anchors of the tokens of a text, from position `at` on."""
    return AnchorSet.of(dict(enumerate(TOKENS.encode_bytes(text.encode()), at)), canvas, CONTRACT, length)


def answer(
    anchors: AnchorSet,
    grammar: CompiledGrammar,
    seed: int = 0,
    stats: FillStats | None = None,
    **options: Any,
) -> tuple[list[Token], str]:
    found = list(fill(hashed_model(seed), PROMPT, anchors, FillOptions(grammar=grammar, **options), stats))
    return found, TOKENS.decode([token.id for token in found]).decode()


@st.composite
def hostile(draw: st.DrawFn, canvas: int = CANVAS) -> AnchorSet:
    """Any anchors: anywhere, of any ids, with or without a length."""
    length = draw(st.none() | st.integers(0, canvas))
    end = canvas if length is None else length
    places = (
        draw(st.dictionaries(st.integers(0, end - 1), st.integers(0, SIZE - 1), max_size=40)) if end else {}
    )
    return AnchorSet.of(places, canvas, CONTRACT, length)


@FORM
@given(st.randoms(use_true_random=False), hostile(), st.integers(0, 99), st.none() | st.integers(1, 200))
def test_every_answer_is_valid_and_ends_in_time(
    random: Random, anchors: AnchorSet, seed: int, most: int | None
) -> None:
    schema = random_schema(random)
    stats = FillStats()
    try:
        tokens, text = answer(anchors, compiled(Grammar.json_schema(schema)), seed, stats, max_tokens=most)
    except GrammarRoomError:
        assert most is not None
        assert most < 200
        return
    jsonschema.validate(json.loads(text), schema)
    assert len(tokens) <= (most or 4096)
    assert [token.position for token in tokens] == list(range(len(tokens)))
    written = [token for token in tokens if token.source is Source.ANCHOR]
    assert len(written) + (stats.dropped or 0) == len(anchors)
    assert stats.realigned == sum(anchors.by_position.get(t.position) != t.id for t in written) or written
    assert stats.forced == sum(token.source is Source.GRAMMAR for token in tokens)
    assert stats.passes <= len(tokens) - stats.forced + 1
    assert stats.stop is not None


@FORM
@given(
    st.sampled_from(["[a-z]*foo", "(ab|c)+d?", "[0-9]{4}-[0-9]{2}", ".*x.*y"]), hostile(), st.integers(3, 90)
)
def test_every_answer_matches_its_regular_expression(pattern: str, anchors: AnchorSet, most: int) -> None:
    try:
        tokens, text = answer(anchors, compiled(Grammar.regex(pattern)), max_tokens=most)
    except GrammarRoomError:
        assert most < 7
        return
    assert re.fullmatch(pattern, text)
    assert len(tokens) <= most


def test_what_the_grammar_forces_takes_one_pass_with_what_follows() -> None:
    stats = FillStats()
    tokens, text = answer(
        anchored("{}", 60), compiled(Grammar.json_schema({"const": {"a": [1, "two"]}})), stats=stats
    )
    assert text == '{"a": [1, "two"]}'
    assert {token.source for token in tokens} == {Source.GRAMMAR}
    assert (stats.passes, stats.stop, stats.dropped) == (0, Stop.GRAMMAR, 2)
    stats = FillStats()
    tokens, text = answer(anchored("", 0), compiled(Grammar.regex("forced text (a|b)")), stats=stats)
    assert text in ("forced text a", "forced text b")
    assert stats.passes == 1


def test_anchors_at_their_places_are_taken() -> None:
    wanted = '{"name": "Ada", "born": 1815}'
    stats = FillStats()
    tokens, text = answer(anchored(wanted), compiled(Grammar.json_schema(PROFILE)), stats=stats)
    assert text == wanted
    assert (stats.realigned, stats.dropped) == (0, 0)
    assert all(token.source is Source.ANCHOR for token in tokens)
    assert all(token.logprob is not None for token in tokens)


def test_a_forbidden_anchor_goes_to_the_next_place_or_is_dropped() -> None:
    grammar = compiled(Grammar.json_schema(PROFILE))
    stats = FillStats()
    _, text = answer(anchored("Ada", 2), grammar, 1, stats)  # where the key is still being written
    assert json.loads(text)["name"].startswith("Ada")
    assert (stats.realigned, stats.dropped) == (3, 0)
    stats = FillStats()
    _, text = answer(anchored("\n\n\n"), grammar, stats=stats)  # no string has a line break
    assert (stats.realigned, stats.dropped) == (0, 3)


def test_where_the_tokens_run_out_the_rest_is_the_ending() -> None:
    grammar = compiled(Grammar.json_schema(PROFILE))
    least = len(TOKENS.encode_bytes(b'{"name": "", "born": 0}'))
    for most in range(least, least + 12):
        stats = FillStats()
        tokens, text = answer(anchored("x" * 60, 10), grammar, max_tokens=most, stats=stats)
        jsonschema.validate(json.loads(text), PROFILE)
        assert len(tokens) <= most
        assert stats.stop in (Stop.LIMIT, Stop.GRAMMAR)
    with pytest.raises(GrammarRoomError, match=f"the shortest found has {least}"):
        answer(anchored(""), grammar, max_tokens=least - 1)


def test_a_canvas_too_small_for_any_sentence_is_no_limit() -> None:
    _, text = answer(AnchorSet.empty(1, CONTRACT, 0), compiled(Grammar.json_schema(PROFILE)))
    jsonschema.validate(json.loads(text), PROFILE)


@FORM
@given(st.randoms(use_true_random=False), st.lists(hostile(), min_size=1, max_size=3), st.integers(0, 40))
def test_a_refined_answer_is_that_of_the_last_payload(
    random: Random, payloads: list[AnchorSet], pause: int
) -> None:
    grammar = compiled(Grammar.json_schema(random_schema(random)))
    feed = AnchorFeed()
    text: list[int] = []
    waiting = list(payloads)
    items = fill_refined(
        hashed_model(), PROMPT, feed, CONTRACT, FillOptions(grammar=grammar, max_tokens=2 * CANVAS), timeout=0
    )
    for count, item in enumerate(items):
        if isinstance(item, Retract):
            del text[item.position :]
        else:
            text.append(item.id)
        if waiting and count % (pause + 1) == pause:
            feed.put(waiting.pop(0))
        if not waiting:
            feed.close()
    while waiting:  # the answer had ended before they came
        return
    last, _ = answer(payloads[-1], grammar, max_tokens=2 * CANVAS)
    assert text == [token.id for token in last]


def test_sampled_answers_are_valid_too() -> None:
    grammar = compiled(Grammar.json_schema(PROFILE))
    texts = {answer(anchored(""), grammar, sampling=Sampling(seed=seed))[1] for seed in range(8)}
    assert len(texts) > 1
    for text in texts:
        jsonschema.validate(json.loads(text), PROFILE)


def test_logits_are_masked_only_where_that_changes_the_token() -> None:
    plan = GrammarPlan(compiled(Grammar.regex("[ab]+")), AnchorSet.empty(CANVAS, CONTRACT), 64)
    logits = np.zeros(TOKENS.size, np.float32)
    logits[ord("b")] = 1
    assert plan.allowed(logits, greedy=True) is logits
    logits[ord("c")] = 2
    before = logits.copy()
    assert plan.allowed(logits, greedy=True).argmax() == ord("b")
    logits[ord("d") : ord("k")] = 3  # too many to be asked for one by one
    before[ord("d") : ord("k")] = 3
    assert (logits == before).all()
    assert set(np.isfinite(plan.allowed(logits, greedy=True)).nonzero()[0]) == {ord("a"), ord("b")}
    plan.take(ord("a"))
    assert set(np.isfinite(plan.allowed(logits, greedy=False)).nonzero()[0]) == {
        *(ord("a"), ord("b")),
        *CONTRACT.eos_ids,
    }


@FORM
@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_a_token_asked_for_alone_is_allowed_where_the_mask_has_its_bit(random: Random, steps: int) -> None:
    matcher = compiled(Grammar.json_schema(random_schema(random))).matcher()
    for _ in range(steps):
        alone = [id_ for id_ in range(-1, TOKENS.size + 9) if matcher.allows(id_)]
        bits = np.unpackbits(matcher.mask, bitorder="little")
        assert alone == bits.nonzero()[0].tolist()
        ordinary = [id_ for id_ in alone if CONTRACT.is_ordinary(id_)]
        if not ordinary:
            break
        assert matcher.take(random.choice(ordinary))
