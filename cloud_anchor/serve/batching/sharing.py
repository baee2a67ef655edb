"""What one client (a key or an address) may take of a service that others use at the same time."""

from __future__ import annotations

RECENT = 30.0
"""Seconds for which a client that has asked counts as one of those who share the service."""

PLACES = 2
"""The part of all places, batch and queue, that a client may hold while others ask: one in so many."""


class Clients:
    """Who asked last. Not thread-safe."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}  # two of them, the latest last: one is not the one who asks

    def asks(self, client: str, now: float) -> None:
        """A client's request has come. One without a name is the service's own, and shares with nobody."""
        if client:
            self._asked.pop(client, None)
            self._asked = dict([*self._asked.items(), (client, now)][-2:])

    def others(self, client: str, now: float) -> bool:
        """True where the service is not this client's alone."""
        return any(name != client and now - at < RECENT for name, at in self._asked.items())
