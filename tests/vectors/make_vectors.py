"""Writes payload_vectors.json: payloads with what they hold, and broken ones with the error they must give.

The file stands alone: contracts, the toy vocabulary's pieces, prompt ids and bytes are all in it, so that any
implementation of payload/SPEC.md can be tested on it. Run it again after a change of the format:

    python -m tests.vectors.make_vectors
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

from payload import (
    NO_EXTRAS,
    AnchorSet,
    Base,
    Codec,
    Contract,
    Extras,
    PayloadError,
    Shared,
    decode,
    encode,
    peek,
)
from payload.bytesio import varint
from payload.codecs.compression import deflate
from payload.codecs.prior import model_hash
from payload.header import seal
from tests.vectors.toy_vocabulary import PIECES, ToyTokens, contract

OUTPUT = Path(__file__).with_name("payload_vectors.json")
TOKENS = ToyTokens()
CONTRACTS = {"toy": contract(), "qwen": contract(151_643, "c"), "foreign": contract(len(PIECES), "f")}
SEED = 7

PROMPT = [3838, 374, 279, 6722, 315, 9625, 30, 220, 362, 13, 12095, 198, 220, 425, 13, 7148]
ANSWER = [32, 13, 12095, 374, 279, 6722, 315, 9625, 13]


class Vectors:
    """Collects vectors; each is decoded before it is kept."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._data: dict[str, bytes] = {}

    def good(
        self,
        name: str,
        anchors: AnchorSet,
        codec: Codec = Codec.COMPACT,
        prompt_ids: list[int] | None = None,
        *,
        extras: Extras = NO_EXTRAS,
        base: tuple[str, AnchorSet] | None = None,
    ) -> AnchorSet:
        on = Base(self._data[base[0]], base[1]) if base else None
        shared = Shared(anchors.contract, prompt_ids, TOKENS, on)
        data = encode(anchors, shared, codec, extras)
        back = decode(data, shared), peek(data).extras
        if back != (anchors, extras):
            raise AssertionError(f"{name}: {back} is not {(anchors, extras)}")
        held = expect(anchors, extras)
        self._add(name, data, anchors.contract, codec, prompt_ids, base[0] if base else None, held)
        return anchors

    def bad(
        self,
        name: str,
        data: bytes,
        error: str,
        reader: Contract | None = None,
        prompt_ids: list[int] | None = None,
        base: str | None = None,
    ) -> None:
        reader = reader or CONTRACTS["toy"]
        try:
            decode(data, Shared(reader, prompt_ids, TOKENS))
        except PayloadError as found:
            if type(found).__name__ != error:
                raise AssertionError(
                    f"{name}: expected {error}, found {type(found).__name__}: {found}"
                ) from None
            self._add(name, data, reader, None, prompt_ids, base, error=error)
            return
        raise AssertionError(f"{name}: expected {error}, found none")

    def data(self, name: str) -> bytes:
        return self._data[name]

    def _add(
        self,
        name: str,
        data: bytes,
        reader: Contract,
        codec: Codec | None,
        prompt_ids: list[int] | None,
        base: str | None,
        anchors: dict[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        self._data[name] = data
        self.rows.append(
            {
                "name": name,
                "payload": data.hex(),
                "contract": next(key for key, value in CONTRACTS.items() if value is reader),
                "codec": codec.label if codec is not None else None,
                "prompt_ids": prompt_ids,
                "base": base,
                # Compressors differ in their bytes; the arithmetic coder does not.
                "encoder_exact": codec is Codec.COMPACT and not (anchors or {}).get("prompt"),
                "anchors": anchors,
                "error": error,
            }
        )


def expect(anchors: AnchorSet, extras: Extras) -> dict[str, Any]:
    return {
        "positions": list(anchors.positions),
        "ids": list(anchors.ids),
        "canvas": anchors.canvas,
        "length": anchors.length,
        "step": extras.step,
        "total_steps": extras.total_steps,
        "prompt": extras.prompt,
        "confidence": list(extras.confidence),
    }


def whole(ids: list[int], of: str, canvas: int = 512) -> AnchorSet:
    return AnchorSet.of(dict(enumerate(ids)), canvas, CONTRACTS[of], len(ids))


def sparse(tokens: dict[int, int], of: str, canvas: int = 512, length: int | None = None) -> AnchorSet:
    return AnchorSet.of(tokens, canvas, CONTRACTS[of], length)


def good_vectors(out: Vectors) -> None:
    luck = random.Random(SEED)
    text = TOKENS.encode("the answer is 20 and the town of Anna is on the river")
    for codec in (Codec.TEMPLATE_GZIP, Codec.COMPACT):
        label = codec.label
        out.good(f"{label}: one token", whole([97], "toy"), codec)
        out.good(f"{label}: a sentence", whole(text, "toy", 128), codec)
        out.good(f"{label}: gaps", sparse({0: 97, 3: 98, 4: 99, 40: 100}, "toy", 64, length=50), codec)
        out.good(f"{label}: no length", sparse({2: 97, 3: 300 % len(PIECES)}, "toy", 100), codec)
        out.good(f"{label}: nothing", sparse({}, "toy"), codec)
        out.good(f"{label}: an empty answer", sparse({}, "toy", length=0), codec)
        out.good(f"{label}: a + b is ab in text", whole([97, 98, 99], "toy"), codec)
        out.good(f"{label}: NUL bytes", whole([0, 97, PIECES.index(b"a\0b"), 0], "toy"), codec)
        out.good(f"{label}: half a character", whole([0xC3, 97, 0xA9, 0xC3, 0xA9], "toy"), codec)
        out.good(f"{label}: an empty token", whole([97, len(PIECES) - 1, 98], "toy"), codec)
        ids = [luck.randrange(len(PIECES)) for _ in range(30)]
        places = sorted(luck.sample(range(300), 30))
        mixed = dict(zip(places, ids, strict=True))
        out.good(f"{label}: any ids", sparse(mixed, "toy", 300, length=300), codec)
        extras = Extras(step=12, total_steps=128)
        out.good(f"{label}: steps", whole(text[:5], "toy"), codec, extras=extras)
        extras = Extras(confidence=tuple(n % 4 for n in range(7)))
        out.good(f"{label}: confidence", whole(text[:7], "toy"), codec, extras=extras)
        extras = Extras("Où? " * 20)
        out.good(f"{label}: a carried prompt", whole(text[:4], "toy"), codec, extras=extras)
        out.good(f"{label}: a short carried prompt", whole([97], "toy"), codec, extras=Extras("?"))
    for canvas in (1, 64, 128, 256, 512, 1024, 1000, 65_536):
        out.good(f"compact: canvas {canvas}", sparse({canvas - 1: 5}, "toy", canvas, length=canvas))
    out.good("compact: same token 400 times", whole([97] * 400, "toy"))
    out.good("compact: prompt", whole(text, "toy"), prompt_ids=TOKENS.encode("the number is 20 on the river"))
    out.good("compact: empty prompt", whole(text, "toy"), prompt_ids=[])
    out.good(
        "compact: an id past the vocabulary in the prompt", whole(text, "toy"), prompt_ids=[9999, 97, 98]
    )
    out.good("compact: statistics", whole(ANSWER, "qwen"))
    out.good("compact: statistics and prompt", whole(ANSWER, "qwen"), prompt_ids=PROMPT)
    many = dict(enumerate([1249, 1477, 279, 6722, 315, 9625, 11, 582, 1184, 311]))
    extras = Extras(step=6, total_steps=128)
    first = out.good("compact: an open answer", sparse(many, "qwen"), prompt_ids=PROMPT, extras=extras)
    more = sparse({**many, 10: 1477, 11: 279, 20: 13, 21: 198, 151: 7148}, "qwen", length=180)
    out.good("compact: a delta", more, prompt_ids=PROMPT, base=("compact: an open answer", first))
    last = whole([*many.values(), 1477, 279, *([151_642, 0, 13] * 4)], "qwen")
    fuller = out.good(
        "compact: a delta that ends", last, prompt_ids=PROMPT, base=("compact: an open answer", first)
    )
    out.good(
        "compact: a delta of nothing", last, prompt_ids=PROMPT, base=("compact: a delta that ends", fuller)
    )
    holes = sparse({1: 1477, 4: 315, 8: 13}, "qwen")
    holes = out.good("compact: holes", holes)
    filled = whole([1249, 1477, 279, 6722, 315, 9625, 11, 582, 13, 198], "qwen")
    out.good("compact: a delta into holes", filled, base=("compact: holes", holes))
    for number in range(6):
        ids = [min(151_642, int(luck.expovariate(1 / 4000))) for _ in range(5 + 9 * number)]
        ids[2:4] = ids[0:2]
        out.good(f"compact: ids by rank {number}", whole(ids, "qwen"), prompt_ids=ids[1::2] + PROMPT)


def bad_vectors(out: Vectors) -> None:
    toy, codec = CONTRACTS["toy"], Codec.COMPACT
    data = out.data("compact: gaps")
    out.bad("an empty file", b"", "TruncatedPayloadError")
    out.bad("three bytes", data[:3], "TruncatedPayloadError")
    out.bad("cut short", data[:-1], "ChecksumError")
    out.bad("a changed byte", data[:-2] + bytes([data[-2] ^ 1]) + data[-1:], "ChecksumError")
    out.bad("a byte more", data + b"x", "ChecksumError")
    out.bad("version 2", bytes([data[0] & 0x3F | 0x80]) + data[1:], "VersionError")
    out.bad("version 0", bytes([data[0] & 0x3F]) + data[1:], "VersionError")
    out.bad("codec 1", bytes([data[0] & 0xC7 | 1 << 3]) + data[1:], "CodecError")
    out.bad("codec 5", bytes([data[0] & 0xC7 | 5 << 3]) + data[1:], "CodecError")
    out.bad("portable without a prompt", bytes([data[0] & 0xC3 | 4 << 3]) + data[1:], "MalformedPayloadError")
    out.bad("portable without a model", bytes([data[0] & 0xC7 | 4 | 4 << 3]) + data[1:], "FingerprintError")
    out.bad("codec 7", bytes([data[0] | 7 << 3]) + data[1:], "CodecError")
    out.bad("another contract", data, "ContractMismatchError", CONTRACTS["foreign"])
    with_prompt = out.data("compact: prompt")
    out.bad("no prompt", with_prompt, "PromptRequiredError")
    out.bad("another prompt", with_prompt, "ChecksumError", prompt_ids=[1, 2, 3])
    out.bad("no base", out.data("compact: a delta into holes"), "BasePayloadError", CONTRACTS["qwen"])
    out.bad("template with a prompt bit", bytes([0x44]) + data[1:], "MalformedPayloadError")
    out.bad("no optional field", seal(toy, codec, b"", b"\0"), "MalformedPayloadError")
    out.bad("an unknown optional field", seal(toy, codec, b"", b"\x10"), "MalformedPayloadError")
    out.bad("the flag that is free", seal(toy, codec, b"", b"\x02\x01a"), "MalformedPayloadError")
    out.bad("half of the steps", seal(toy, codec, b"", b"\x04\x05"), "TruncatedPayloadError")
    out.bad("prompt of a wrong size", seal(toy, codec, b"", b"\x01\x05\x00ab"), "TruncatedPayloadError")
    many, one = bytes(1 << 20), deflate(b"a" * 100)
    packed = {
        "a prompt not packed as stated": b"\3\3abc",
        "a prompt longer than stated": varint(99) + varint(len(one)) + one,
        "a prompt shorter than stated": varint(101) + varint(len(one)) + one,
        "a packed prompt with a byte more": varint(100) + varint(len(one) + 1) + one + b"x",
        "a packed prompt with a byte less": varint(100) + varint(len(one) - 1) + one[:-1],
        "a bomb for a prompt": varint(1 << 16) + varint(len(deflate(many))) + deflate(many),
    }
    for name, field in packed.items():
        oversized = name in ("a prompt longer than stated", "a bomb for a prompt")
        error = "OversizedPayloadError" if oversized else "MalformedPayloadError"
        out.bad(name, seal(toy, codec, b"", b"\1" + field), error)
    out.bad("prompt not UTF-8", seal(toy, codec, b"", b"\x01\x01\x00\xff"), "MalformedPayloadError")
    out.bad("a padded varint", seal(toy, codec, b"", b"\x04\x81\x00\x01"), "MalformedPayloadError")
    body = data[4:]
    out.bad("bytes after the body", seal(toy, codec, body + b"\x01" * 9), "MalformedPayloadError")
    out.bad("a zero after the body", seal(toy, codec, body + b"\0"), "MalformedPayloadError")
    out.bad("no such interval", seal(toy, codec, b"\xff" * 12), "MalformedPayloadError")
    gz = Codec.TEMPLATE_GZIP
    out.bad("not gzip", seal(toy, gz, b"\x40\0\0abc"), "MalformedPayloadError")
    bomb = gzip.compress(bytes(1 << 22), mtime=0)
    out.bad("a gzip bomb", seal(toy, gz, b"\x40\0\0" + bomb), "OversizedPayloadError")
    long = gzip.compress(b"abcabc", mtime=0)
    for name, member in {
        "gzip, a byte more": long + b"x",
        "gzip, a byte less": long[:-1],
        "gzip, two members": long + long,
        "gzip, nothing before a member": gzip.compress(b"", mtime=0) + long,
        "gzip with another checksum": long[:-8] + b"abcd" + long[-4:],
        "gzip with another size": long[:-1] + b"\1",
        "gzip with a name": long[:3] + b"\x08" + long[4:10] + b"name\0" + long[10:],
    }.items():
        out.bad(name, seal(toy, gz, b"\x40\0\0" + member), "MalformedPayloadError")
    out.bad("text past the canvas", seal(toy, gz, b"\x01\0\0" + long), "AnchorRangeError")
    out.bad("a canvas of 0", seal(toy, gz, b"\0\0\0" + gzip.compress(b"", mtime=0)), "AnchorRangeError")
    patch = varint(64) + b"\0\x01\0" + varint(len(PIECES)) + gzip.compress(b"\0", mtime=0)
    out.bad("an id past the vocabulary", seal(toy, gz, patch), "AnchorRangeError")
    out.bad("a length past the canvas", seal(toy, gz, b"\x04\x09\0" + long), "AnchorRangeError")


def main() -> None:
    out = Vectors()
    good_vectors(out)
    bad_vectors(out)
    document = {
        "format": 1,
        "model_sha256": model_hash().hex(),
        "contracts": {name: each.to_json() | {"identity": each.identity} for name, each in CONTRACTS.items()},
        "toy_pieces": [piece.hex() for piece in PIECES],
        "toy_encode": "longest piece first, from left to right; of equal pieces the lowest id",
        "vectors": out.rows,
    }
    OUTPUT.write_text(json.dumps(document, indent=1, ensure_ascii=True) + "\n", encoding="ascii")
    bad = sum(row["error"] is not None for row in out.rows)
    print(f"{OUTPUT.name}: {len(out.rows)} vectors, {bad} of them bad")


if __name__ == "__main__":
    main()
