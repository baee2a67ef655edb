"""The vectors that every implementation of the frames is tested on, and a second reader of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from links.frames.cookie import Challenge, split_cookie, with_cookie
from links.frames.question import Question, decode_question, encode_question
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, decode_reply, encode_reply
from payload import Contract, PayloadError, Shared, decode, errors
from payload.codecs import compact
from payload.codecs.prior import model_hash
from tests.vectors import make_frame_vectors
from tests.vectors.toy_vocabulary import ToyTokens

FOLDER = Path(__file__).resolve().parents[2] / "vectors"
DOCUMENT = json.loads((FOLDER / "frame_vectors.json").read_text())
COMMON = json.loads((FOLDER / DOCUMENT["contracts_and_vocabulary"]).read_text())
VECTORS = {row["name"]: row for row in DOCUMENT["vectors"]}
CONTRACTS = {name: Contract.from_json(each) for name, each in COMMON["contracts"].items()}
TOKENS = ToyTokens([bytes.fromhex(piece) for piece in COMMON["toy_pieces"]])
GOOD = [name for name, row in VECTORS.items() if row["error"] is None]


def held_of(row: dict[str, Any]) -> Question | AnswerFrame | Refusal | Challenge:
    fields = dict(row["holds"])
    if row["read_as"] == "question":
        return Question(**fields)
    if "payload" in fields:
        return AnswerFrame(**{**fields, "payload": bytes.fromhex(fields["payload"])})
    if "cookie" in fields:
        return Challenge(fields["id"], bytes.fromhex(fields["cookie"]))
    return Refusal(**{**fields, "code": RefusalCode[fields["code"]]})


@pytest.mark.parametrize("name", GOOD)
def test_a_good_frame(name: str) -> None:
    row = VECTORS[name]
    data = bytes.fromhex(row["frame"])
    if row["read_as"] == "cookie":
        frame, cookie = (bytes.fromhex(row["holds"][key]) for key in ("question", "cookie"))
        assert split_cookie(data) == (frame, cookie)
        assert with_cookie(frame, cookie) == data
        return
    held = held_of(row)
    shared = Shared(CONTRACTS[row["contract"]], tokens=TOKENS)
    if isinstance(held, Question):
        assert decode_question(data, shared) == held
        assert encode_question(held, shared, row["codec"]) == data
    else:
        assert decode_reply(data) == held
        assert encode_reply(held) == data


@pytest.mark.parametrize("name", [name for name, row in VECTORS.items() if row["error"] is not None])
def test_a_bad_frame(name: str) -> None:
    row = VECTORS[name]
    data, contract = bytes.fromhex(row["frame"]), CONTRACTS[row["contract"]]
    with pytest.raises(PayloadError) as caught:
        read_as(row["read_as"], data, contract)
    assert type(caught.value) is getattr(errors, row["error"])


def read_as(reader: str, data: bytes, contract: Contract) -> None:
    if reader == "question":
        decode_question(data, Shared(contract, tokens=TOKENS))
        return
    if reader == "cookie":
        split_cookie(data)
        return
    reply = decode_reply(data)
    if reader == "answer":
        assert isinstance(reply, AnswerFrame)
        decode(reply.payload, Shared(contract, DOCUMENT["prompt_ids_of_answers"], TOKENS))


def crc_by_bits(data: bytes) -> int:
    """CRC-16 with polynomial 0x1021 and start 0xFFFF, as SPEC.md defines it."""
    state = 0xFFFF
    for byte in data:
        state ^= byte << 8
        for _ in range(8):
            state = (state << 1 ^ (0x1021 if state & 0x8000 else 0)) & 0xFFFF
    return state


def leb128(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    for at, byte in enumerate(data):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, data[at + 1 :]
    raise AssertionError("a varint ends")


def second_reader(data: bytes, contract: Contract) -> dict[str, Any]:
    """The fields of a good frame, read by SPEC.md alone but for the body of compact."""
    kind, flags, request = data[0] >> 3, data[0] & 7, data[1] << 8 | data[2]
    identity = bytes.fromhex(contract.identity)
    if kind == 7:
        assert (flags, len(data)) == (0, 7)
        return {"id": request, "cookie": data[3:].hex()}
    if kind == 5:
        assert flags == 0
        return {"cookie": data[3:7].hex(), "question": (data[7:8] + data[1:3] + data[8:]).hex()}
    if kind == 4:
        assert crc_by_bits(data[:3] + data[5:]) == data[3] << 8 | data[4]
        detail, name = data[5:], RefusalCode(flags).name
        later = leb128(detail)[0] if detail and flags != 1 else None
        return {
            "id": request,
            "code": name,
            "retry_after": later,
            "identity": detail[:4].hex() if flags == 1 else None,
            "bundle": detail[4:].decode() if flags == 1 else "",
        }
    if kind == 3:
        part, rest = flags & 3, data[3:]
        if part == 3:
            more, rest = leb128(rest)
            part += more
        head = data[: len(data) - len(rest)]
        prompt = DOCUMENT["prompt_ids_of_answers"]
        numbers = b"".join(each.to_bytes(4, "little") for each in prompt)
        binding = hashlib.sha256(identity + model_hash() + b"P" + numbers).digest()
        bound = binding[0] << 8 | binding[1]
        assert crc_by_bits(head + rest[:2] + rest[4:]) ^ bound == rest[2] << 8 | rest[3]
        check = crc_by_bits(rest[:2] + rest[4:]) ^ bound
        payload = rest[:2] + check.to_bytes(2, "big") + rest[4:]
        return {"id": request, "part": part, "last": flags >= 4, "payload": payload.hex()}
    assert data[3] == identity[0]
    binding = hashlib.sha256(identity + (model_hash() if kind == 1 else b"")).digest()
    assert crc_by_bits(data[:4] + data[6:]) ^ (binding[0] << 8 | binding[1]) == data[4] << 8 | data[5]
    rest, fraction, steps, room = data[6:], None, None, None
    if flags & 4:
        share, rest = rest[0], rest[1:]
        if share:
            fraction = share / 200
        else:
            steps, rest = leb128(rest)
    if flags & 2:
        room, rest = leb128(rest)
    text = rest
    if kind == 1:
        text = b"".join(TOKENS.pieces[each] for each in compact.decode(rest, contract, (), None)[1])
    return {
        "id": request,
        "text": text.decode("utf-8"),
        "fraction": fraction,
        "steps": steps,
        "room": room,
        "predictive": not flags & 1,
    }


@pytest.mark.parametrize("name", GOOD)
def test_a_second_reader_finds_the_same(name: str) -> None:
    row = VECTORS[name]
    assert second_reader(bytes.fromhex(row["frame"]), CONTRACTS[row["contract"]]) == row["holds"]


def test_the_frames_belong_to_this_model_file() -> None:
    assert DOCUMENT["model_sha256"] == model_hash().hex()
    assert len(VECTORS) == len(DOCUMENT["vectors"]) >= 60


def test_the_script_writes_the_same_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_frame_vectors, "OUTPUT", tmp_path / "again.json")
    make_frame_vectors.main()
    assert json.loads((tmp_path / "again.json").read_text()) == DOCUMENT
