"""What a grammar forces is on the canvas before the model sees it, and nothing else is changed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.literals import Literals
from cloud_anchor.sampling.sampler import denoise
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from tests.bytewise import CONTRACT, BytewiseTokens

pytest.importorskip("llguidance")

TOKENS = BytewiseTokens()
VOCABULARY = GrammarVocabulary(TOKENS, CONTRACT)
MASK = -1
PROFILE = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z][a-z]+$"}, "born": {"type": "integer"}},
    "required": ["name", "born"],
    "additionalProperties": False,
}


def compiled(grammar: Grammar) -> CompiledGrammar:
    return CompiledGrammar(grammar, VOCABULARY)


def ids(text: str) -> list[int]:
    return TOKENS.encode_bytes(text.encode())


def test_the_forced_beginning_then_the_next_run_once_the_gap_is_closed() -> None:
    literals = Literals(compiled(Grammar.json_schema(PROFILE)))
    canvas = [MASK] * 60
    opening = ids('{"name": "')
    assert list(literals.pins(canvas, MASK).values()) == opening
    canvas[: len(opening)] = opening
    name = ids("Ada")
    canvas[len(opening) + 1] = name[1]  # a gap is left before it
    assert literals.pins(canvas, MASK) == {}
    branch = literals.copy()
    canvas[len(opening) : len(opening) + 4] = [*name, *ids('"')]
    between = literals.pins(canvas, MASK)
    assert min(between) == len(opening) + 4
    assert TOKENS.decode(list(between.values())) == b', "born": '
    assert branch.pins(canvas, MASK) == between


def test_a_token_that_the_grammar_forbids_ends_it() -> None:
    literals = Literals(compiled(Grammar.regex("abc[0-9]xyz")))
    canvas = [*ids("ab"), MASK, ids("Q")[0], MASK, MASK]
    assert literals.pins(canvas, MASK) == {2: ids("c")[0]}
    assert literals.pins([*ids("abcQ"), MASK, MASK], MASK) == {}
    assert Literals(compiled(Grammar.regex("abc"))).pins([MASK] * 2, MASK) == {0: ids("a")[0], 1: ids("b")[0]}


@settings(max_examples=40)
@given(st.lists(st.sampled_from([MASK, *ids('{}",: nameborA1')]), min_size=1, max_size=40))
def test_only_masked_positions_are_pinned_and_any_canvas_is_taken(canvas: list[int]) -> None:
    found = Literals(compiled(Grammar.json_schema(PROFILE))).pins(canvas, MASK)
    assert all(canvas[place] == MASK for place in found)


def test_the_model_sees_them_in_its_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline.open("tiny")
    model, form = pipeline.masked_model, pipeline.form
    grammar = CompiledGrammar(Grammar.json_schema(PROFILE), pipeline.grammar_vocabulary)
    opening = grammar.matcher().forced()
    seen: list[torch.Tensor] = []
    logits = model.logits
    monkeypatch.setattr(
        model,
        "logits",
        lambda batch, canvas, *rest: seen.append(canvas.clone()) or logits(batch, canvas, *rest),
    )
    config = DenoiseConfig(canvas=32, total_steps=8, steps=3)
    prompts = [form.ids(text) for text in ("Describe Ada.", "Where does the river end?")]
    held = denoise(model, prompts, config, grammar=grammar)
    assert seen[0][:, : len(opening)].tolist() == [opening, opening]
    assert form.tokenizer.decode(opening) == '{"name": "'
    for run in held:
        assert run.ids[: len(opening)] == opening
        assert run.when[: len(opening)] == [1] * len(opening)
        assert run.confidence[: len(opening)] == [1.0] * len(opening)
    alone = denoise(model, prompts[:1], config, grammar=grammar)
    assert alone[0].ids == held[0].ids
    free = denoise(model, prompts, config)
    assert free == denoise(model, prompts, config, grammar=None)
    assert free[0].ids[: len(opening)] != opening
    whole = denoise(model, prompts, replace(config, steps=8, total_steps=8), grammar=grammar)
    assert all(run.finished for run in whole)
    fixed = CompiledGrammar(Grammar.json_schema({"const": json.loads("[1,2]")}), pipeline.grammar_vocabulary)
    (constant,) = denoise(model, prompts[:1], replace(config, canvas=4), grammar=fixed)
    assert form.tokenizer.decode(constant.ids).startswith("[1, ")
