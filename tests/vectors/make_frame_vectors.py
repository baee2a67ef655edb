"""Writes frame_vectors.json: frames with what they hold, and broken ones with the error they must give.

The contracts, the toy vocabulary and the conventions are those of payload_vectors.json, beside it. Predictive
questions need a model and are not among them. Run it again after a change of the format:

    python -m tests.vectors.make_frame_vectors
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from links.frames.cookie import Challenge, split_cookie, with_cookie
from links.frames.kinds import FrameKind, peek_frame
from links.frames.question import UTF8, Question, decode_question, encode_question, seal_question
from links.frames.reply import AnswerFrame, Refusal, RefusalCode, decode_reply, encode_reply
from payload import AnchorSet, Contract, PayloadError, Shared, decode, encode
from payload.bytesio import varint
from payload.codecs import compact
from payload.codecs.prior import model_hash
from payload.header import crc16
from tests.vectors.toy_vocabulary import PIECES, ToyTokens, contract

OUTPUT = Path(__file__).with_name("frame_vectors.json")
TOKENS = ToyTokens()
CONTRACTS = {"toy": contract(), "foreign": contract(len(PIECES), "f")}
TOY = CONTRACTS["toy"]
SHARED = Shared(TOY, tokens=TOKENS)
TEXT = "Who is the mayor of the town on the river?"
PROMPT = TOKENS.encode(TEXT)


def described(held: Question | AnswerFrame | Refusal | Challenge) -> dict[str, Any]:
    """The fields of what a frame holds, as JSON has them."""
    fields = asdict(held)
    if isinstance(held, AnswerFrame):
        fields["payload"] = held.payload.hex()
    if isinstance(held, Refusal):
        fields["code"] = held.code.name
    if isinstance(held, Challenge):
        fields["cookie"] = held.cookie.hex()
    return fields


class FrameVectors:
    """Collects vectors; each is read before it is kept."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.data: dict[str, bytes] = {}

    def question(self, name: str, question: Question, codec: str) -> None:
        data = encode_question(question, SHARED, codec)
        if decode_question(data, SHARED) != question:
            raise AssertionError(f"{name}: does not come back")
        self._add(name, data, "question", described(question), codec=codec)

    def cookie(self, name: str, question: str, cookie: bytes) -> None:
        """The frame of that name behind a cookie."""
        frame = self.data[question]
        data = with_cookie(frame, cookie)
        if split_cookie(data) != (frame, cookie):
            raise AssertionError(f"{name}: does not come back")
        self._add(name, data, "cookie", {"cookie": cookie.hex(), "question": frame.hex()})

    def reply(self, name: str, reply: AnswerFrame | Refusal | Challenge) -> None:
        data = encode_reply(reply)
        if decode_reply(data) != reply:
            raise AssertionError(f"{name}: does not come back")
        self._add(name, data, "reply", described(reply))

    def bad(self, name: str, data: bytes, error: str, reader: str = "question", of: Contract = TOY) -> None:
        """reader: what the bytes are read as; "answer" decodes the payload in a reply too, "cookie" takes a
        cookie off.
        """
        try:
            if reader == "question":
                decode_question(data, Shared(of, tokens=TOKENS))
            elif reader == "cookie":
                split_cookie(data)
            else:
                reply = decode_reply(data)
                if reader == "answer":
                    assert isinstance(reply, AnswerFrame)
                    decode(reply.payload, Shared(of, PROMPT, TOKENS))
        except PayloadError as found:
            if type(found).__name__ != error:
                raise AssertionError(f"{name}: expected {error}, found {found!r}") from None
            self._add(name, data, reader, None, error=error, of=of)
            return
        raise AssertionError(f"{name}: expected {error}, found none")

    def _add(
        self,
        name: str,
        data: bytes,
        reader: str,
        held: dict[str, Any] | None,
        *,
        codec: str | None = None,
        error: str | None = None,
        of: Contract = TOY,
    ) -> None:
        self.data[name] = data
        self.rows.append(
            {
                "name": name,
                "frame": data.hex(),
                "read_as": reader,
                "contract": next(key for key, value in CONTRACTS.items() if value is of),
                "codec": codec,
                "kind": peek_frame(data).kind.label if held else None,
                "holds": held,
                "error": error,
            }
        )


