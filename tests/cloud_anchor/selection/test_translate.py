"""Translation into another vocabulary: the text stays, spans decide, and the device writes what was meant."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.select import committed, confident
from cloud_anchor.selection.translate import OPEN, Translation, overlaps
from edge_runtime.errors import BundleSchemaError
from edge_runtime.text.chat import ChatTemplate
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.tokenizer import Tokenizer
from lab.published.published_runs import (
    DEFAULT_TOKENIZER,
    TraceTokenizer,
    final_tokens,
    read_traces,
    recorded_run,
)
from lab.runs import canvas_at
from payload import Contract
from tests.checkpoints import tokenizer_json, tokenizer_with_other_merges

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "dream7b_dev.jsonl"
TEMPLATE = ChatTemplate(None, ("", ""), ("", ""), ("", ""), "")


def form(text: str) -> PromptForm:
    return form_of(json.loads(text))


def form_of(data: dict[str, Any]) -> PromptForm:
    """The prompt form of a parsed tokenizer.json; its answers end with `<|im_end|>` or `<|endoftext|>`."""
    contract = Contract.of(data, TEMPLATE.to_json(), ["<|im_end|>", "<|endoftext|>"])
    return PromptForm(Tokenizer.from_json(json.dumps(data)), TEMPLATE, contract)


ONE, OTHER = form(json.dumps(tokenizer_json())), form(tokenizer_with_other_merges())
PAIR = Translation(ONE, OTHER)
MASK = 303
"""The diffusion model's, which has the vocabulary of `ONE`."""


def run_of(
    predicted: list[int],
    committed: list[int],
    confidence: list[float] | None = None,
    *,
    behind: int = 4,
    end: int | None = None,
    form: PromptForm = ONE,
) -> Denoised:
    """A run with this draft, the positions committed in steps 1, 2, ..., and `behind` positions after it.

    end: committed end marker at this position.
    """
    canvas = len(predicted) + behind
    ids, when = [MASK] * canvas, [0] * canvas
    for step, position in enumerate(committed, 1):
        ids[position], when[position] = predicted[position], step
    if end is not None:
        ids[end], when[end] = min(form.contract.eos_ids), len(committed) + 1
    confidence = confidence or [0.5] * len(predicted)
    return Denoised(
        prompt_ids=(1, 2),
        ids=ids,
        when=when,
        predicted=predicted + [7] * behind,
        confidence=[1.0 if p in committed else chance for p, chance in enumerate(confidence)]
        + [0.1] * behind,
        ending=[p / (4 * canvas) for p in range(canvas)],
        predicted_length=len(predicted),
        steps=len(committed) + 2,
        total_steps=64,
        mask_id=MASK,
        eos_ids=form.contract.eos_ids,
    )


def text_of(form: PromptForm, ids: list[int]) -> bytes:
    return b"".join(form.tokenizer.token_bytes(id_) for id_ in ids if form.contract.is_ordinary(id_))


TEXTS = st.text() | st.sampled_from(
    ("Where does the river end? 24 loaves", "naïve 你好 🎉\r\n\t", "<|im_end|>x<|endoftext|>", "e\u0301", "")
)
DRAFTS = st.lists(st.integers(0, 299), max_size=40) | TEXTS.map(
    lambda text: ONE.tokenizer.encode_bytes(text.encode("utf-8"))
)
"""Drafts of random tokens, whose bytes are often no UTF-8, and of texts."""


@st.composite
def runs(draw: st.DrawFn) -> Denoised:
    predicted = draw(DRAFTS)
    places = list(range(len(predicted)))
    done = draw(st.permutations(places))[: draw(st.integers(0, len(places)))] if places else []
    chances = draw(st.lists(st.floats(0.01, 1), min_size=len(places), max_size=len(places)))
    behind = draw(st.integers(0 if places else 1, 4))
    end = draw(st.none() | st.integers(len(places), len(places) + behind - 1)) if behind else None
    return run_of(predicted, done, chances, behind=behind, end=end)


