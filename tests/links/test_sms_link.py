"""SMS by spool folders and by copy and paste, without a modem."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from edge_runtime.errors import LinkError
from links import open_link
from links.kinds.sms import PasteLink, SpoolLink, parse_number
from links.kinds.sms_text import text_of

DEVICE, SERVICE = "491701111111", "491702222222"


def carry(sender: SpoolLink, number: str, receiver: SpoolLink, *, utf8: bool = True) -> None:
    """What modems and `smsd` do: the outgoing messages of one side arrive at the other."""
    for file in sorted(sender._mailbox.outgoing.iterdir()):
        head, _, body = file.read_bytes().partition(b"\n\n")
        fields = dict(line.split(": ") for line in head.decode().split("\n"))
        alphabet = fields["Alphabet"]
        if alphabet == "UTF-8" and not utf8:
            alphabet, body = "ISO", body.decode().encode("iso-8859-15", "replace")
        assert fields["To"].isdigit()
        arrived = f"From: {number}\nFrom_TOA: 91 international, ISDN/telephone\nAlphabet: {alphabet}\n\n"
        (receiver._mailbox.incoming / f"GSM1.{file.name}").write_bytes(arrived.encode() + body)
        file.unlink()


@pytest.mark.parametrize(("packing", "utf8"), [("ascii", False), ("ascii", True), ("binary", True)])
def test_spool_folders(packing: str, utf8: bool, tmp_path: Path) -> None:
    with (
        open_link(f"sms-spool:{tmp_path}/device?to=+{SERVICE}&packing={packing}") as device,
        open_link(f"sms-spool-listen:{tmp_path}/service?packing={packing}") as service,
    ):
        assert isinstance(device, SpoolLink)
        assert isinstance(service, SpoolLink)
        frames = [
            bytes(device.largest),
            b"\xff" * device.largest,
            b"To: 1\n\r\n\n" + bytes(range(90)),
            b"\r\n",
        ]
        for frame in frames:
            device.send(frame)
        carry(device, DEVICE, service, utf8=utf8)
        found = [service.receive(5) for _ in frames]
        assert [datagram and datagram.data for datagram in found] == frames
        assert {datagram and datagram.peer for datagram in found} == {DEVICE}
        assert service.receive(0.3) is None
        assert len(list(service._mailbox.taken.iterdir())) == len(frames)
        service.send(b"answer", DEVICE)
        (device._mailbox.incoming / "mother").write_text("From: 491709999999\n\nHiHiHi\n")
        (device._mailbox.incoming / "broken").write_bytes(b"From\xff")
        carry(service, SERVICE, device, utf8=utf8)
        assert device.receive(5) == (b"answer", None)
        assert device.receive(0.3) is None, "what others write stays where it is"
        assert {file.name for file in device._mailbox.incoming.iterdir()} == {"mother", "broken"}


def test_a_file_that_is_still_written_is_waited_for(tmp_path: Path) -> None:
    with SpoolLink(tmp_path, service=True) as service:
        text = b"From: 123\n\n" + text_of(b"whole frame").encode()
        path = service._mailbox.incoming / "slow"
        path.write_bytes(text[:-4])
        assert service.receive(0) is None
        path.write_bytes(text)
        assert service.receive(5) == (b"whole frame", "123")
        (service._mailbox.incoming / "again").write_bytes(text)
        assert service.receive(5) == (b"whole frame", "123")


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LinkError):
        SpoolLink(tmp_path / "file")
    with SpoolLink(tmp_path / "folder", to="123") as link:
        pass
    with pytest.raises(LinkError):
        link.receive(1)


def test_copy_and_paste(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as typed:
        monkeypatch.setattr(sys, "stdin", stdin)
        with PasteLink(to=SERVICE) as device:
            device.send(b"question")
            shown = capsys.readouterr().err.splitlines()
            assert shown[0] == f"send this text to +{SERVICE}, and paste the answer's here:"
            print("hm, wait", shown[1], sep="\n", file=typed, flush=True)
            found = device.receive(5)
            while found is not None and found.data != b"question":  # some texts are frames of other bytes
                found = device.receive(5)
            assert found is not None
        typed.close()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with PasteLink() as device, pytest.raises(LinkError):
        device.receive(5)


def test_numbers() -> None:
    assert parse_number("+49 (170) 11-11/111") == "491701111111"
    for text in ("", "12", "1" * 16, "mother", "+", "12a45"):
        with pytest.raises(LinkError):
            parse_number(text)
