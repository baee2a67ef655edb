"""Cookies that a gateway gives to addresses, and knows again without keeping any.

Responsible for making and testing them. Not responsible for their frames (see `links.frames.cookie`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from links.frames.cookie import COOKIE_BYTES

LIFE_SECONDS = 3600.0
"""A cookie is good for this long at least, and for twice as long at most."""


class Cookies:
    """Of one process: another one's, or those from before it was started again, are not known."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, peer: str | None, now: float) -> bytes:
        """The cookie of an address."""
        return self._made(peer, int(now // LIFE_SECONDS))

    def shows(self, cookie: bytes, peer: str | None, now: float) -> bool:
        """Whether who sent this cookie has received what was sent to the address."""
        period = int(now // LIFE_SECONDS)
        return any(hmac.compare_digest(cookie, self._made(peer, each)) for each in (period, period - 1))

    def _made(self, peer: str | None, period: int) -> bytes:
        text = f"{period} {peer}".encode()
        return hmac.digest(self._secret, text, hashlib.sha256)[:COOKIE_BYTES]
