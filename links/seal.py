"""Seals: authenticated, and on demand encrypted, frames with six bytes more.

Responsible for keys, tags, counters that are never used twice and the window against replays. Not responsible
for what is in a frame (see `links.frames`) nor for links that encrypt by themselves, which need none.

A pair of files belongs to one device and its gateway: the key, the role, and what was sent and received. The
state is in the same file as the key, so that a key without its counters, which would use them again, cannot
be. A copy that was put back from a backup would: make a new pair in its place.

    sealed frame   byte 0-1 low 16 bits of the counter, big-endian; then the frame, or its ciphertext; the
                   last 4 bytes are the tag: HMAC-SHA256(key, counter (8 bytes) || frame), truncated, or that
                   of AES-CCM (RFC 3610, AES-256) with the counter as nonce (13 bytes)

Each direction has keys of its own. The receiver completes the counter to the one nearest to the highest it
has seen (as RFC 3711, section 3.3.1) and refuses one that it has seen, or 64 behind the highest and more. A
forged tag passes once in 2^32 tries, each of them a frame on the link.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import sqlite3
import sys
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.cli import option, run_options
from common.installed import remedy
from edge_runtime.errors import LinkError, UsageError
from links.datagram import Datagram, Link
from links.profiles import FrameCost

COUNTER_BYTES, TAG_BYTES = 2, 4
SEAL_BYTES = COUNTER_BYTES + TAG_BYTES
"""By how much a sealed frame is longer."""

WINDOW = 64
"""Counters behind the highest that are still taken, once each."""

KEY_BYTES = 32
DEVICE, GATEWAY = "device", "gateway"
_TURN = 1 << 8 * COUNTER_BYTES
_MAX_PEERS = 1024


log = logging.getLogger("links.seal")


class Seal:
    """One side of a pair, in a file. Every frame that counts is in the file, so that processes may share it.

    role: "device" or "gateway". encrypted: whether frames are encrypted too.
    """

    def __init__(self, path: str | Path) -> None:
        """Raises LinkError where the file is none, UsageError where its encryption needs a library."""
        self.path = Path(path)
        self._known = (0, 0), 0  # the file's stamp when it was read, and the highest counter in it
        with self._state(write=False) as connection:
            row = connection.execute("SELECT key, role, encrypted FROM seal").fetchone()
        key, self.role, self.encrypted = bytes(row[0]), str(row[1]), bool(row[2])
        other = GATEWAY if self.role == DEVICE else DEVICE
        self._sending = _Cipher.of(key, self.role, self.encrypted)
        self._receiving = _Cipher.of(key, other, self.encrypted)

    def seal(self, frame: bytes) -> bytes:
        """The frame as it goes over the link. Its counter is on the disk before this returns."""
        with self._state(write=True) as connection:
            counter = int(connection.execute("SELECT sent FROM seal").fetchone()[0]) + 1
            connection.execute("UPDATE seal SET sent = ?", (counter,))
        return (counter % _TURN).to_bytes(COUNTER_BYTES, "big") + self._sending.close(counter, frame)

    def open(self, data: bytes) -> bytes | None:
        """The frame in a sealed one; None where it is not of the other side, was changed or came before.

        The file is opened for a frame whose tag is right alone: a forged one costs its tag.
        """
        if len(data) <= SEAL_BYTES:
            return None
        low, body = int.from_bytes(data[:COUNTER_BYTES], "big"), data[COUNTER_BYTES:]
        likely = nearest(low, self._highest())
        if likely < 1 or self._receiving.open(likely, body) is None:
            return None
        with self._state(write=True) as connection:
            highest, window = map(int, connection.execute("SELECT highest, window FROM seal").fetchone())
            counter = nearest(low, highest)
            behind = highest - counter
            if counter < 1 or behind >= WINDOW or (behind >= 0 and window >> behind & 1):
                return None
            frame = self._receiving.open(counter, body)
            if frame is None:
                return None
            if behind < 0:
                window = (window << min(-behind, WINDOW) | 1) & (1 << WINDOW) - 1
                highest = counter
            else:
                window |= 1 << behind
            # As text: SQLite's integers have a sign.
            connection.execute("UPDATE seal SET highest = ?, window = ?", (highest, str(window)))
        return frame

    def _highest(self) -> int:
        """The highest counter received, read again where another process has changed the file."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise LinkError(f"{self.path}: expected a seal, found: {error.strerror or error}") from None
        stamp = status.st_mtime_ns, status.st_ino
        if stamp != self._known[0]:
            with self._state(write=False) as connection:
                self._known = stamp, int(connection.execute("SELECT highest FROM seal").fetchone()[0])
        return self._known[1]

    @contextmanager
    def _state(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """The file, locked against other writers and changed as a whole or not at all."""
        try:
            if not self.path.is_file():
                raise LinkError(
                    f"{self.path}: expected a seal, found no such file; make a pair with "
                    "`python -m links.seal NAME`"
                )
            with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise LinkError(f"{self.path}: expected a seal that can be written, found: {error}") from None


def nearest(low: int, highest: int) -> int:
    """The counter with these low bits that is nearest to the highest one seen."""
    counter = highest - highest % _TURN + low
    if counter - highest > _TURN // 2:
        return counter - _TURN
    return counter + _TURN if highest - counter >= _TURN // 2 else counter


class _Cipher:
    """One direction: tags, or with AES-CCM ciphertext with a tag."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @staticmethod
    def of(key: bytes, sender: str, encrypted: bool) -> _Cipher:
        purpose = f"inverse speculation, seal 1, {'encryption' if encrypted else 'tags'} of the {sender}"
        derived = hmac.digest(key, purpose.encode("ascii"), hashlib.sha256)
        return _CcmCipher(derived) if encrypted else _Cipher(derived)

    def close(self, counter: int, frame: bytes) -> bytes:
        return frame + self._tag(counter, frame)

    def open(self, counter: int, body: bytes) -> bytes | None:
        frame, tag = body[:-TAG_BYTES], body[-TAG_BYTES:]
        return frame if hmac.compare_digest(tag, self._tag(counter, frame)) else None

    def _tag(self, counter: int, frame: bytes) -> bytes:
        return hmac.digest(self._key, counter.to_bytes(8, "big") + frame, hashlib.sha256)[:TAG_BYTES]


class _CcmCipher(_Cipher):
    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESCCM
        except ImportError:
            raise UsageError(
                f"seal: expected the extra `sealed` for a seal that encrypts ({remedy('sealed')}), found no "
                "library `cryptography`"
            ) from None
        super().__init__(key)
        self._aead = AESCCM(key, tag_length=TAG_BYTES)

    def close(self, counter: int, frame: bytes) -> bytes:
        sealed: bytes = self._aead.encrypt(counter.to_bytes(13, "big"), frame, None)
        return sealed

    def open(self, counter: int, body: bytes) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        try:
            frame: bytes = self._aead.decrypt(counter.to_bytes(13, "big"), body, None)
        except InvalidTag:
            return None
        return frame


class SealedLink(Link):
    """A link whose frames are sealed. What is not sealed by one of the other sides is not received.

    seals: on a device one; on the service's end one for each device, tried in turn, the peer's last one
    first.
    dropped: number of frames that were not received, those among them whose seal's file cannot be written.
    """

    authenticated = True

    def __init__(self, link: Link, seals: Sequence[Seal]) -> None:
        """Raises UsageError for seals of the other role, or more than one on a device."""
        wanted = GATEWAY if link.service else DEVICE
        wrong = [str(seal.path) for seal in seals if seal.role != wanted]
        if wrong or not seals or (len(seals) > 1 and not link.service):
            raise UsageError(
                f"seal: expected {'seals' if link.service else 'one seal'} of the {wanted}'s side, found "
                f"{', '.join(wrong) if wrong else len(seals)}"
            )
        super().__init__(link.profile, clock=link.clock, service=link.service)
        self.sent, self.received = link.sent, link.received
        self.dropped = 0
        self._link, self._seals = link, list(seals)
        self._of_peer: OrderedDict[str | None, Seal] = OrderedDict()

    @property
    def oversized(self) -> int:
        return self._link.oversized

    @property
    def largest(self) -> int:
        return self._link.largest - SEAL_BYTES

    @property
    def largest_received(self) -> int:
        return self._link.largest_received - SEAL_BYTES

    def sender(self, peer: str | None) -> str | None:
        return self._link.sender(peer)

    def cost(self, size: int) -> FrameCost:
        return self._link.cost(size + SEAL_BYTES)

    def pause(self, size: int, peer: str | None = None) -> float:
        return self._link.pause(size + SEAL_BYTES, peer)

    def send(self, frame: bytes, peer: str | None = None) -> None:
        if not 1 <= len(frame) <= self.largest:
            raise LinkError(
                f"{self.profile.name}: expected a frame of 1 to {self.largest} bytes and a seal, found "
                f"{len(frame)}; ask for a smaller one"
            )
        self._transmit(frame, peer)

    def receive(self, timeout: float) -> Datagram | None:
        deadline = self.clock() + timeout
        while True:
            found = self._next(max(0.0, deadline - self.clock()))
            opened = None if found is None else self.opened(found)
            if found is None or opened is not None:
                return opened

    def opened(self, datagram: Datagram) -> Datagram | None:
        """What `receive` makes of a frame that has arrived: the frame inside, or None."""
        known = self._of_peer.get(datagram.peer)
        for seal in [known, *self._seals] if known is not None else self._seals:
            try:
                frame = seal.open(datagram.data)
            except LinkError as error:  # a full disk: what cannot be counted is not taken
                log.warning("a frame is dropped: %s", error)
                continue
            if frame is not None:
                self._of_peer[datagram.peer] = seal
                self._of_peer.move_to_end(datagram.peer)
                if len(self._of_peer) > _MAX_PEERS:
                    self._of_peer.popitem(last=False)
                return Datagram(frame, datagram.peer)
        self.dropped += 1
        return None

    def _transmit(self, frame: bytes, peer: str | None) -> None:
        seal = self._of_peer.get(peer) if self.service else self._seals[0]
        if seal is None:
            raise LinkError(f"seal: expected a peer that has been heard, found {peer!r:.80}")
        self._link.send(seal.seal(frame), peer)

    def _next(self, timeout: float) -> Datagram | None:
        return self._link.receive(timeout)

    def close(self) -> None:
        self._link.close()


def make_pair(name: str | Path, *, encrypted: bool = False) -> tuple[Path, Path]:
    """Make the files NAME.device.seal and NAME.gateway.seal, readable for their owner only; returns both.

    Raises UsageError where one of them exists: its key would be lost.
    """
    key = secrets.token_bytes(KEY_BYTES)
    paths = tuple(Path(f"{name}.{role}.seal") for role in (DEVICE, GATEWAY))
    for path in paths:
        if path.exists():
            raise UsageError(
                f"{path}: expected a new name, found an existing file; delete it to make a new key"
            )
    for path, role in zip(paths, (DEVICE, GATEWAY), strict=True):
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(
                    "CREATE TABLE seal (key BLOB, role TEXT, encrypted INTEGER, sent INTEGER, "
                    "highest INTEGER, window TEXT)"
                )
                connection.execute("INSERT INTO seal VALUES (?, ?, ?, 0, 0, '0')", (key, role, encrypted))
        except (OSError, sqlite3.Error) as error:
            raise UsageError(f"{path}: expected a file that can be made, found: {error}") from None
    return paths[0], paths[1]


@dataclass(frozen=True)
class _SealArguments:
    """Make the two files of a seal: NAME.device.seal for the device, NAME.gateway.seal for the gateway.

    Each holds the key and counters: keep one copy of it, and never put an old one back.
    """

    name: str = option("", "of the device, with a folder where wanted", flags=("name",), metavar="NAME")
    encrypted: bool = option(False, "encrypt frames too; for links that do not (extra `sealed`)")


def main(argv: Sequence[str] | None = None) -> int:
    return run_options(
        "links.seal", _run, _SealArguments, argv, "example:\n  python -m links.seal buoy-7 --encrypted"
    )


def _run(args: _SealArguments) -> None:
    for path in make_pair(args.name, encrypted=args.encrypted):
        print(path)


if __name__ == "__main__":
    sys.exit(main())
