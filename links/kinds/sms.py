"""Frames as SMS: the spool folders of SMS Server Tools, or copy and paste.

Responsible for messages, numbers and packing. Not responsible for modems and phones: a frame is handed over
as a file or as text, and another program or a person carries it.
"""

from __future__ import annotations

import queue
import re
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edge_runtime.errors import LinkError, UsageError
from links.address import LinkAddress
from links.datagram import Datagram, Link
from links.kinds import sms_text
from links.kinds.mailbox import Mailbox
from links.profiles import LINK_PROFILES, LinkProfile

SMS_PROFILE = LINK_PROFILES["sms"]
ASCII, BINARY = "ascii", "binary"
"""Packings: text (see `sms_text`), or bytes as they are."""
COMPARED_DIGITS = 7
"""A network may write a number with or without its country."""
WAITING_TEXTS = 256


def _for_text(profile: LinkProfile) -> LinkProfile:
    """The profile, with frames no larger than a text holds."""
    return replace(profile, up=min(profile.up, sms_text.LARGEST), down=min(profile.down, sms_text.LARGEST))


def parse_number(text: str) -> str:
    """The digits of a telephone number. Raises LinkError where there are not 3 to 15 of them."""
    digits = re.sub(r"[ ()/-]", "", text).removeprefix("+")
    if not re.fullmatch(r"[0-9]{3,15}", digits):
        raise LinkError(f"sms: expected a number of 3 to 15 digits like +491701234567, found {text!r:.80}")
    return digits


class SpoolLink(Link):
    """The folders outgoing and incoming of SMS Server Tools 3, whose `smsd` drives modems.

    packing: ascii or binary. to: the service's number, of digits alone with the country's, as peers have it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        packing: str = ASCII,
        to: str | None = None,
        service: bool = False,
        profile: LinkProfile = SMS_PROFILE,
    ) -> None:
        super().__init__(profile if packing == BINARY else _for_text(profile), service=service)
        self._binary = packing == BINARY
        self._to = None if to is None else parse_number(to)
        self._mailbox = Mailbox(folder, "sms-spool")

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        number = self._to if peer is None else parse_number(peer)
        alphabet, body = ("binary", frame) if self._binary else ("UTF-8", sms_text.text_of(frame).encode())
        self._mailbox.put(f"To: {number}\nAlphabet: {alphabet}\n\n".encode() + body, ".sms")

    def _next(self, timeout: float) -> Datagram | None:
        return self._mailbox.take(timeout, self._read)

    def _read(self, file: bytes) -> Datagram | None:
        """The frame in a message; None where it has none, or is of somebody else."""
        # Line ends may not be changed in a message of 8 bits.
        if b"alphabet: binary" not in file[:2048].lower():
            file = file.replace(b"\r\n", b"\n")
        head, _, body = file.partition(b"\n\n")
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.decode("latin-1").split("\n"))
        }
        try:
            number = parse_number(fields.get("from", ""))
        except LinkError:
            return None
        alphabet = fields.get("alphabet", "ISO").lower()
        if (alphabet == "binary") != self._binary:
            return None
        codec = "utf-16-be" if alphabet in ("ucs2", "ucs") else "latin-1"  # of ASCII the others are the same
        data = body if self._binary else sms_text.data_of(body.decode(codec, "replace"))
        if not data:
            return None
        if self.service:
            return Datagram(data, number)
        mine = not self._to or self._to[-COMPARED_DIGITS:] == number[-COMPARED_DIGITS:]
        return Datagram(data, None) if mine else None

    def close(self) -> None:
        self._mailbox.close()


class PasteLink(Link):
    """Copy and paste: texts to send on standard error, received ones as lines of standard input."""

    def __init__(self, *, to: str | None = None, profile: LinkProfile = SMS_PROFILE) -> None:
        super().__init__(_for_text(profile))
        self._to = "" if to is None else f" to +{parse_number(to)}"
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_TEXTS)
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self) -> None:
        with suppress(OSError, ValueError):  # the stream is closed at the end
            for line in sys.stdin:
                self._lines.put(line)
        self._lines.put(None)

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        text = sms_text.text_of(frame)
        print(f"send this text{self._to}, and paste the answer's here:\n{text}", file=sys.stderr, flush=True)

    def _next(self, timeout: float) -> Datagram | None:
        deadline = self.clock.now + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - self.clock.now))
            except queue.Empty:
                return None
            if line is None:
                self._lines.put(None)
                raise LinkError("sms: expected further messages, found the end of what receives them")
            if data := sms_text.data_of(line):
                return Datagram(data, None)

    def close(self) -> None:
        """Standard input is not this link's."""


def open_sms(address: LinkAddress) -> Link:
    """The link of an address: sms-spool:FOLDER, sms-spool-listen:FOLDER or sms-paste:"""
    spool, service = address.kind != "sms-paste", address.kind.endswith("-listen")
    packing, to = address.options.get("packing", ASCII), address.options.get("to")
    if packing not in (ASCII, BINARY):
        raise UsageError(f"link: packing: expected {ASCII} or {BINARY}, found {packing!r:.80}")
    if service and to is not None:
        raise UsageError(f"link: {address.kind} answers whoever asks: expected no to, found {to!r:.80}")
    if spool and not service and to is None:
        raise UsageError(f"link: {address.kind}: expected the service's number, as in to=+491701234567")
    if spool != bool(address.where):
        raise UsageError(f"link: expected {'a folder' if spool else 'nothing'} after {address.kind}:")
    if to is not None:
        try:
            to = parse_number(to)
        except LinkError as error:
            raise UsageError(f"link: to: {error}") from None
    profile = address.profile("sms")
    if spool:
        return SpoolLink(Path(address.where), packing=packing, to=to, service=service, profile=profile)
    return PasteLink(to=to, profile=profile)
