"""Frames as QR codes: written, read again, and read off what a camera sees."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("segno", reason="the extra qr is not installed")
pytest.importorskip("zxingcpp", reason="the extra qr is not installed")

import segno
from PIL import Image, ImageFilter

from edge_runtime.errors import LinkError, UsageError
from links import open_link
from links.kinds.qr import QrLink


def carry(sender: QrLink, receiver: QrLink) -> None:
    for file in sorted(sender._mailbox.outgoing.iterdir()):
        shutil.move(file, receiver._mailbox.incoming / file.name)


def test_images_there_and_back(tmp_path: Path) -> None:
    with open_link(f"qr:{tmp_path}/device") as device, open_link(f"qr-listen:{tmp_path}/service") as service:
        assert isinstance(device, QrLink)
        assert isinstance(service, QrLink)
        frames = [
            bytes(range(256)),
            bytes(device.largest),
            b"7",
            b"HTTP://ABC",
            "日本".encode("shift-jis"),
            b"\xef\xbb\xbf",
        ]
        for frame in frames:
            device.send(frame)
        carry(device, service)
        found = [service.receive(20) for _ in frames]
        assert [datagram and datagram.data for datagram in found] == frames
        assert service.receive(0.3) is None
        assert found[0] is not None
        service.send(b"answer", found[0].peer)
        carry(service, device)
        assert device.receive(20) == (b"answer", None)
        with pytest.raises(LinkError, match="1 to 271 bytes"):
            device.send(bytes(272))
    with pytest.raises(LinkError):
        device.receive(1)


def test_the_largest_frame_is_a_code_of_version_10() -> None:
    assert segno.make_qr(bytes(271), error="l").version == 10
    assert segno.make_qr(bytes(272), error="l").version == 11


def test_a_photograph_of_two_codes(tmp_path: Path) -> None:
    """Turned, blurred, grey on grey, and as JPEG, beside a file that is not an image."""
    with QrLink(tmp_path / "device") as device, QrLink(tmp_path / "service", service=True) as service:
        frames = {b"\x00one\xff", bytes(range(50))}
        photograph = Image.new("L", (1400, 700), 150)
        for index, frame in enumerate(sorted(frames)):
            device.send(frame)
            (file,) = device._mailbox.outgoing.iterdir()
            code = Image.open(file).convert("L").point(lambda v: 60 + v * 0.5).resize((420, 420))
            photograph.paste(code.rotate(8, fillcolor=150, expand=True), (80 + 660 * index, 90))
            file.unlink()
        (service._mailbox.incoming / "notes.txt").write_text("not an image")
        photograph.filter(ImageFilter.GaussianBlur(1.5)).save(
            service._mailbox.incoming / "photo.jpg", quality=60
        )
        found = [service.receive(20), service.receive(20)]
        assert {datagram and datagram.data for datagram in found} == frames
        assert service.receive(0.3) is None
        assert [file.name for file in service._mailbox.incoming.iterdir()] == ["notes.txt"]


def test_an_address_without_a_folder() -> None:
    with pytest.raises(UsageError):
        open_link("qr:")
