"""A quota of money: what may be spent on frames in a day, for one peer and for all, kept on the disk.

Responsible for counting what was spent and for saying what may be. Not responsible for prices (see
`links.profiles`). A day is one of UTC. A clock that goes back does not begin a new one: what was spent on a
later day counts for today.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from common.files import locked, read_json, write_whole
from edge_runtime.errors import LinkError, UsageError
from links.duty import DAY

log = logging.getLogger("links")


class Quota:
    """Most money in a day: of_peer for each peer, of_day for all of them.

    file: where it is kept; several programs may share it. Raises UsageError for limits that are none.
    """

    def __init__(
        self,
        file: Path,
        of_peer: float = math.inf,
        of_day: float = math.inf,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not (of_peer >= 0 and of_day >= 0):
            raise UsageError(f"quota: expected money of 0 or more, found {of_peer:g} and {of_day:g}")
        self._file, self._of_peer, self._of_day, self._clock = file, of_peer, of_day, clock
        self._told: set[tuple[int, str]] = set()
        self._read()  # a file that is none is an error now, not at the first frame

    def allows(self, peer: str | None, money: float) -> bool:
        """Whether so much may be spent for a peer; says why not, once a day for each reason.

        Raises LinkError where the file is of a later day and cannot be written anew.
        """
        if self._state()[0] > self._today:  # of a clock that was wrong: it would never become another day
            self.record(peer, 0.0)
        return self._allows(peer, money)

    def _allows(self, peer: str | None, money: float) -> bool:
        day, peers = self._read()
        quotas = {
            f"of {peer}": (peers.get(str(peer), 0.0), self._of_peer),
            "of the day": (sum(peers.values()), self._of_day),
        }
        over = {(day, name) for name, (spent, most) in quotas.items() if spent + money > most * (1 + 1e-9)}
        for _, name in sorted(over - self._told):
            log.warning("the quota %s is used up: no frames to %s", name, peer)
        self._told |= over
        return not over

    def spend(self, peer: str | None, money: float) -> bool:
        """Counts what is about to be spent; False, and nothing counted, where the quota does not have it.

        Other programs that share the file spend before or after, never at the same time. Raises LinkError
        where it cannot be written.
        """
        with self._alone():
            allowed = self._allows(peer, money)
            if allowed:
                self._add(peer, money)
            return allowed

    def record(self, peer: str | None, money: float) -> None:
        """Counts what was spent already. Raises LinkError where it cannot be written."""
        with self._alone():
            self._add(peer, money)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with locked(self._file.with_name(self._file.name + ".lock")):
                yield
        except OSError as error:
            raise LinkError(f"{self._file}: expected to keep what is spent, found {error}") from None

    def _add(self, peer: str | None, money: float) -> None:
        day, peers = self._read()
        peers[str(peer)] = peers.get(str(peer), 0.0) + money
        write_whole(self._file, json.dumps({"day": day, "peers": peers}).encode("ascii"))

    @property
    def _today(self) -> int:
        return int(self._clock() // DAY)

    def _read(self) -> tuple[int, dict[str, float]]:
        """Today, and what was spent on it."""
        (day, peers), today = self._state(), self._today
        return today, peers if day >= today else {}

    def _state(self) -> tuple[int, dict[str, float]]:
        """The day of the file, and what was spent on it by peer; raises UsageError for another file."""
        try:
            if not self._file.exists():
                return self._today, {}
            state = read_json(self._file, UsageError)
            day = int(state["day"])
            peers = {str(peer): float(money) for peer, money in state["peers"].items()}
        except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{self._file}: expected what was spent, found {error!r:.100}; delete it to begin again"
            ) from None
        return day, peers


def state_folder() -> Path:
    """Where programs keep what they know of this user."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "inverse-speculation"
