"""SMS by spool folders, by commands and by copy and paste, without a modem."""

from __future__ import annotations

import io
import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from edge_runtime.errors import LinkError, UsageError
from links import open_link
from links.kinds.sms import CommandLink, PasteLink, SpoolLink, parse_number
from links.kinds.sms_text import ALPHABETS

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


@pytest.mark.parametrize(("packing", "utf8"), [("ascii", False), ("gsm7", True), ("binary", True)])
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
        text = b"From: 123\n\n" + ALPHABETS["ascii"].text(b"whole frame").encode()
        path = service._mailbox.incoming / "slow"
        path.write_bytes(text[:-4])
        assert service.receive(0) is None
        path.write_bytes(text)
        assert service.receive(5) == (b"whole frame", "123")
        (service._mailbox.incoming / "again").write_bytes(text)
        assert service.receive(5) == (b"whole frame", "123")


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LinkError, match="is it a folder of yours"):
        SpoolLink(tmp_path / "file")
    with SpoolLink(tmp_path / "folder", to="123") as link:
        pass
    with pytest.raises(LinkError, match="closed"):
        link.receive(1)


ECHO = """
import sys, pathlib, time
box = pathlib.Path(sys.argv[1])
box.mkdir(exist_ok=True)
seen = set()
print("not a message", flush=True)
while True:
    for file in sorted(box.iterdir()):
        if file.suffix == ".txt" and file not in seen:
            seen.add(file)
            print(sys.argv[2], file.read_text(), flush=True)
    time.sleep(0.02)
"""
SEND = """
import sys, pathlib, time, os
box = pathlib.Path(sys.argv[1])
box.mkdir(exist_ok=True)
part = box / f"{sys.argv[2]}.part"
part.write_text(sys.stdin.read())
os.replace(part, box / f"{time.time_ns()}.txt")
"""


def command(*words: object) -> str:
    return shlex.join([sys.executable, "-c", *map(str, words)])


def test_commands(tmp_path: Path) -> None:
    to_service, to_device = tmp_path / "up", tmp_path / "down"
    up, down = (command(SEND, box, "{to}") for box in (to_service, to_device))
    with (
        CommandLink(up, command(ECHO, to_device, SERVICE), to=SERVICE) as device,
        CommandLink(down, command(ECHO, to_service, DEVICE), service=True) as service,
    ):
        device.send(b"question")
        assert service.receive(20) == (b"question", DEVICE)
        service.send(b"answer", DEVICE)
        assert device.receive(20) == (b"answer", None)
        assert device.receive(0) is None
        process = device._process
    assert process.poll() is not None, "it ends with the link"


def test_commands_that_fail() -> None:
    for send, text in (
        (command("import sys; sys.exit('no network')"), "exit code 1: no network"),
        ("no-such-command", "no-such-command: No such file"),
    ):
        with CommandLink(send, command("import time; time.sleep(60)"), to=SERVICE) as link:
            with pytest.raises(LinkError, match=text):
                link.send(b"x")
            started = time.monotonic()
            assert link.receive(0.2) is None
            assert time.monotonic() - started >= 0.19
    with pytest.raises(LinkError, match="receive: no-such-command"):
        CommandLink("true", "no-such-command")
    with CommandLink("true", command("pass")) as link, pytest.raises(LinkError, match="end of what receives"):
        link.receive(20)


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
    with PasteLink() as device, pytest.raises(LinkError, match="end of what receives"):
        device.receive(5)


def test_numbers() -> None:
    assert parse_number("+49 (170) 11-11/111") == "491701111111"
    for text in ("", "12", "1" * 16, "mother", "+", "12a45"):
        with pytest.raises(LinkError, match="3 to 15 digits"):
            parse_number(text)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("sms-spool:?to=123", "expected a folder"),
        ("sms-spool:folder", "expected the service's number"),
        ("sms-spool:folder?to=mother", "3 to 15 digits"),
        ("sms-spool:folder?to=123&packing=base64", "ascii, gsm7, binary; found 'base64'"),
        ("sms-paste:?packing=binary", "ascii, gsm7; found 'binary'"),
        ("sms-paste:here", "expected nothing after sms-paste:"),
        ("sms-spool-listen:folder?to=123", "answers whoever asks"),
        ("sms-command:?to=123&send=true", "expected a command in option receive"),
        ("sms-command:?to=123&send=it's&receive=cat", "words as in a shell"),
    ],
)
def test_bad_addresses(address: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=text):
        open_link(address)
