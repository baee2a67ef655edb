"""The methods over the networks: simulated conversations, and their figures.

Responsible for repeating conversations with other losses, for means over them and paired differences by
question, and for the share of right answers over time. Not responsible for what a method does (see
`methods`), for a conversation (see `links.conversation`) or for presentation (see `rivals_report`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.links.conversation import CLOUD, EDGE, Outcome, Speeds, converse
from lab.links.networks import Network
from lab.rivals.methods import Exchange
from lab.statistics import difference, summary

Figures = dict[str, Any]

METRICS = ("right", "success", "first", "standing", "last", "up", "down")
"""Of a conversation: whether the answer on the screen at the end of the patience is right; whether the method
came to its end; seconds to the first token, to the first that stays, and to the last; bytes, all framing and
repetitions included."""

POINTS = 240
"""Times of a curve."""


@dataclass(frozen=True)
class Race:
    """What is simulated.

    repeats: conversations of each question with other losses; where there is no loss there is one.
    parameters: of the diffusion model and of the edge model.
    """

    networks: Sequence[Network]
    losses: Sequence[float]
    repeats: int
    speeds: Speeds
    parameters: tuple[int, int]
    seed: int = 0


def figures_of(outcome: Outcome, exchange: Exchange) -> dict[str, float | None]:
    """METRICS of one conversation; times that did not come are None."""
    text = outcome.texts[-1][1] if outcome.texts else None
    return {
        "right": float(text is not None and exchange.right[text]),
        "success": float(not outcome.failed),
        "first": outcome.first,
        "standing": outcome.standing,
        "last": outcome.last,
        "up": float(outcome.up),
        "down": float(outcome.down),
    }


def right_at(outcome: Outcome, exchange: Exchange, times: Sequence[float]) -> list[float]:
    """At each time, ascending, 1 where a whole text is on the screen and right, else 0."""
    found, state, position = [], 0.0, 0
    for time in times:
        while position < len(outcome.texts) and outcome.texts[position][0] <= time:
            text = outcome.texts[position][1]
            state = float(text is not None and exchange.right[text])
            position += 1
        found.append(state)
    return found


def grid(network: Network, speeds: Speeds) -> list[float]:
    """Times of a network's curve: from the least of a delay and a pass to the patience, by ratio."""
    least = max(1e-3, min(network.delay, 10 * speeds.device))
    return [float(time) for time in np.geomspace(least, network.patience, POINTS)]


def race(
    exchanges: Mapping[str, Sequence[Exchange]], setting: Race, step: Callable[[], None] = lambda: None
) -> list[Figures]:
    """One row of figures per network, loss and method.

    exchanges: by question, the same methods in the same order. step: called after each question at each
    network and loss.
    """
    rows = []
    for network in setting.networks:
        times = grid(network, setting.speeds)
        for loss in setting.losses:
            cells: dict[str, _Cell] = {}
            for question, found in exchanges.items():
                for exchange in found:
                    cell = cells.setdefault(exchange.method, _Cell(exchange.method, len(times)))
                    cell.add(exchange, network, loss, question, setting, times)
                step()
            rows += [
                {"network": network.name, "loss": loss, "times": times, **cell.figures(setting.parameters)}
                for cell in cells.values()
            ]
    return rows


class _Cell:
    """The conversations of one method over one network with one loss."""

    def __init__(self, method: str, points: int) -> None:
        self.method = method
        self.values: dict[str, list[float | None]] = {name: [] for name in METRICS}
        self.curve = np.zeros(points)
        self.conversations = 0
        self.work: list[tuple[int, int, int]] = []

    def add(
        self,
        exchange: Exchange,
        network: Network,
        loss: float,
        question: str,
        setting: Race,
        times: Sequence[float],
    ) -> None:
        """All conversations of one question; a question counts once, with their mean."""
        kept: dict[str, list[float]] = {name: [] for name in METRICS}
        for repeat in range(setting.repeats if loss else 1):
            seed = f"{setting.seed}/{question}/{network.name}/{loss}/{repeat}"
            outcome = converse(exchange.device, exchange.cloud, network, loss, seed, setting.speeds)
            for name, value in figures_of(outcome, exchange).items():
                kept[name] += [] if value is None else [value]
            self.curve += right_at(outcome, exchange, times)
            self.conversations += 1
        for name, values in kept.items():
            self.values[name].append(sum(values) / len(values) if values else None)
        self.work.append((exchange.rows(CLOUD), exchange.rows(EDGE), exchange.requests))

    def figures(self, parameters: tuple[int, int]) -> Figures:
        n = len(self.work)
        found: Figures = {"method": self.method, "n": n}
        for name, values in self.values.items():
            known = [value for value in values if value is not None]
            found[name] = summary(known).to_json() if known else None
        found["passes"], found["edge_passes"], found["requests"] = (
            sum(column) / n for column in zip(*self.work, strict=True)
        )
        found["work"] = found["passes"] * parameters[0] + found["edge_passes"] * parameters[1]
        found["curve"] = [round(value, 5) for value in (self.curve / self.conversations).tolist()]
        found["values"] = self.values
        return found


def compared(rows: Sequence[Figures], reference: str) -> list[Figures]:
    """The rows, each with its paired differences to the reference over the same network and loss."""
    base = {(row["network"], row["loss"]): row for row in rows if row["method"] == reference}
    found = []
    for row in rows:
        other = base[row["network"], row["loss"]]
        differences = {
            name: paired(row["values"][name], other["values"][name]) for name in ("right", "last", "down")
        }
        kept = {name: value for name, value in row.items() if name != "values"}
        found.append({**kept, "difference": differences})
    return found


def paired(first: Sequence[float | None], second: Sequence[float | None]) -> Figures | None:
    """The mean of first less second over the questions that have both, with its interval and verdict."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if not pairs:
        return None
    found = difference([a for a, _ in pairs], [b for _, b in pairs])
    return {**found.summary.to_json(), "verdict": found.verdict}
