"""Frames as QR codes: images written to a folder, and images read from one.

Responsible for the codes, through `segno` and `zxing-cpp`. Not responsible for carrying an image from one
screen to the other side's camera, or for the files (see `mailbox`).
"""

from __future__ import annotations

import importlib
from io import BytesIO
from pathlib import Path
from typing import Any

from common.installed import remedy
from edge_runtime.errors import LinkError, UsageError
from links.address import LinkAddress
from links.datagram import Datagram, Link
from links.kinds.mailbox import Mailbox
from links.profiles import LINK_PROFILES, LinkProfile

QR_PROFILE = LINK_PROFILES["qr"]
PEER = "qr"
"""Images have no sender."""
MODULE_PIXELS = 8


class QrLink(Link):
    """Codes of bytes, PNG, in FOLDER/outgoing; any image with codes in FOLDER/incoming.

    An image that has been read is moved to FOLDER/taken; one in which no code is found stays.
    """

    def __init__(self, folder: Path, *, service: bool = False, profile: LinkProfile = QR_PROFILE) -> None:
        super().__init__(profile, service=service)
        self._segno, self._reader, self._image = (
            _qr_library(name) for name in ("segno", "zxingcpp", "PIL.Image")
        )
        self._mailbox = Mailbox(folder, "qr")
        self._found: list[bytes] = []

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        code = self._segno.make_qr(frame, error="l", mode="byte")  # more correction where it costs no size
        image = BytesIO()
        code.save(image, kind="png", scale=MODULE_PIXELS)
        self._mailbox.put(image.getvalue(), ".png")

    def _next(self, timeout: float) -> Datagram | None:
        if not self._found:
            self._found = self._mailbox.take(timeout, self._read) or []
        return Datagram(self._found.pop(0), PEER if self.service else None) if self._found else None

    def _read(self, file: bytes) -> list[bytes] | None:
        """The bytes of all QR codes of an image; None where it has none or is not an image."""
        try:
            with self._image.open(BytesIO(file)) as image:
                codes = self._reader.read_barcodes(
                    image.convert("L"), formats=self._reader.BarcodeFormat.QRCode
                )
        except Exception:  # Pillow raises errors of many kinds for what is not an image
            return None
        return [bytes(code.bytes) for code in codes if code.bytes] or None

    def close(self) -> None:
        self._mailbox.close()


def open_qr(address: LinkAddress) -> QrLink:
    """The link of an address: qr:FOLDER or qr-listen:FOLDER."""
    if not address.where:
        raise UsageError(f"link: expected a folder after {address.kind}:")
    return QrLink(
        Path(address.where), service=address.kind.endswith("-listen"), profile=address.profile("qr")
    )


def _qr_library(name: str) -> Any:
    """A module of the extra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LinkError(f"qr: expected the package {error.name}, found none; {remedy('qr')}") from None
