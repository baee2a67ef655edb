"""Frames as SMS: the spool folders of SMS Server Tools, any two commands, or copy and paste.

Responsible for messages, numbers and packing. Not responsible for modems and phones: a frame is handed over
as a file or as text, and another program or a person carries it.
"""

from __future__ import annotations

import queue
import re
import shlex
import subprocess
import sys
import threading
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edge_runtime.errors import LinkError, UsageError
from links.address import LinkAddress
from links.datagram import Datagram, Link
from links.kinds.mailbox import Mailbox
from links.kinds.sms_text import ALPHABETS
from links.profiles import LINK_PROFILES, LinkProfile

SMS_PROFILE = LINK_PROFILES["sms"]
PACKINGS = (*ALPHABETS, "binary")
COMPARED_DIGITS = 7
"""A network may write a number with or without its country."""
SEND_SECONDS = 60.0
WAITING_TEXTS = 256


class SmsLink(Link):
    """What all ways to carry an SMS have in common.

    packing: ascii, gsm7 or binary (see `sms_text`). to: the service's number, None where it needs none.
    Peers are numbers of digits alone, with the country's.
    """

    def __init__(self, profile: LinkProfile, packing: str, *, to: str | None, service: bool) -> None:
        largest = profile.up if packing == "binary" else ALPHABETS[packing].largest
        least = replace(profile, up=min(profile.up, largest), down=min(profile.down, largest))
        super().__init__(least, service=service)
        self._packing = packing
        self._to = None if to is None else parse_number(to)

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        number = self._to if peer is None else parse_number(peer)
        if self._packing == "binary":
            self._hand_over(number, frame)
        else:
            self._hand_over(number, ALPHABETS[self._packing].text(frame))

    @abstractmethod
    def _hand_over(self, number: str | None, message: str | bytes) -> None:
        """Give a message to what carries it."""

    def _received(self, number: str | None, message: str | bytes) -> Datagram | None:
        """The frame in a message; None where it has none, or is of somebody else."""
        if (self._packing == "binary") != isinstance(message, bytes):
            return None
        data = message if isinstance(message, bytes) else ALPHABETS[self._packing].data(message)
        if not data:
            return None
        if self.service:
            return Datagram(data, number)
        if self._to and number and self._to[-COMPARED_DIGITS:] != number[-COMPARED_DIGITS:]:
            return None
        return Datagram(data, None)


def parse_number(text: str) -> str:
    """The digits of a telephone number. Raises LinkError where there are not 3 to 15 of them."""
    digits = re.sub(r"[ ()/-]", "", text).removeprefix("+")
    if not re.fullmatch(r"[0-9]{3,15}", digits):
        raise LinkError(f"sms: expected a number of 3 to 15 digits like +491701234567, found {text!r:.80}")
    return digits


class SpoolLink(SmsLink):
    """The folders outgoing and incoming of SMS Server Tools 3, whose `smsd` drives modems.

    gsm7 needs `incoming_utf8 = yes` in its settings.
    """

    def __init__(
        self,
        folder: Path,
        *,
        packing: str = "ascii",
        to: str | None = None,
        service: bool = False,
        profile: LinkProfile = SMS_PROFILE,
    ) -> None:
        super().__init__(profile, packing, to=to, service=service)
        self._mailbox = Mailbox(folder, "sms-spool")

    def _hand_over(self, number: str | None, message: str | bytes) -> None:
        alphabet = "binary" if isinstance(message, bytes) else "UTF-8"
        body = message if isinstance(message, bytes) else message.encode()
        self._mailbox.put(f"To: {number}\nAlphabet: {alphabet}\n\n".encode() + body, ".sms")

    def _next(self, timeout: float) -> Datagram | None:
        return self._mailbox.take(timeout, self._read)

    def _read(self, file: bytes) -> Datagram | None:
        # Line ends may not be changed in a message of 8 bits.
        if b"alphabet: binary" not in file[:2048].lower():
            file = file.replace(b"\r\n", b"\n")
        head, end, body = file.partition(b"\n\n")
        if not end:
            return None
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.decode("latin-1").split("\n"))
        }
        try:
            number = parse_number(fields.get("from", ""))
        except LinkError:
            return None
        alphabet = fields.get("alphabet", "ISO").lower()
        if alphabet == "binary":
            return self._received(number, body)
        codec = {"utf-8": "utf-8", "ucs2": "utf-16-be", "ucs": "utf-16-be"}.get(alphabet, "iso-8859-15")
        return self._received(number, body.decode(codec, "replace"))

    def close(self) -> None:
        self._mailbox.close()


