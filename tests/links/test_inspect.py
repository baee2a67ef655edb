"""What `links.inspect` tells of frames."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from links.frames import (
    AnswerFrame,
    Challenge,
    Question,
    Refusal,
    RefusalCode,
    encode_question,
    encode_reply,
    with_cookie,
)
from links.inspect import main
from payload import AnchorSet, Extras, Shared, encode
from tests.vectors.toy_vocabulary import contract

TOY = contract()
PAYLOAD = encode(
    AnchorSet((0, 1, 4), (97, 98, 99), 64, TOY, 9), Shared(TOY, [1, 2]), extras=Extras(step=3, total_steps=32)
)


def test_inspect_shows_the_frame_around_a_payload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    framed, bundle = tmp_path / "frame.bin", tmp_path / "bundle.json"
    framed.write_bytes(encode_reply(AnswerFrame(700, 2, True, PAYLOAD)))
    bundle.write_text(json.dumps({"contract": TOY.to_json()}))
    assert main([str(framed), "--contract", str(bundle), "--prompt-ids", "1,2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["frame"], report["request_id"], report["part"], report["last"]) == ("answer", 700, 2, True)
    assert report["frame_bytes"] == report["bytes"] + 3
    assert report["verified"]
    assert report["ids"] == [97, 98, 99]
    assert main([str(framed)]) == 0
    assert "give --contract to list them" in capsys.readouterr().out


def test_inspect_shows_a_question_and_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, bundle = tmp_path / "frame.bin", tmp_path / "bundle.json"
    bundle.write_text(json.dumps({"contract": TOY.to_json()}))
    path.write_bytes(encode_question(Question(7, "Où?", 0.25, room=48), Shared(TOY)))
    assert main([str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["frame"] == "question-utf8"
    assert (report["fraction"], report["steps"], report["room"]) == (0.25, None, 48)
    assert not report["verified"]
    assert "text" not in report
    assert main([str(path), "--contract", str(bundle)]) == 0
    assert "Où?" in capsys.readouterr().out
    path.write_bytes(encode_reply(Refusal(7, RefusalCode.OVERLOADED, 30)))
    assert main([str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["frame"], report["refusal"], report["retry_after"]) == ("refusal", "overloaded", 30)
    challenge = encode_reply(Challenge(7, b"good"))
    path.write_bytes(challenge)
    assert main([str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cookie"] == b"good".hex()
    path.write_bytes(with_cookie(encode_question(Question(7, "Où?"), Shared(TOY)), b"good"))
    assert main([str(path), "--contract", str(bundle), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["question"], report["cookie"], report["text"]) == ("question-utf8", b"good".hex(), "Où?")
    path.write_bytes(bytes([0x30, 0, 0, 0, 0, 0, 0]))
    assert main([str(path)]) == 3
    assert "kind" in capsys.readouterr().err


def test_what_is_not_a_frame_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(9000))
    assert main([str(path)]) == 3
    assert "not a frame" in capsys.readouterr().err