@settings(deadline=None, max_examples=300)
@given(runs())
@example(run_of([228, 189, 160], [0, 2], [0.9, 0.5, 0.4]))
def test_a_token_is_what_all_tokens_under_it_are(run: Denoised) -> None:
    """Against the owner of every byte, counted one by one."""
    found = PAIR.translate(run, (9, 8, 7))
    edge = OTHER.tokenizer
    assert text_of(OTHER, found.predicted_answer) == text_of(ONE, run.predicted_answer)
    assert all(0 <= id_ < OTHER.contract.vocab_size for id_ in found.predicted_answer)
    assert not set(found.predicted_answer) & edge.special_ids
    owners = [p for p, id_ in enumerate(run.predicted_answer) for _ in ONE.tokenizer.token_bytes(id_)]
    begin = 0
    for place, id_ in enumerate(found.predicted_answer):
        end = begin + len(edge.token_bytes(id_))
        under = sorted(set(owners[begin:end]))
        done = all(run.ids[p] != MASK for p in under)
        assert (found.ids[place] == id_) == done
        assert found.ids[place] in (id_, OPEN)
        assert found.when[place] == (max(run.when[p] for p in under) if done else 0)
        assert found.confidence[place] == pytest.approx(math.prod(run.confidence[p] for p in under))
        assert found.ending[place] == run.ending[under[0]]
        begin = end
    assert found.prompt_ids == (9, 8, 7)
    assert found.canvas >= run.canvas
    assert len({len(column) for column in (found.ids, found.when, found.predicted, found.confidence)}) == 1
    assert len(found.ending) == found.canvas
    # AnchorSet refuses positions that do not ascend, and ids beyond the vocabulary.
    paper = committed(found, OTHER.contract)
    assert paper.length == (None if run.length is None else found.predicted_length)
    assert confident(found, OTHER.contract, 0.0).ids == tuple(found.predicted_answer)
    assert (found.first_end < found.canvas) == (run.first_end < run.canvas)
    assert all(a >= b for a, b in zip(found.coverage[1:], found.coverage, strict=False))


@settings(deadline=None)
@given(runs())
def test_one_vocabulary_keeps_the_ids(run: Denoised) -> None:
    """Also of a draft that its tokenizer would write in other tokens."""
    found = Translation(ONE, ONE).translate(run, ())
    assert found.predicted_answer == [id_ for id_ in run.predicted_answer if ONE.contract.is_ordinary(id_)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=12), st.data())
def test_overlaps_are_those_of_the_bytes(pieces: list[int], data: st.DataObject) -> None:
    total = sum(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(1, total - 1)))) if total > 1 else []
    bounds = [0, *cuts, total] if total else [0]
    owners = [index for index, size in enumerate(pieces) for _ in range(size)]
    expected = [sorted(set(owners[a:b])) for a, b in pairwise(bounds)]
    sizes = [b - a for a, b in pairwise(bounds)]
    assert overlaps(sizes, pieces) == expected


def ids_of(form: PromptForm, *pieces: str) -> list[int]:
    """Ids of a text in exactly these pieces."""
    ids = [form.tokenizer.encode(piece) for piece in pieces]
    assert all(len(each) == 1 for each in ids), "each piece is one token"
    return [each[0] for each in ids]


def test_a_committed_part_of_a_token_is_not_sent_without_the_rest() -> None:
    value = OTHER.tokenizer.encode("value")
    assert len(value) == 1
    ids = ids_of(ONE, *"value")
    run = run_of(ids, [0, 1, 3, 4], [1, 1, 0.25, 1, 1])
    found = PAIR.translate(run, ())
    assert found.predicted_answer == value
    assert (found.ids[0], found.confidence[0]) == (OPEN, 0.25)
    assert len(committed(found, OTHER.contract)) == 0
    whole = PAIR.translate(run_of(ids, [0, 1, 3, 4, 2]), ())
    assert committed(whole, OTHER.contract).by_position == {0: value[0]}
    assert whole.when[0] == 5, "the step of its last byte"


def test_the_parts_of_a_split_token_share_its_probability() -> None:
    tow = ONE.tokenizer.encode(" tow")
    assert len(tow) == 1
    found = PAIR.translate(run_of(tow, [], [0.3]), ())
    assert found.predicted_answer == OTHER.tokenizer.encode(" tow")
    parts = len(found.predicted_answer)
    assert parts > 1
    assert found.confidence[:parts] == [0.3] * parts


def test_anchors_behind_a_gap_keep_the_place_that_its_predictions_give_them() -> None:
    ids = ids_of(ONE, *"a value.")
    found = PAIR.translate(run_of(ids, [0, 7]), ())
    words = OTHER.tokenizer.encode("a value.")
    assert len(words) < len(ids)
    assert committed(found, OTHER.contract).by_position == {0: words[0], len(words) - 1: words[-1]}
    shorter = PAIR.translate(run_of(ids_of(ONE, *"a v."), [0, 3]), ())
    assert committed(shorter, OTHER.contract).positions[-1] == len(shorter.predicted_answer) - 1


def test_bytes_that_are_no_characters_stay() -> None:
    half = ONE.tokenizer.encode("你")[:2]
    ids = [*ONE.tokenizer.encode("a"), *half, *ONE.tokenizer.encode("b")]
    found = PAIR.translate(run_of(ids, [1]), ())
    assert text_of(OTHER, found.predicted_answer) == "a你b".encode()[:3] + b"b"
    assert len(found.predicted_answer) == 4
    assert committed(found, OTHER.contract).positions == (1,)