class LinesLink(SmsLink):
    """Messages as lines of text that come from a stream, and go to `_hand_over`.

    numbered: whether a line begins with the sender's number.
    """

    def __init__(
        self, profile: LinkProfile, packing: str, *, to: str | None, service: bool, numbered: bool
    ) -> None:
        super().__init__(profile, packing, to=to, service=service)
        self._numbered = numbered
        self._lines: queue.Queue[str | None] = queue.Queue(WAITING_TEXTS)
        self._ended = False
        self._closed = False

    def _listen(self, lines: Iterable[str]) -> None:
        threading.Thread(target=self._fill, args=(lines,), daemon=True).start()

    def _fill(self, lines: Iterable[str]) -> None:
        with suppress(OSError, ValueError):  # the stream is closed at the end
            for line in lines:
                with suppress(queue.Full):
                    self._lines.put_nowait(line)
        self._lines.put(None)

    def _next(self, timeout: float) -> Datagram | None:
        deadline = self.clock.now + timeout
        while True:
            if self._closed:
                raise LinkError("sms: the link is closed; open another one")
            if self._ended:
                raise LinkError("sms: expected further messages, found the end of what receives them")
            try:
                line = self._lines.get(timeout=max(0.0, deadline - self.clock.now))
            except queue.Empty:
                return None
            if line is None:
                self._ended = True
                continue
            number, _, text = line.strip().partition(" ") if self._numbered else ("", "", line)
            try:
                found = self._received(parse_number(number) if self._numbered else None, text)
            except LinkError:  # a line of something else
                continue
            if found is not None:
                return found

    def close(self) -> None:
        self._closed = True
        with suppress(queue.Full):
            self._lines.put_nowait(None)


class PasteLink(LinesLink):
    """Copy and paste: texts to send on standard error, received ones as lines of standard input."""

    def __init__(
        self, *, packing: str = "ascii", to: str | None = None, profile: LinkProfile = SMS_PROFILE
    ) -> None:
        super().__init__(profile, packing, to=to, service=False, numbered=False)
        self._listen(sys.stdin)

    def _hand_over(self, number: str | None, message: str | bytes) -> None:
        to = "" if number is None else f" to +{number}"
        print(f"send this text{to}, and paste the answer's here:\n{message!s}", file=sys.stderr, flush=True)


class CommandLink(LinesLink):
    """Two commands: one is run for every message, with its text as input; one prints what arrives.

    send:    words as in a shell; {to} stands for the number.
    receive: runs as long as the link is open and prints a line for every message: number, space, text.
    """

    def __init__(
        self,
        send: str,
        receive: str,
        *,
        packing: str = "ascii",
        to: str | None = None,
        service: bool = False,
        profile: LinkProfile = SMS_PROFILE,
    ) -> None:
        super().__init__(profile, packing, to=to, service=service, numbered=True)
        self._send = _words("send", send)
        words = _words("receive", receive)
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise LinkError(f"sms: receive: {words[0]}: {error.strerror}") from None
        if self._process.stdout is not None:
            self._listen(self._process.stdout)

    def _hand_over(self, number: str | None, message: str | bytes) -> None:
        words = [word.replace("{to}", number or "") for word in self._send]
        try:
            subprocess.run(
                words,
                input=str(message),
                text=True,
                encoding="utf-8",
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=SEND_SECONDS,
            )
        except OSError as error:
            raise LinkError(f"sms: send: {words[0]}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise LinkError(f"sms: send: {words[0]} has not ended within {SEND_SECONDS:g} s") from None
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "").strip().splitlines()
            raise LinkError(
                f"sms: send: {words[0]}: exit code {error.returncode}{': ' + said[-1] if said else ''}"
            ) from None

    def close(self) -> None:
        super().close()
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


def _words(name: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(
            f"link: {name}: expected words as in a shell, found {command!r:.100}: {error}"
        ) from None
    if not words:
        raise UsageError(f"link: expected a command in option {name}, found none")
    return words


def open_sms(address: LinkAddress) -> Link:
    """The link of an address: sms-spool:FOLDER, sms-paste:, sms-command:?send=...&receive=..."""
    service = address.kind.endswith("-listen")
    kind = address.kind.removesuffix("-listen")
    packing = address.options.get("packing", "ascii")
    known = PACKINGS if kind == "sms-spool" else tuple(ALPHABETS)
    if packing not in known:
        raise UsageError(f"link: packing: expected one of {', '.join(known)}; found {packing!r:.80}")
    to = address.options.get("to")
    if service and to is not None:
        raise UsageError(f"link: {address.kind} answers whoever asks: expected no to, found {to!r:.80}")
    if not service and to is None and kind != "sms-paste":
        raise UsageError(f"link: {address.kind}: expected the service's number, as in to=+491701234567")
    try:
        to = None if to is None else parse_number(to)
    except LinkError as error:
        raise UsageError(f"link: to: {error}") from None
    profile = address.profile("sms")
    if (kind == "sms-spool") != bool(address.where):
        raise UsageError(f"link: expected {'a folder' if kind == 'sms-spool' else 'nothing'} after {kind}:")
    if kind == "sms-spool":
        return SpoolLink(Path(address.where), packing=packing, to=to, service=service, profile=profile)
    if kind == "sms-paste":
        return PasteLink(packing=packing, to=to, profile=profile)
    send, receive = (address.options.get(name, "") for name in ("send", "receive"))
    return CommandLink(send, receive, packing=packing, to=to, service=service, profile=profile)
