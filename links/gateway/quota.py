"""Quotas of money: what a gateway may send for each peer, in a day, and in all.

Responsible for counting what was spent, on the disk where there is a folder, and for saying what may be. Not
responsible for prices (see `links.profiles`). A day is one of UTC; a clock that goes back does not begin a
new one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common.files import read_json, write_whole
from edge_runtime.errors import LinkError, UsageError
from links.duty import DAY

log = logging.getLogger("links.gateway")

FILE = "quota.json"


@dataclass(frozen=True)
class Spending:
    """Most money of frames sent, in the currency of the link's tariff: to one peer in a day, to all of them
    in a day, and in all.
    """

    of_peer: float = 1.0
    of_day: float = 10.0
    of_all: float = 100.0


class Quota:
    """What was spent. folder: where it is kept; without one it is forgotten at the end."""

    def __init__(
        self,
        spending: Spending,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises UsageError where the folder cannot be used."""
        self._most, self._clock = spending, clock
        self._file = None if folder is None else folder / FILE
        self._day, self._total = 0, 0.0
        self._peers: dict[str, float] = {}  # of this day
        self._told: set[str] = set()
        if self._file is not None:
            self._read(self._file)

    def allows(self, peer: str | None, money: float) -> bool:
        """Whether a frame of this price may be sent; says why not, once a day for each reason."""
        self._begin_day()
        name, most = str(peer), self._most
        quotas = {
            f"{name}, of this day": (self._peers.get(name, 0.0), most.of_peer),
            "of this day": (sum(self._peers.values()), most.of_day),
            "of all days": (self._total, most.of_all),
        }
        over = {each for each, (spent, limit) in quotas.items() if spent + money > limit * (1 + 1e-9)}
        for each in sorted(over - self._told):
            log.warning("the quota %s is used up: no frames to %s", each, name)
        self._told |= over
        return not over

    def spend(self, peer: str | None, money: float) -> None:
        """Count a frame that is about to be sent. Raises LinkError where that cannot be written."""
        self._begin_day()
        self._peers[str(peer)] = self._peers.get(str(peer), 0.0) + money
        self._total += money
        if self._file is not None:
            state = {"day": self._day, "total": self._total, "peers": self._peers}
            try:
                write_whole(self._file, json.dumps(state).encode("ascii"))
            except OSError as error:
                raise LinkError(
                    f"{self._file}: a frame is not sent, as its price cannot be kept: {error}"
                ) from None

    def _begin_day(self) -> None:
        day = int(self._clock() // DAY)
        if day > self._day:
            self._day = day
            self._peers.clear()
            self._told.clear()

    def _read(self, file: Path) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                return
            state = read_json(file)
            self._day, self._total = int(state["day"]), float(state["total"])
            self._peers = {str(peer): float(money) for peer, money in state["peers"].items()}
        except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{file}: expected what a gateway has spent, found {error!r:.100}; delete it to begin again"
            ) from None
