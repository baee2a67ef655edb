"""Files of other kinds are told from payloads, and payloads never taken for them."""

from __future__ import annotations

import random

import pytest

from payload.errors import NotAPayloadError
from payload.foreign import foreign
from payload.header import peek

FILES = [
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "a JPEG image"),
    (b"GIF89a\x01\0", "a GIF image"),
    (b"RIFF\x24\n\0\0WEBPVP8 ", "a WebP, WAV or AVI file"),
    (b"PK\x03\x04\x14\0\x06\0", "a ZIP archive"),
    (b"GGUF\x03\0\0\0", "a GGUF model"),
    (b"\x7fELF\x02\x01\x01\0", "a program"),
    (b"hello world", "text"),
    (b"Anchors are sent, and the device answers.\n", "text"),
    ("Où est la gare ? Là-bas, à côté de l'église.\n".encode(), "text"),
    (b'{"payload": "AAAA"}', "text"),
    (b"<!doctype html>\n<title>Log in</title>", "text"),
]


@pytest.mark.parametrize(("data", "kind"), FILES)
def test_a_file_of_another_kind_is_no_payload(data: bytes, kind: str) -> None:
    assert foreign(data) == kind
    with pytest.raises(NotAPayloadError, match=f"found {kind}; this is not a payload"):
        peek(data)


def test_no_payload_is_taken_for_another_file() -> None:
    draw = random.Random(1)
    payloads = []
    # Of this version with whatever follows, and whatever may come after it.
    payloads += [bytes([0x50]) + draw.randbytes(draw.randrange(4, 40)) for _ in range(20_000)]
    payloads += [bytes([0x80 | draw.randrange(128)]) + draw.randbytes(30) for _ in range(20_000)]
    # A prompt carried as text behind four printable bytes.
    payloads += [b"QAb?" + bytes([flags, 24, 0]) + b"What is the capital of X?" for flags in range(1, 16)]
    assert [data for data in payloads if foreign(data)] == []
