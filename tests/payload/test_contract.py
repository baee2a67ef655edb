"""Contracts of vocabularies of several kinds: identity, ends of an answer, and ids no anchor can have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload import AnchorSet, Contract, Shared, decode, encode
from payload.contract import END_OF_TEXT, IM_END, IM_START, SHARED_SPECIALS
from payload.errors import AnchorRangeError, ContractMismatchError

CHATML = {
    "default_system": None,
    "system": [f"{IM_START}system\n", f"{IM_END}\n"],
    "user": [f"{IM_START}user\n", f"{IM_END}\n"],
    "assistant": [f"{IM_START}assistant\n", f"{IM_END}\n"],
    "generation": f"{IM_START}assistant\n",
}
LLAMA3 = {
    "default_system": None,
    "system": ["<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"],
    "user": ["<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"],
    "assistant": ["<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"],
    "generation": "<|start_header_id|>assistant<|end_header_id|>\n\n",
}
WORDS = [f"w{i}" for i in range(20)]


def tokenizer(low: list[str], high: list[str]) -> dict[str, Any]:
    """A parsed tokenizer.json: special tokens before and behind the ordinary ones."""
    names = [*low, *WORDS, *high]
    ids = {name: index for index, name in enumerate(names)}
    added = [{"content": name, "id": ids[name], "special": True} for name in (*low, *high)]
    vocab = {name: index for name, index in ids.items() if name not in high}
    return {"model": {"vocab": vocab, "merges": ["a b", ["c", "d"]]}, "added_tokens": added}


def test_a_contract_of_the_qwen2_kind() -> None:
    found = Contract.of(tokenizer([], [*SHARED_SPECIALS, "<tool>"]), CHATML)
    assert found.ends is None
    assert found.special == {END_OF_TEXT: 20, IM_START: 21, IM_END: 22}
    assert found.to_json().keys() == {"vocab_size", "vocab_hash", "special", "template_hash", "contents"}
    assert found.reserved == frozenset()
    assert Contract.of(tokenizer([], [*SHARED_SPECIALS, "<tool>"]), CHATML, (IM_END,)) == found


def test_the_identity_of_a_contract_with_named_ends() -> None:
    """The Kotlin library is tested on the same value."""
    named = Contract(24, "a" * 64, {END_OF_TEXT: 0, IM_END: 2}, "0" * 64, (IM_END,))
    assert named.identity == "2bcfb4ded6e4f9ef39ba3d76bf7c6ae133663dd6bb261e8e9029bb072cf649c5"
    assert Contract.from_json(named.to_json()) == named


@pytest.mark.parametrize("contents", ["raw", None])
def test_another_rule_for_contents_is_refused(contents: str | None) -> None:
    data = Contract.of(tokenizer([], [*SHARED_SPECIALS]), CHATML).to_json()
    with pytest.raises(ContractMismatchError):
        Contract.from_json(data | {"contents": contents})


def test_special_tokens_below_the_ordinary_ones() -> None:
    """SmolLM2's form: the names are Qwen's, the ids are not."""
    found = Contract.of(tokenizer([*SHARED_SPECIALS, "<repo_name>"], []), CHATML, (IM_END,))
    assert found.vocab_size == 24
    assert found.reserved == {0, 1, 2, 3}
    assert found.eos_ids == {2}
    assert not any(map(found.is_ordinary, (-1, 0, 3, 24)))
    assert all(map(found.is_ordinary, (4, 23)))


def test_markers_of_another_name() -> None:
    high = ["<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|reserved_0|>"]
    found = Contract.of(tokenizer([], high), LLAMA3, ("<|end_of_text|>",))
    assert found.ends == ("<|eot_id|>", "<|end_of_text|>")
    assert found.eos_ids == {20, 23}
    assert "<|reserved_0|>" not in found.special, (
        "neither written, nor an end, nor below the vocabulary's end"
    )
    assert found.vocab_size == 20
    assert Contract.from_json(found.to_json()) == found
    assert Contract.of(tokenizer([], high), LLAMA3).identity != found.identity


@pytest.mark.parametrize(
    ("template", "ends"),
    [(LLAMA3, ()), (CHATML, ("</s>",)), ({}, ())],
    ids=["none", "unknown", "bare"],
)
def test_a_tokenizer_without_the_end_of_an_answer(template: dict[str, Any], ends: tuple[str, ...]) -> None:
    with pytest.raises(ContractMismatchError):
        Contract.of(tokenizer(["<s>", IM_END], []), template, ends)


def test_an_end_that_has_no_id_is_refused() -> None:
    with pytest.raises(ContractMismatchError):
        Contract(20, "0" * 64, {IM_END: 21}, "1" * 64, ("<nothing>",))


@settings(deadline=None)
@given(st.data())
def test_anchors_cross_the_wire_and_special_ids_never_do(data: st.DataObject) -> None:
    contract = Contract.of(tokenizer([*SHARED_SPECIALS, "<repo_name>"], ["<late>"]), CHATML)
    ids = data.draw(st.lists(st.integers(0, contract.vocab_size - 1), min_size=1, max_size=12))
    if contract.reserved & set(ids):
        with pytest.raises(AnchorRangeError):
            AnchorSet(tuple(range(len(ids))), tuple(ids), 32, contract)
        return
    anchors = AnchorSet(tuple(range(0, 2 * len(ids), 2)), tuple(ids), 32, contract)
    shared = Shared(contract, (1, 7, 8, 2))
    assert decode(encode(anchors, shared), shared) == anchors
