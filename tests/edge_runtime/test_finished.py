"""A finished text: the device writes the same bytes, whatever they are, or it is refused."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime import fill as filling
from edge_runtime import send
from edge_runtime.errors import UsageError
from edge_runtime.finished import payload_of, text_ids
from edge_runtime.runtime import EdgeRuntime
from payload import Codec, peek
from tests.shipped import TINY_BUNDLE

PROMPT = "Where is it?"
HARD = (
    " \t two  spaces\n\n\tand tabs ",
    "```python\nprint('x')\n```",
    "e\u0301 is no \u00e9; \u1100\u1161\u11a8",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "<|im_end|> and <|endoftext|> are text here",
    '{"a": [1, 2.5, null]}\r\n',
)


@pytest.fixture(scope="module")
def edge() -> EdgeRuntime:
    return EdgeRuntime.open(TINY_BUNDLE, "fp32", threads=1)


def written(edge: EdgeRuntime, data: bytes, prompt: str = PROMPT) -> bytes:
    tokens = list(edge.fill(edge.read(data, prompt)))
    return b"".join(edge.bundle.tokenizer.token_bytes(token.id) for token in tokens)


@pytest.mark.parametrize("codec", [Codec.COMPACT, Codec.PREDICTIVE])
@pytest.mark.parametrize("text", HARD)
def test_hard_texts_come_back_byte_for_byte(edge: EdgeRuntime, text: str, codec: Codec) -> None:
    assert written(edge, payload_of(edge, text, PROMPT, codec)) == text.encode()


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=30))
def test_any_text_comes_back(edge: EdgeRuntime, text: str) -> None:
    assert written(edge, payload_of(edge, text, "", Codec.COMPACT), "") == text.encode()


def test_auto_is_the_smaller_codec_and_a_known_text_is_read_in_few_passes(edge: EdgeRuntime) -> None:
    text = "The river is in the valley. " * 5
    sizes = {codec: len(payload_of(edge, text, PROMPT, codec)) for codec in (Codec.COMPACT, Codec.PREDICTIVE)}
    data = payload_of(edge, text, PROMPT)
    assert len(data) == min(sizes.values())
    assert peek(data).codec in sizes
    prompt, ids = edge.prompt_ids(PROMPT), text_ids(edge, text)
    stats = edge.predictor(prompt).stats
    predictor = edge.predictor(prompt, stats)
    rows = list(predictor.read(ids, 0))
    assert len(rows) == len(ids) + 1
    assert stats.passes <= -(-len(rows) // 64) + 1


def test_what_cannot_be_sent_is_refused(edge: EdgeRuntime) -> None:
    for text in ("", "half \ud800", "word " * 2000):
        with pytest.raises(UsageError):
            payload_of(edge, text, PROMPT)


def test_the_commands_send_and_write_a_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer, payload = tmp_path / "answer.txt", tmp_path / "payload.bin"
    answer.write_text("Back at noon.", encoding="utf-8")
    common = ["--edge", str(TINY_BUNDLE), "--variant", "fp32", "--prompt", ""]
    assert send.main(["--answer", str(answer), "-o", str(payload), *common]) == 0
    capsys.readouterr()
    assert filling.main([str(payload), *common]) == 0
    assert capsys.readouterr().out == "Back at noon.\n"
    assert send.main(["--answer", str(tmp_path / "none"), "-o", str(payload), *common]) == 2
    assert send.main(["--answer", str(answer), "-o", str(payload), *common[:4]]) == 2


def test_standard_input_keeps_its_line_ends_and_is_refused_where_it_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: EdgeRuntime
) -> None:
    payload = tmp_path / "payload.bin"
    command = ["--answer", "-", "-o", str(payload), "--edge", str(TINY_BUNDLE), "--variant", "fp32"]
    for data, status in ((b"One.\r\nTwo.\r\n", 0), (b"\xff\xfe", 2), (b"a" * (1 << 20) + b"b", 2)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))
        assert send.main([*command, "--prompt", ""]) == status
    assert payload.read_bytes() == payload_of(edge, "One.\r\nTwo.\r\n", "")
