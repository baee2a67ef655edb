"""What may be asked in a day: requests, bytes and money over each link, kept on the disk.

Responsible for counting what was spent by each link and for refusing what is beyond the limits. Not
responsible for prices (see `links.profiles`) or for requests (see `online`). A day is one of UTC; a clock
that goes back does not begin a new one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

from common.cli import option
from common.files import read_json, write_whole
from edge_runtime.errors import BudgetSpentError, UsageError
from edge_runtime.memory import AnswerMemory

DAY = 86400.0
FILE = "budget.json"


@dataclass(frozen=True)
class Spent:
    """Requests, bytes of questions and payloads both ways, and money in the link's currency."""

    requests: int = 0
    bytes: int = 0
    money: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.requests + other.requests, self.bytes + other.bytes, self.money + other.money)


@dataclass(frozen=True)
class Limits:
    """Most of each in a day, over one link; None for any. Bytes and money are known once they are spent: the
    answer that reaches a limit is the last one.
    """

    requests: int | None = None
    bytes: int | None = None
    money: float | None = None


class DailyBudget:
    """What was spent today, by link. folder: where it is kept.

    price: money of a request over a link that has no tariff of its own, such as HTTP.
    """

    def __init__(
        self, folder: Path, limits: Limits, *, price: float = 0.0, clock: Callable[[], float] = time.time
    ) -> None:
        self.limits, self.price = limits, price
        self._file, self._clock = folder / FILE, clock

    def spent(self, link: str) -> Spent:
        """What was spent over a link today. Raises UsageError where the file is not one of this software."""
        return self._read()[1].get(link, Spent())

    def begin(self, link: str) -> None:
        """Counts a request that is about to be sent. Raises BudgetSpentError where it may not be, and
        UsageError where it cannot be counted.
        """
        spent = self.spent(link)
        for name, most in vars(self.limits).items():
            if most is not None and getattr(spent, name) >= most:
                raise BudgetSpentError(
                    f"{link}: today's budget of {most:g} {name} is spent ({getattr(spent, name):g})"
                )
        self.spend(link, Spent(requests=1))

    def spend(self, link: str, more: Spent) -> None:
        """Counts what a request has cost. Raises UsageError where that cannot be written."""
        day, links = self._read()
        links[link] = links.get(link, Spent()) + more
        state = {"day": day, "links": {name: astuple(spent) for name, spent in links.items()}}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._file, json.dumps(state).encode("ascii"))
        except OSError as error:
            raise UsageError(f"{self._file}: expected to keep what is spent, found {error}") from None

    def _read(self) -> tuple[int, dict[str, Spent]]:
        """The day, and what was spent on it; read each time, as several programs may share the file."""
        today = int(self._clock() // DAY)
        if not self._file.exists():
            return today, {}
        try:
            state = read_json(self._file, UsageError)
            day = int(state["day"])
            links = {
                str(name): Spent(int(requests), int(size), float(money))
                for name, (requests, size, money) in state["links"].items()
            }
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise UsageError(
                f"{self._file}: expected what was spent, found {error!r:.100}; delete it to begin again"
            ) from None
        return (day, links) if day >= today else (today, {})


_budget = partial(option, group="budget")
BUDGET_GROUP = {
    "budget": "What may be asked in a day, and what is remembered. Private prompts are in neither."
}


def state_folder() -> Path:
    """Where programs keep what they know of this user."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "inverse-speculation"


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """The options of budgets and of remembered answers."""

    day_requests: int | None = _budget(None, "most requests a day; default: any", int, metavar="N")
    day_bytes: int | None = _budget(
        None, "most bytes a day, of questions and payloads; default: any", int, metavar="N"
    )
    day_money: float | None = _budget(None, "most money a day; default: any", float, metavar="M")
    price: float = _budget(0.0, "money of a request over HTTP (default 0)", metavar="M")
    remember: float = _budget(0.0, "remember the cloud's anchors for D days (default 0: not)", metavar="D")
    state: Path | None = option(
        None,
        "folder of both; default: $XDG_STATE_HOME/inverse-speculation",
        Path,
        metavar="FOLDER",
        group="budget",
    )

    @property
    def folder(self) -> Path:
        return self.state or state_folder()

    def daily(self) -> DailyBudget:
        """The day's budget; raises UsageError for a negative limit."""
        limits = Limits(self.day_requests, self.day_bytes, self.day_money)
        for name, value in {**vars(limits), "price": self.price, "remember": self.remember}.items():
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"{name}: expected 0 or more, found {value:g}")
        return DailyBudget(self.folder, limits, price=self.price)

    def memory(self) -> AnswerMemory | None:
        """Where answers are remembered; None for nowhere."""
        return AnswerMemory(self.folder, self.remember * DAY) if self.remember else None
