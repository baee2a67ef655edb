"""The anchors for an answer in a grammar: with them the device writes the cloud's text, and few of them."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.constrained import constrained
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.errors import UsageError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from payload import AnchorSet, Shared, decode, encode
from payload.errors import ChecksumError
from tests.bytewise import CONTRACT, BytewiseTokens, HashedModel
from tests.schemas import random_schema

pytest.importorskip("llguidance")

TOKENS = BytewiseTokens()
VOCABULARY = GrammarVocabulary(TOKENS, CONTRACT)
PROMPT = (65, 66)
PROFILE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
    "required": ["name", "born"],
    "additionalProperties": False,
}


def drafted(text: str, sure: float = 0.9, canvas: int = 96) -> Denoised:
    ids = TOKENS.encode_bytes(text.encode())[:canvas]
    return Denoised.of_draft(
        PROMPT,
        ids,
        [sure] * len(ids),
        ids=[-1] * canvas,
        when=[0] * canvas,
        mask_id=-1,
        steps=10,
        total_steps=96,
        eos_ids=CONTRACT.eos_ids,
    )


def written(anchors: AnchorSet, grammar: CompiledGrammar) -> tuple[list[int], FillStats]:
    stats = FillStats()
    tokens = fill(HashedModel(), PROMPT, anchors, FillOptions(grammar=grammar), stats)
    return [token.id for token in tokens], stats


def test_a_draft_in_the_grammar_is_written_and_its_literal_parts_are_not_sent() -> None:
    text = '{"name": "Ada Lovelace", "born": 1815}'
    grammar = CompiledGrammar(Grammar.json_schema(PROFILE), VOCABULARY)
    run = drafted(text)
    anchors, walk = constrained(HashedModel(), run, CONTRACT, EdgeAwareConfig(), grammar)
    assert TOKENS.decode(walk.text).decode() == text
    assert written(anchors, grammar)[0] == walk.text
    sent = TOKENS.decode(list(anchors.ids)).decode()
    assert "Ada" in sent
    assert "name" not in sent
    assert "born" not in sent
    assert len(anchors) < len(walk.text)


# Answers that run out of room, where the ending that is known depends on the anchors.
@example(Random(70), "a", 0.9)
@example(Random(151), '{"a": 1', 0.9)
@example(Random(305), "", 0.0)
@settings(max_examples=25, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.text(max_size=60),
    st.floats(0, 1),
)
def test_the_device_writes_what_the_cloud_expects(random: Random, text: str, sure: float) -> None:
    schema = random_schema(random)
    grammar = CompiledGrammar(Grammar.json_schema(schema), VOCABULARY)
    run = drafted(text or "x", sure)
    anchors, walk = constrained(HashedModel(), run, CONTRACT, EdgeAwareConfig(), grammar)
    ids, stats = written(anchors, grammar)
    assert ids == walk.text
    assert (stats.realigned, stats.dropped) == (0, 0)
    jsonschema.validate(json.loads(TOKENS.decode(ids)), schema)


def test_a_payload_names_its_grammar_and_a_device_without_it_is_told() -> None:
    grammar = CompiledGrammar(Grammar.json_schema(PROFILE), VOCABULARY)
    anchors, _ = constrained(HashedModel(), drafted("Ada"), CONTRACT, EdgeAwareConfig(), grammar)
    held = replace(CONTRACT, grammar=grammar.grammar.identity)
    assert anchors.contract == held
    assert held.tag == CONTRACT.tag
    assert held.identity != CONTRACT.identity
    assert type(held).from_json(held.to_json()) == held
    data = encode(anchors, Shared(held, PROMPT))
    assert decode(data, Shared(held, PROMPT)) == anchors
    with pytest.raises(ChecksumError, match="or for a grammar that was not given"):
        decode(data, Shared(CONTRACT, PROMPT))
    with pytest.raises(ChecksumError, match="or for another grammar"):
        decode(data, Shared(replace(CONTRACT, grammar="0" * 64), PROMPT))
    with pytest.raises(UsageError, match="which these anchors were made for, found none"):
        fill(HashedModel(), PROMPT, anchors)
    other = CompiledGrammar(Grammar.regex("a+"), VOCABULARY)
    with pytest.raises(UsageError, match="Give the schema"):
        fill(HashedModel(), PROMPT, anchors, FillOptions(grammar=other))
