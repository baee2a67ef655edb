"""The interface of a phase: a measurement per item, and the tables and claims that follow from its records.

`measure` needs the models; `tables` and `claims` are pure functions of the records that it has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.case import Case, Lab
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Claim, Table

Records = Sequence[Record]


@dataclass(frozen=True)
class About:
    """Models and plan of a run, for its tables: names and sizes, nothing loaded.

    edges:   name -> parameters, the main one first. missing: name of an absent model -> reason.
    steps, paper_steps: as in Lab. precision: of the edge models where their sizes are compared.
    """

    model: str
    parameters: int
    canvas: int
    total_steps: int
    steps: tuple[int, ...]
    paper_steps: tuple[int, ...]
    edges: Mapping[str, int]
    missing: Mapping[str, str] = field(default_factory=dict)
    thinker: str | None = None
    thinker_parameters: int = 0
    precision: str | None = None

    def share(self, step: int) -> str:
        """Steps of the full run, as text."""
        return f"{step} of {self.total_steps}"

    def where(self, order: str, step: int | None = None) -> str:
        """Order and steps at which a claim was measured, as text."""
        return f"order by {order}" + (f", {self.share(step)} steps" if step else "")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> About:
        lists = {name: tuple(data[name]) for name in ("steps", "paper_steps")}
        return cls(**{**data, **lists})


def every_item(item: Item) -> bool:
    return True


def needs_nothing(lab: Lab) -> str | None:
    return None


def no_claims(records: Records, about: About) -> list[Claim]:
    return []


@dataclass(frozen=True)
class Phase:
    """One experiment.

    measure: the record of one item. limit: number of items, the first ones; None for all.
    wanted:  True for the items that it measures.
    needs:   the reason for which it cannot be run with these models; None where it can.
    """

    name: str
    title: str
    measure: Callable[[Case], dict[str, Any]]
    tables: Callable[[Records, About], list[Table]]
    claims: Callable[[Records, About], list[Claim]] = no_claims
    limit: int | None = None
    wanted: Callable[[Item], bool] = every_item
    needs: Callable[[Lab], str | None] = needs_nothing
