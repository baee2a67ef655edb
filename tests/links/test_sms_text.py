"""Bytes as text of 7-bit characters: every frame comes back, and 160 characters hold what they can."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from links.kinds.sms_text import ALPHABETS, CHARACTERS, GSM_BASIC, SmsAlphabet

NAMES = pytest.mark.parametrize("name", ALPHABETS)


@NAMES
@given(data=st.data())
def test_every_frame_comes_back(name: str, data: st.DataObject) -> None:
    alphabet = ALPHABETS[name]
    frame = data.draw(st.binary(max_size=alphabet.largest))
    text = alphabet.text(frame)
    assert len(text) <= CHARACTERS
    assert text == "".join(text.split())
    assert alphabet.data(text) == frame
    at = data.draw(st.integers(0, len(text)))
    assert alphabet.data(f" {text[:at]}\r\n{text[at:]}\n") == frame


@NAMES
def test_no_more_fits(name: str) -> None:
    alphabet = ALPHABETS[name]
    bits = CHARACTERS * math.log2(len(alphabet.characters))
    assert alphabet.largest == int(bits / 8)
    alphabet.text(b"\xff" * alphabet.largest)
    with pytest.raises(ValueError, match=f"at most {alphabet.largest}"):
        alphabet.text(bytes(alphabet.largest + 1))


def test_sizes() -> None:
    assert {name: alphabet.largest for name, alphabet in ALPHABETS.items()} == {"ascii": 128, "gsm7": 139}
    # A frame of 51 bytes, the least of the bar's.
    assert {name: len(a.text(bytes(51))) for name, a in ALPHABETS.items()} == {"ascii": 64, "gsm7": 59}


@NAMES
@given(text=st.text(GSM_BASIC + "€", max_size=40))
def test_other_text_is_refused_or_is_a_frame(name: str, text: str) -> None:
    alphabet = ALPHABETS[name]
    frame = alphabet.data(text)
    if frame is not None:
        assert alphabet.text(frame) == "".join(text.split())


def test_what_is_no_frame() -> None:
    ascii_ = ALPHABETS["ascii"]
    assert ascii_.data("grüß") is None
    assert ascii_.data("!" * 161) is None
    one = SmsAlphabet("few", "01")
    assert one.data("1" * 8) == b"\xff"
    assert one.data("1" * 7) is None, "no number of bytes takes 7"
    highest = ascii_.characters[-1]
    assert ascii_.data(highest * 2) is None, "85² - 1 is more than a byte"


def test_the_basic_set_is_the_standard_one() -> None:
    gsm0338 = pytest.importorskip("gsm0338", reason="the package gsm0338 is not installed")
    codec = gsm0338.Codec()
    codes = bytes(code for code in range(128) if code != 0x1B)
    assert codec.decode(codes)[0] == GSM_BASIC.replace("\x1b", "")
    for alphabet in ALPHABETS.values():
        assert len(codec.encode(alphabet.characters)[0]) == len(alphabet.characters), "7 bits each"
