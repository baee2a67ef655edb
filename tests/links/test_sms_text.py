"""Bytes as text of 7-bit characters: every frame comes back, and 160 characters hold what they can."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from links.kinds.sms_text import ALPHABET, CHARACTERS, LARGEST, data_of, text_of


@given(frame=st.binary(max_size=LARGEST), at=st.integers(0, CHARACTERS))
def test_every_frame_comes_back(frame: bytes, at: int) -> None:
    text = text_of(frame)
    assert len(text) <= CHARACTERS
    assert data_of(f" {text[:at]}\r\n{text[at:]}\n") == frame


def test_no_more_fits() -> None:
    assert int(CHARACTERS * math.log2(len(ALPHABET)) / 8) == LARGEST == 128
    assert len(text_of(b"\xff" * LARGEST)) <= CHARACTERS
    with pytest.raises(ValueError, match="128"):
        text_of(bytes(LARGEST + 1))


@given(text=st.text(ALPHABET + "é€", max_size=40))
def test_other_text_is_refused_or_is_a_frame(text: str) -> None:
    frame = data_of(text)
    assert frame is None or text_of(frame) == text


@pytest.mark.parametrize("text", ["grüß", "!" * 161, ALPHABET[-1] * 2])
def test_what_is_no_frame(text: str) -> None:
    """Of the last, 85² - 1 is more than a byte."""
    assert data_of(text) is None


def test_the_alphabet_passes_in_7_bits() -> None:
    gsm0338 = pytest.importorskip("gsm0338", reason="the package gsm0338 is not installed")
    assert len(gsm0338.Codec().encode(ALPHABET)[0]) == len(ALPHABET) == 85
