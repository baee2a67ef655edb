"""The promises on published diffusion runs. On the runs the model file was made from they hold with room to
spare; `python -m lab.formats.train_token_model --measure` says what runs cost that it was not made from."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from lab.formats.codec_bench import CODECS, FULL, LONG, anchors_of, sizes_of
from lab.published.published_runs import Trace, TraceTokenizer
from payload import AnchorSet, Shared, decode, encode
from payload.codecs.prior import MODEL_FILE, prior_of


@pytest.fixture(scope="module")
def prompts(traces: list[Trace], qwen: TraceTokenizer) -> dict[str, list[int]]:
    return {trace.name: qwen.encode(trace.prompt) for trace in traces}


def mean(
    traces: list[Trace], qwen: TraceTokenizer, prompts: dict[str, list[int]] | None, fraction: str
) -> float:
    sizes = []
    for trace in traces:
        anchors = anchors_of(trace, fraction, qwen)
        shared = Shared(qwen.contract, prompts[trace.name] if prompts else None)
        data = encode(anchors, shared)
        assert decode(data, shared) == anchors
        sizes.append(len(data))
    return statistics.fmean(sizes)


@pytest.mark.parametrize(
    ("fraction", "without_prompt", "most"), [("0.1", False, 20), ("0.1", True, 30), ("0.25", False, 40)]
)
def test_bytes_of_a_payload(
    traces: list[Trace],
    qwen: TraceTokenizer,
    prompts: dict[str, list[int]],
    fraction: str,
    without_prompt: bool,
    most: int,
) -> None:
    assert mean(traces, qwen, None if without_prompt else prompts, fraction) <= most


def test_without_statistics_the_bar_holds(
    traces: list[Trace], qwen: TraceTokenizer, prompts: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the weights are left: what a vocabulary costs that the model file has no words of."""
    from payload.codecs import compact

    plain = prior_of(qwen.contract.vocab_size - 1)
    assert not plain.words.classes
    monkeypatch.setattr(compact, "prior_of", lambda size: plain)
    assert mean(traces, qwen, prompts, "0.1") <= 28
    assert mean(traces, qwen, None, "0.1") <= 50


def test_every_codec_and_the_full_answer(traces: list[Trace], qwen: TraceTokenizer) -> None:
    """Every payload is decoded before it is counted."""
    records = [sizes_of(trace, qwen) for trace in traces[::6]]
    for record in records:
        assert all(by_codec.keys() == CODECS.keys() for by_codec in record["fractions"].values())
        assert record["fractions"]["0.1"]["compact"] < record["fractions"]["0.1"]["template-gzip"]
        if record["tokens"] > LONG:
            assert record["fractions"][FULL]["compact"] < record["text"]["zstd-dictionary"]
    assert any(record["tokens"] > LONG for record in records)
    stream = statistics.fmean(record["stream"] for record in records)
    last = statistics.fmean(record["fractions"]["0.25"]["compact"] for record in records)
    assert last < stream < last + 18


def test_the_model_file_is_small() -> None:
    assert Path(MODEL_FILE).stat().st_size <= 64 * 1024


def test_real_tokens_come_back_from_the_template(qwen: TraceTokenizer) -> None:
    """Halves of characters, and ids that no text gives: the tokenizer's own vectors and reversed ids."""
    shared = Shared(qwen.contract, tokens=qwen)
    for text in ("Äpfel 🦙 中文", "a\0b", "  \n\n\t x", "3.14159"):
        ids = qwen.encode(text)
        for order in (ids, ids[::-1]):
            anchors = AnchorSet.of(dict(enumerate(order)), 512, qwen.contract)
            assert decode(encode(anchors, shared, "template-gzip"), shared) == anchors