def good_frames(out: FrameVectors) -> None:
    for codec in (UTF8, "compact"):
        out.question(f"{codec}: a text", Question(7, TEXT), codec)
        out.question(f"{codec}: a letter", Question(0, "a"), codec)
        out.question(f"{codec}: a share", Question(65_535, TEXT, 0.25), codec)
        out.question(f"{codec}: the whole run", Question(256, TEXT, 1.0), codec)
        out.question(f"{codec}: steps", Question(1, TEXT, steps=300), codec)
        out.question(f"{codec}: room", Question(1, TEXT, room=48), codec)
        out.question(f"{codec}: everything", Question(1, TEXT, 0.005, None, 8192, False), codec)
        out.question(f"{codec}: no predictive payload", Question(1, TEXT, predictive=False), codec)
        out.question(f"{codec}: other letters", Question(1, "Où est 中文 \U0001f600 \0?"), codec)
        out.question(f"{codec}: the same again and again", Question(1, "ab" * 300), codec)
        out.question(f"{codec}: the longest", Question(1, "a" * 2048), codec)
    anchors = AnchorSet.of(dict(enumerate(TOKENS.encode("the mayor is Anna"))), 64, TOY)
    data = encode(anchors, Shared(TOY, PROMPT, TOKENS))
    for part, last in ((0, True), (0, False), (1, False), (2, True), (3, False), (63, True)):
        out.reply(f"answer: part {part}{', the last' if last else ''}", AnswerFrame(7, part, last, data))
    out.reply("answer: id 65535", AnswerFrame(65_535, 0, True, data))
    for code in RefusalCode:
        identity = TOY.identity[:8] if code is RefusalCode.OTHER_CONTRACT else None
        out.reply(f"refusal: {code.name}", Refusal(7, code, identity=identity))
    out.reply("refusal: later", Refusal(7, RefusalCode.OVERLOADED, 30))
    out.reply("refusal: a week later", Refusal(7, RefusalCode.FAILED, 604_800))


def refusal(flags: int, detail: bytes) -> bytes:
    head = bytes([FrameKind.REFUSAL << 3 | flags, 0, 7])
    return head + crc16(head + detail).to_bytes(2, "big") + detail


def bad_frames(out: FrameVectors) -> None:
    data, answer = out.data["compact: a text"], out.data["answer: part 0, the last"]
    out.bad("nothing", b"", "TruncatedPayloadError")
    out.bad("half a head", data[:5], "TruncatedPayloadError")
    out.bad("a payload", answer[3:], "VersionError")
    out.bad("a later version", bytes([data[0] | 0x80]) + data[1:], "VersionError")
    out.bad("kind 5", bytes([0x28]) + data[1:], "FrameKindError")
    out.bad("kind 7", bytes([0x38]) + data[1:], "FrameKindError")
    out.bad("an answer, not a question", answer, "FrameKindError")
    out.bad("a question, not an answer", data, "FrameKindError", "reply")
    out.bad("too long for a question", data + bytes(2064), "OversizedPayloadError")
    out.bad("another contract", data, "ContractMismatchError", of=CONTRACTS["foreign"])
    for at, what in ((0, "flag"), (2, "id"), (4, "check"), (len(data) - 1, "text")):
        changed = bytearray(data)
        changed[at] ^= 1
        out.bad(f"a changed {what}", bytes(changed), "ChecksumError")
    out.bad("a text cut short", data[:-1], "ChecksumError")
    one = Question(1, "a")

    def sealed(kind: FrameKind, body: bytes) -> bytes:
        return seal_question(one, kind, SHARED, body)

    out.bad("an empty text", sealed(FrameKind.QUESTION_UTF8, b""), "OversizedPayloadError")
    out.bad("2,049 bytes of text", sealed(FrameKind.QUESTION_UTF8, b"a" * 2049), "OversizedPayloadError")
    out.bad("half a character", sealed(FrameKind.QUESTION_UTF8, b"\xc3"), "MalformedPayloadError")
    for name, anchors in (
        ("a gap", AnchorSet((0, 2), (97, 98), 512, TOY, 3)),
        ("no length", AnchorSet((0, 1), (97, 98), 512, TOY)),
        ("no token", AnchorSet.empty(512, TOY, 0)),
        ("half a character of compact", AnchorSet((0,), (0xC3,), 512, TOY, 1)),
    ):
        body = compact.encode(anchors, (), None)
        out.bad(name, sealed(FrameKind.QUESTION_COMPACT, body), "MalformedPayloadError")
    body = compact.encode(AnchorSet(tuple(range(2049)), (97,) * 2049, 4096, TOY, 2049), (), None)
    out.bad("2,049 tokens", sealed(FrameKind.QUESTION_COMPACT, body), "OversizedPayloadError")
    for flags, fields, error in (
        (4, b"\xc9a", "MalformedPayloadError"),
        (4, b"\0\0a", "AnchorRangeError"),
        (4, b"\0" + varint(1 << 21) + b"a", "MalformedPayloadError"),
        (4, b"", "TruncatedPayloadError"),
        (2, b"\0a", "AnchorRangeError"),
        (2, varint(8193) + b"a", "MalformedPayloadError"),
        (2, b"\x80", "TruncatedPayloadError"),
    ):
        plain = bytearray(sealed(FrameKind.QUESTION_UTF8, fields))
        check = int.from_bytes(plain[4:6], "big") ^ crc16(bytes(plain[:4]) + fields)
        plain[0] |= flags
        plain[4:6] = (check ^ crc16(bytes(plain[:4]) + fields)).to_bytes(2, "big")
        out.bad(f"flags {flags}, then {fields.hex() or 'nothing'}", bytes(plain), error)
    for at, what in ((0, "part"), (2, "id"), (4, "tag"), (6, "check"), (len(answer) - 1, "payload")):
        changed = bytearray(answer)
        changed[at] ^= 1
        error = "ContractMismatchError" if what == "tag" else "ChecksumError"
        out.bad(f"an answer with a changed {what}", bytes(changed), error, "answer")
    out.bad("an answer of three bytes", answer[:6], "MalformedPayloadError", "reply")
    out.bad("part 64", bytes([0x1B]) + answer[1:3] + b"\x3d" + answer[3:], "MalformedPayloadError", "reply")
    out.bad("an answer without a payload", b"\x18\0\7\0\0\0\0", "VersionError", "reply")
    whole = out.data["refusal: later"]
    out.bad("a refusal cut short", whole[:4], "TruncatedPayloadError", "reply")
    out.bad("a changed refusal", whole[:-1] + b"\0", "ChecksumError", "reply")
    out.bad("refusal 7", refusal(7, b""), "FrameKindError", "reply")
    out.bad("a wait of 0", refusal(0, b"\0"), "MalformedPayloadError", "reply")
    out.bad("two waits", refusal(0, b"\1\1"), "MalformedPayloadError", "reply")
    out.bad("half an identity", refusal(1, b"ab"), "TruncatedPayloadError", "reply")