def test_special_tokens_inside_an_answer_have_no_place() -> None:
    start = ONE.contract.special["<|im_start|>"]
    ids = ids_of(ONE, "v", "a")
    found = PAIR.translate(run_of([ids[0], start, ids[1]], [0, 1, 2]), ())
    assert text_of(OTHER, found.predicted_answer) == b"va"
    only = PAIR.translate(run_of([start], [0], behind=0), ())
    assert (only.predicted_length, only.canvas, only.answer) == (0, 1, [OPEN])


def test_end_and_length() -> None:
    ids = ids_of(ONE, *"value")
    everything = [0, 1, 2, 3, 4]
    closed = PAIR.translate(run_of(ids, everything, end=5), ())
    assert (closed.length, closed.answer, closed.canvas) == (1, OTHER.tokenizer.encode("value"), 9)
    full = PAIR.translate(run_of(ids, everything, behind=0), ())
    assert full.length == 1
    later = PAIR.translate(run_of(ids, everything, end=7), ())
    assert (later.length, later.first_end) == (None, 3), "it may go on for two more tokens"
    mixed = PAIR.translate(run_of(ids, [1, 2, 3, 4], end=5), ())
    assert (mixed.length, mixed.original.length) == (1, 5)
    tow = ONE.tokenizer.encode(" tow") * 3
    larger = PAIR.translate(run_of(tow, [0, 1, 2], behind=1, end=3), ())
    assert larger.canvas == larger.length + 1 > 4, "the end marker behind the longer draft is kept"


def test_a_vocabulary_without_a_byte_is_refused_where_it_is_needed() -> None:
    data = tokenizer_json()
    vocab = data["model"]["vocab"]
    (gone,) = [piece for piece, id_ in vocab.items() if ONE.tokenizer.token_bytes(id_) == b"\xf1"]
    del vocab[gone]
    lacking = Translation(OTHER, replace(ONE, tokenizer=Tokenizer.from_json(json.dumps(data))))
    ids = OTHER.tokenizer.encode_bytes("a\U00040000b".encode())
    with pytest.raises(BundleSchemaError, match="0xf1"):
        lacking.translate(run_of(ids, []), ())
    plain = OTHER.tokenizer.encode_bytes(b"a river")
    assert text_of(ONE, lacking.translate(run_of(plain, []), ()).predicted_answer) == b"a river"


@cache
def qwen() -> tuple[TraceTokenizer, PromptForm]:
    file = TRACES.parent / DEFAULT_TOKENIZER
    return TraceTokenizer(file), form(gzip.decompress(file.read_bytes()).decode("utf-8"))


published = pytest.mark.skipif(
    not TRACES.exists(), reason="the published traces are not beside this repository"
)


@published
def test_every_published_run_keeps_its_text() -> None:
    tokenizer, dream = qwen()
    checked = refused = 0
    for fraction in ("0.1", "0.5"):
        for trace in read_traces(TRACES):
            try:
                run = recorded_run(trace, fraction, tokenizer)
            except RequestError:
                refused += trace.output_cut or len(tokenizer.encode(trace.output)) != trace.length
                continue
            for edge in (ONE, OTHER):
                found = Translation(dream, edge).translate(run, ())
                text = text_of(edge, found.predicted_answer)
                assert text == text_of(dream, run.predicted_answer)
                if not trace.output_cut:
                    assert text.decode("utf-8").strip() == trace.output.strip()
                sent = committed(found, edge.contract)
                assert len(text_of(edge, list(sent.ids))) <= len(text_of(dream, run.answer))
                if len(trace.anchors[fraction]) == trace.length < run.canvas:
                    assert sent.length == len(sent) == len(found.predicted_answer)
            checked += 1
    assert checked >= 160
    assert checked + refused == 180, "every other run has its whole text"


@published
def test_a_recorded_run_knows_what_the_file_tells() -> None:
    tokenizer, _ = qwen()
    traces = {trace.name: trace for trace in read_traces(TRACES)}
    whole = traces["gsm8k/222"]  # 91 of 92 tokens committed at half of the steps
    assert len(final_tokens(whole, tokenizer)) == 92
    run = recorded_run(whole, "0.5", tokenizer)
    assert (run.steps, run.length, run.predicted_length) == (64, None, 92)
    early = recorded_run(whole, "0.1", tokenizer)
    kept = whole.anchors["0.1"]
    assert [(p, id_) for p, id_ in enumerate(early.ids) if id_ != OPEN] == list(kept)
    assert [canvas_at(run, 12)[p] for p, _ in kept] == [id_ for _, id_ in kept]
    with pytest.raises(RequestError):
        recorded_run(whole, "0.9", tokenizer)
    odd = traces["humaneval/290"]  # its output is not what its anchors say
    with pytest.raises(RequestError):
        recorded_run(odd, "0.5", tokenizer)
