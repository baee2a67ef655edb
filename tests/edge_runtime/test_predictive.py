"""Predictive payloads on the device: decoding yields the answer, and other numerics are detected."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime import fill as fill_module
from edge_runtime.bundle.bundle import Bundle, read_manifest
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.bundle.manifest import PORTABLE_GUARD
from edge_runtime.decode.endings import Stop
from edge_runtime.decode.forced import FillOptions, fill, log_prob
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import BundleContractError, BundleFileError, ContextError, UsageError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.predictor import EnginePredictor, read_logits
from edge_runtime.runtime import EdgeRuntime, FillRequest
from links.frames.question import Question, decode_question, encode_question
from payload import AnchorSet, Codec, Shared, encode, peek
from payload.errors import FingerprintError
from payload.header import seal
from tests.edge_runtime.hash_engine import CONTRACT, HashEngine, hash_logits

PROMPT = "Where does the river end?"


@pytest.fixture(scope="module")
def edge(tiny_bundle: Path) -> EdgeRuntime:
    return EdgeRuntime.open(tiny_bundle, "int8", threads=1, prepack=False)


def some_anchors(edge: EdgeRuntime, length: int | None = 24) -> AnchorSet:
    return AnchorSet((0, 3, 4, 9, 17), (5, 40, 41, 7, 200), 32, edge.bundle.contract, length)


class Ordinary:
    """An engine whose only special tokens are those that end an answer."""

    def __init__(self, edge: EdgeRuntime) -> None:
        self._engine = edge.predictive_model.engine
        contract = edge.bundle.contract
        self._odd = [i for i in range(contract.vocab_size, self._engine.vocab) if i not in contract.eos_ids]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def lease(self, text: Sequence[int]) -> Any:
        return nullcontext(self)

    def append(self, ids: Sequence[int], logits_for: Sequence[int] = ()) -> Any:
        logits = self._engine.append(ids, logits_for).copy()
        logits[:, self._odd] = -1e9
        return logits


def payload(edge: EdgeRuntime, anchors: AnchorSet, **options: Any) -> bytes:
    predictor = edge.predictor(edge.prompt_ids(PROMPT))
    return encode(anchors, Shared(edge.bundle.contract, predictor=predictor), "predictive", **options)


@pytest.mark.parametrize("length", [24, None])
def test_a_payload_comes_back_and_its_text_is_that_of_forced_decoding(
    edge: EdgeRuntime, length: int | None
) -> None:
    anchors = some_anchors(edge, length)
    data = payload(edge, anchors)
    request = edge.read(data, PROMPT)
    assert request.anchors == anchors
    plain = list(fill(Ordinary(edge), request.prompt_ids, anchors))
    answer = edge.fill(request)
    assert (answer.prompt_ids, answer.anchors) == (request.prompt_ids, anchors)
    tokens, stats = list(answer), answer.stats
    # Behind the last anchor of an open answer nothing is read, so there any token may come.
    many = len(request.tokens)
    assert many == (18 if length is None else 24)
    assert [t[:3] for t in tokens[:many]] == [t[:3] for t in plain[:many]]
    text = [t.id for t in tokens[: many - 1]]
    for token, logits in zip(
        tokens, read_logits(edge.predictive_model, request.prompt_ids, text), strict=False
    ):
        assert token.logprob == pytest.approx(log_prob(logits, token.id), abs=1e-3)
    assert request.stats
    # Every position takes a pass to read, the end one too; none is run again to be filled.
    assert request.stats.passes == many + (length is not None)
    assert stats.passes == request.stats.passes + len(tokens) - many + (stats.stop is Stop.EOS)


def test_a_portable_payload_is_filled_with_the_portable_graph(edge: EdgeRuntime) -> None:
    anchors = some_anchors(edge)
    predictor = edge.predictor(edge.prompt_ids(PROMPT))
    data = encode(anchors, Shared(edge.bundle.contract, predictor=predictor), Codec.PORTABLE)
    request = edge.read(data, PROMPT)
    assert request == FillRequest(request.prompt_ids, anchors, portable=True)
    plain = list(fill(edge.predictive_model, request.prompt_ids, anchors))
    assert list(edge.fill(request)) == plain
    assert [t.logprob for t in plain] != [t.logprob for t in fill(edge.model, request.prompt_ids, anchors)]


def test_the_guard_is_that_of_the_least_exact_variant(edge: EdgeRuntime) -> None:
    manifest, variant = edge.bundle.manifest, edge.bundle.variant

    def guard(*names: str) -> float:
        return replace(manifest, variants=dict.fromkeys(names, variant)).guard

    assert guard("fp32", "fp16") == PORTABLE_GUARD < guard("fp32", "int8") < guard("int8", "int4")
    assert guard("int8", "int4") == guard("unheard of")


def test_options_bound_what_is_known_already(edge: EdgeRuntime) -> None:
    request = edge.read(payload(edge, some_anchors(edge)), PROMPT)
    whole = list(edge.fill(request))
    assert list(edge.fill(request, FillOptions(max_tokens=6))) == whole[:6]


def test_what_cannot_be_read(edge: EdgeRuntime) -> None:
    data = bytearray(payload(edge, some_anchors(edge)))
    with pytest.raises(UsageError):
        edge.read(bytes(data))
    data[2] ^= 1
    with pytest.raises(FingerprintError):
        edge.read(bytes(data), PROMPT)


def test_a_question_is_coded_with_the_model_behind_the_templates_opening(edge: EdgeRuntime) -> None:
    held = edge.question_context()
    assert held.predictor is not None
    opening = list(held.predictor.prompt_ids)
    assert edge.prompt_ids(PROMPT)[: len(opening)] == opening
    question = Question(7, PROMPT, room=48)
    for codec in ("predictive", "compact", "auto"):
        assert decode_question(encode_question(question, held, codec), edge.question_context()) == question
    without = edge.question_context(predictive=False)
    assert without.predictor is None
    assert decode_question(encode_question(question, without), held) == question


def test_a_question_past_the_models_context_is_coded_without_it(edge: EdgeRuntime) -> None:
    held = edge.question_context()
    long = Question(7, "q" * 2000)
    assert decode_question(encode_question(long, held), held) == long
    with pytest.raises(ContextError):
        encode_question(long, held, "predictive")
    small = EdgeRuntime.open(edge.bundle.path, "int8", threads=1, prepack=False, context=24)
    data = encode_question(Question(7, PROMPT * 2), held, "predictive")
    assert decode_question(data, held).text == PROMPT * 2
    with pytest.raises(FingerprintError):
        decode_question(data, small.question_context())


def test_a_draft_costs_one_pass(edge: EdgeRuntime) -> None:
    anchors = some_anchors(edge)
    request = edge.read(payload(edge, anchors), PROMPT)
    text = [token.id for token in request.tokens]
    predictor = edge.predictor(request.prompt_ids)
    data = encode(anchors, Shared(edge.bundle.contract, predictor=predictor), "predictive", draft=text)
    assert predictor.stats.passes == 1
    assert edge.read(data, PROMPT).anchors == anchors


@pytest.mark.parametrize("variant", ["int8", "int4"])
def test_unrounded_one_row_and_many_give_the_same_numbers(tiny_bundle: Path, variant: str) -> None:
    edge = EdgeRuntime.open(tiny_bundle, variant, threads=1, prepack=False)
    prompt, text = edge.prompt_ids(PROMPT), list(range(3, 40))
    predictor = edge.predictor(prompt)
    together = [row.copy() for row in predictor.read(text, 0)]
    assert len(together) == len(text) + 1
    apart = [next(predictor.read(text[:at], at)).copy() for at in range(len(text) + 1)]
    np.testing.assert_allclose(together, apart, atol=1e-4)
    wide = np.logaddexp.reduce(together, axis=1)
    assert (wide < 1e-9).all()  # the rest is for special tokens that no answer has
    assert (wide > -1).all()


def test_rows_are_the_engines() -> None:
    engine = HashEngine()
    predictor = EnginePredictor(engine, [1, 2, 3], CONTRACT, bytes(32))
    rows = [row.copy() for row in predictor.read([4, 5], 1)]
    for row, before in zip(rows, ([1, 2, 3, 4], [1, 2, 3, 4, 5]), strict=True):
        logits = hash_logits(before).astype(np.float64)
        chances = np.exp(logits - np.logaddexp.reduce(logits))
        np.testing.assert_allclose(np.exp(row[:-1]), chances[:12], rtol=1e-6)
        np.testing.assert_allclose(np.exp(row[-1]), chances[12] + chances[14], rtol=1e-6)
    assert (predictor.stats.passes, predictor.stats.computed) == (1, 5)
    list(read_logits(engine, [1, 2, 3], [4, 6], 2, predictor.stats))
    assert (predictor.stats.passes, predictor.stats.computed) == (2, 6)


def test_a_whole_text_is_encoded_in_passes_of_64_rows(edge: EdgeRuntime) -> None:
    text = tuple(range(20, 180))
    anchors = AnchorSet(tuple(range(160)), text, 192, edge.bundle.contract, 160)
    predictor = edge.predictor(edge.prompt_ids(PROMPT))
    data = encode(anchors, Shared(edge.bundle.contract, predictor=predictor), Codec.PREDICTIVE)
    assert predictor.stats.passes <= 3
    assert edge.read(data, PROMPT).anchors.ids == text


def test_a_payload_finds_its_bundle_and_variant(
    tiny_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = EdgeRuntime.open(tiny_bundle, "int4", threads=1, prepack=False)
    data = payload(other, some_anchors(other))
    tag = peek(data).tag
    assert read_manifest(tiny_bundle).variant_with_fingerprint(tag) == "int4"
    empty = {"EDGE_BUNDLES": str(tmp_path)}
    assert find_bundles(tag, None, empty, tiny_bundle, by_fingerprint=True) == [tiny_bundle]
    strange = next(
        f"{n:02x}"
        for n in range(256)
        if read_manifest(tiny_bundle).variant_with_fingerprint(f"{n:02x}") is None
    )
    with pytest.raises(BundleContractError):
        find_bundles(strange, None, empty, tiny_bundle, by_fingerprint=True)
    file = tmp_path / "payload.bin"
    file.write_bytes(data)
    base = [str(file), "--edge", str(tiny_bundle), "--prompt", PROMPT, "--threads", "1"]
    assert fill_module.main([*base, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["anchors"] == 5
    assert len(answer["tokens"]) == 24
    assert answer["passes"] == 25
    assert fill_module.main([*base, "--variant", "int8"]) == 3
    assert "variant" in capsys.readouterr().err


@pytest.mark.parametrize("variant", ["fp32", "int8", "int4"])
def test_the_portable_graph_is_the_variants_weights_in_float32(tiny_bundle: Path, variant: str) -> None:
    bundle = Bundle.open(tiny_bundle, variant)
    ids = list(range(9, 49))
    engines = [OrtEngine.open(bundle, threads=1, portable=exact) for exact in (True, False)]
    together, own = (engine.append(ids, range(len(ids))).copy() for engine in engines)
    exact = engines[0]
    exact.rewind(0)
    apart = np.concatenate([exact.append([token], [0]).copy() for token in ids])
    np.testing.assert_allclose(together, apart, atol=1e-4)
    assert np.abs(together - own).max() < 0.6
    assert exact.append([1, 2], []).shape == (0, exact.vocab)


def test_a_quantised_variant_without_a_portable_graph_is_told(tiny_bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "older"
    shutil.copytree(tiny_bundle, folder)
    manifest = json.loads((folder / "bundle.json").read_bytes())
    for variant in manifest["variants"].values():
        del variant["portable"]
    (folder / "bundle.json").write_text(json.dumps(manifest))
    older = EdgeRuntime.open(folder, "int8", threads=1, prepack=False)
    with pytest.raises(BundleFileError, match="convert the model again"):
        payload(older, some_anchors(older))
    anchors = some_anchors(older)
    with pytest.raises(BundleFileError, match="ask for codec compact"):
        older.read(
            seal(older.bundle.contract, Codec.PORTABLE, b"", prompt_ids=[], fingerprint=bytes(32)), PROMPT
        )
    data = encode(anchors, Shared(older.bundle.contract))
    assert len(list(older.fill(older.read(data, PROMPT)))) == 24


def test_with_a_grammar_a_predictive_payload_is_read_first(edge: EdgeRuntime) -> None:
    pytest.importorskip("llguidance")
    grammar = Grammar.regex("[a-z]{3,9}[.]")
    data = payload(edge, some_anchors(edge))
    answer = edge.fill(edge.read(data, PROMPT), edge.constrained(None, grammar))
    text = edge.bundle.tokenizer.decode([token.id for token in answer])
    assert re.fullmatch("[a-z]{3,9}[.]", text)
    assert len(answer.anchors) == len(some_anchors(edge))