def cookie_frames(out: FrameVectors) -> None:
    """They came later, behind the others."""
    out.reply("challenge", Challenge(7, b"\x01\x80\xff\x00"))
    out.reply("challenge: id 65535", Challenge(65_535, b"\0\0\0\0"))
    for codec in (UTF8, "compact"):
        out.cookie(f"{codec}: behind a cookie", f"{codec}: everything", b"\x01\x80\xff\x00")
    out.cookie("the smallest behind a cookie", "utf-8: a letter", b"abcd")
    named = Refusal(7, RefusalCode.OTHER_CONTRACT, identity=TOY.identity[:8], bundle="smollm2-135m")
    out.reply("refusal: the name of a bundle", named)
    out.bad("a name with a control character", refusal(1, b"abcd\x1b"), "AnchorRangeError", "reply")
    whole, challenge = out.data["utf-8: behind a cookie"], out.data["challenge"]
    out.bad("a cookie cut short", whole[:6], "TruncatedPayloadError", "cookie")
    out.bad("a cookie alone", whole[:7], "TruncatedPayloadError", "cookie")
    out.bad("a cookie with flags", bytes([whole[0] | 1]) + whole[1:], "MalformedPayloadError", "cookie")
    out.bad("an answer behind a cookie", whole[:7] + b"\x18" + whole[8:], "FrameKindError", "cookie")
    out.bad("a payload behind a cookie", whole[:7] + b"\x50" + whole[8:], "VersionError", "cookie")
    out.bad("a cookie behind a cookie", whole[:7] + b"\x28" + whole[8:], "FrameKindError", "cookie")
    out.bad("a cookie not taken off", whole, "FrameKindError")
    out.bad("a challenge cut short", challenge[:6], "TruncatedPayloadError", "reply")
    out.bad("a challenge with more", challenge + b"\0", "MalformedPayloadError", "reply")
    out.bad(
        "a challenge with flags", bytes([challenge[0] | 4]) + challenge[1:], "MalformedPayloadError", "reply"
    )
    out.bad("a challenge, not a question", challenge, "FrameKindError")
    out.bad("a question with cookie, not an answer", whole, "FrameKindError", "reply")


def main() -> None:
    out = FrameVectors()
    good_frames(out)
    bad_frames(out)
    cookie_frames(out)
    document = {
        "format": 1,
        "model_sha256": model_hash().hex(),
        "contracts_and_vocabulary": "payload_vectors.json",
        "prompt_ids_of_answers": PROMPT,
        "vectors": out.rows,
    }
    OUTPUT.write_text(json.dumps(document, indent=1, ensure_ascii=True) + "\n", encoding="ascii")
    bad = sum(row["error"] is not None for row in out.rows)
    print(f"{OUTPUT.name}: {len(out.rows)} vectors, {bad} of them bad")


if __name__ == "__main__":
    main()
