"""The methods over the networks: simulated conversations, and their figures.

Responsible for repeating conversations with other losses, for their means by question, and for the share of
right answers over time. Not responsible for what a method does (see `methods`), for a conversation (see
`links.conversation`) or for tables (see `experiment`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.links.conversation import Outcome, Speeds, converse
from lab.links.networks import Network
from lab.rivals.methods import Exchange

METRICS = ("right", "success", "first", "standing", "last", "up", "down")
"""Of a conversation: whether the answer on the screen at the end of the patience is right; whether the method
came to its end; seconds to the first token, to the first that stays, and to the last; bytes, all framing and
repetitions included."""

POINTS = 240
"""Times of a curve."""

Exchanges = Mapping[str, Sequence[Exchange]]
"""By question, the same methods in the same order."""


@dataclass(frozen=True)
class Race:
    """What is simulated.

    repeats: conversations of each question with other losses; where there is no loss there is one.
    """

    networks: Sequence[Network]
    losses: Sequence[float]
    repeats: int
    speeds: Speeds
    seed: int = 0

    def outcomes(self, exchange: Exchange, question: str, network: Network, loss: float) -> list[Outcome]:
        """Every conversation of one question; all methods have the same losses."""
        return [
            converse(
                exchange.device,
                exchange.cloud,
                network,
                loss,
                f"{self.seed}/{question}/{network.name}/{loss}/{repeat}",
                self.speeds,
            )
            for repeat in range(self.repeats if loss else 1)
        ]


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


def race(exchanges: Exchanges, setting: Race) -> Iterator[dict[str, Any]]:
    """The means of METRICS of every question, by network, loss and method."""
    for network in setting.networks:
        for loss in setting.losses:
            for question, found in exchanges.items():
                for exchange in found:
                    outcomes = setting.outcomes(exchange, question, network, loss)
                    every = [figures_of(outcome, exchange) for outcome in outcomes]
                    row = {"id": question, "network": network.name, "loss": loss, "method": exchange.method}
                    yield row | {name: _mean([each[name] for each in every]) for name in METRICS}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


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


def curves(
    exchanges: Exchanges, setting: Race, network: Network, loss: float
) -> tuple[list[float], dict[str, list[float]]]:
    """Times, from the least of a delay and ten passes to the patience, by ratio; and by method the share of
    conversations with a right answer on the screen.
    """
    least = max(1e-3, min(network.delay, 10 * setting.speeds.device))
    times = [float(time) for time in np.geomspace(least, network.patience, POINTS)]
    shown: dict[str, list[list[float]]] = {}
    for question, found in exchanges.items():
        for exchange in found:
            shown.setdefault(exchange.method, []).extend(
                right_at(outcome, exchange, times)
                for outcome in setting.outcomes(exchange, question, network, loss)
            )
    return times, {method: np.mean(rows, axis=0).tolist() for method, rows in shown.items()}
