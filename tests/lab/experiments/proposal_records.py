"""Made-up records that bear out or contradict the statements of the phases of what the paper proposes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.conditions import ALONE, ORDERS
from lab.experiment import About
from lab.experiments.paper import adaptive, budget, ends, influence, pivotal, resilience

TOTAL = 128
STEPS, PAPER_STEPS = (6, 12, 19, 32, 51), (12, 19, 32)
ABOUT = About("m", 1, 128, TOTAL, STEPS, PAPER_STEPS, {"edge": 1})
Records = list[dict[str, Any]]
N = 40


def records_of(count: int = N, **keys: Callable[[int], list[dict[str, Any]]]) -> Records:
    """As many records; each key is made from the item's number."""
    return [
        {"id": str(n), "benchmark": "b", "difficulty": ("easy", "medium", "hard")[n % 3]}
        | {key: make(n) for key, make in keys.items()}
        for n in range(count)
    ]


def noise(n: int) -> float:
    """Something that differs between items, of mean 0."""
    return 0.02 if n % 2 else -0.02


# Made-up records. `good` says whether they bear the statement out.


def budgets(good: bool) -> Records:
    """Half of the items need 4 steps, the others 64; a good rule knows which, a bad one has it backwards."""

    def answers(n: int) -> list[dict[str, Any]]:
        needs = 4 if n % 2 else 64
        rows = []
        for name in budget.PLANS:
            for step in (2, 6, 12, 32, 64, 128):
                rows.append(row(name, budget.FIXED, step, step, step >= needs))
            for rule in budget.RULES:
                stop = needs if good else 68 - needs
                rows.append(row(name, rule, 0, stop, stop >= needs))
        return rows

    def row(name: str, rule: str, planned: int, steps: int, right: bool) -> dict[str, Any]:
        scores = dict.fromkeys(("f1", "anchors_f1", "anchors_right"), float(right))
        labels = {"plan": name, "budget": rule, "planned": planned, "steps": steps}
        return {**labels, "right": float(right), "bytes": 9, **scores}

    return records_of(answers=answers)


def converging(good: bool) -> Records:
    """Every answer is right from a tenth of the steps on, or from three quarters on."""
    first = 12 if good else 96

    def answers(n: int) -> list[dict[str, Any]]:
        labels = {"budget": budget.FIXED, "f1": 1.0, "anchors_f1": 1.0, "anchors_right": 1.0, "bytes": 9}
        return [
            {"plan": name, "planned": step, "steps": step, "right": float(step >= first), **labels}
            for name in budget.PLANS
            for step in (6, 12, 32, 64, 96, 128)
        ]

    return records_of(140, answers=answers)  # of fewer not even all show a share of 97%


def levels(good: bool) -> Records:
    """Hard questions need 51 steps and easy ones 12, or the labels are the wrong way round, of 30 and 12."""

    def answers(n: int) -> list[dict[str, Any]]:
        needs = (51 if good else 30) if n % 2 else 12
        return [
            {"plan": name, "step": step, **dict.fromkeys(("right", "f1", "anchors_f1"), float(step >= needs))}
            for name in adaptive.PLANS
            for step in STEPS
        ]

    def signals(n: int) -> list[dict[str, Any]]:
        hard = bool(n % 2) == good
        value = {
            adaptive.LEVEL: 2 if hard else 0,
            adaptive.LENGTH: 60 if hard else 9,
            adaptive.DOUBT: 9 * hard,
        }
        return [{"plan": name, **value} for name in adaptive.PLANS]

    return records_of(answers=answers, signals=signals)


def pivots(good: bool) -> Records:
    """Connectives matter more than other tokens and commit early, or the other way round."""
    change = {
        pivotal.KEPT: 0.9,
        pivotal.DROPPED: 0.5 if good else 0.8,
        pivotal.OTHERS_DROPPED: 0.8 if good else 0.5,
        pivotal.ADDED: 0.95 if good else 0.9,
        pivotal.OTHERS_ADDED: 0.9 if good else 0.95,
    }

    def answers(n: int) -> list[dict[str, Any]]:
        return [
            {
                "order": order,
                "step": step,
                "selection": selection,
                "change": "add" if name in (pivotal.ADDED, pivotal.OTHERS_ADDED) else "drop",
                "condition": name,
                "connectives": 2,
                "bytes": 9,
                **dict.fromkeys(("f1", "edit", "right"), value + noise(n) * (name == pivotal.DROPPED)),
            }
            for order in ORDERS
            for step in PAPER_STEPS
            for selection in pivotal.SELECTIONS
            for name, value in change.items()
        ]

    def ranks(n: int) -> list[dict[str, Any]]:
        return [
            {"order": order, "tokens": tokens, "count": 3, "rank": rank + noise(n), "own": 0.5}
            for order in ORDERS
            for tokens, rank in (("connectives", 0.2 if good else 0.8), ("others", 0.5))
        ]

    return records_of(answers=answers, ranks=ranks)


def influential(good: bool) -> Records:
    """Influence goes with the gain and with early commits and chooses better, or none of these."""
    rho = 0.5 if good else 0.0

    def answers(n: int) -> list[dict[str, Any]]:
        values = {influence.INFLUENCE: 0.9 if good else 0.6, influence.GAIN: 0.7, influence.LOT: 0.4}
        return [
            {"plan": name, "share": 0.5, "ranking": ranking, "bytes": 9, "sent": 3}
            | dict.fromkeys(("f1", "edit", "right"), value + noise(n))
            for name in influence.PLANS
            for ranking, value in values.items()
        ]

    def items(n: int) -> list[dict[str, Any]]:
        found = dict.fromkeys(("gain_rho", "early_rho", "place_rho"), rho + noise(n))
        return [
            {"plan": name, "anchors": 4, "influence": 1.0, "without": 0.5, **found}
            for name in influence.PLANS
        ]

    return records_of(answers=answers, items=items)


def errors(good: bool) -> Records:
    """One wrong anchor costs little, changed payloads are refused and a template's errors are made good, or
    none of these.
    """

    def answers(n: int) -> list[dict[str, Any]]:
        f1 = {(ALONE, 0): 0.5, (resilience.RIGHT, 0): 0.9}
        f1 |= {(kind, count): 0.8 if good else 0.1 for kind in _KINDS for count in resilience.COUNTS}
        return [
            {"selection": name, "error": error, "count": count}
            | dict.fromkeys(("f1", "edit", "right"), value + noise(n) * bool(count))
            for name in resilience.SELECTIONS
            for (error, count), value in f1.items()
        ]

    def wire(n: int) -> list[dict[str, Any]]:
        trials = 400
        lost = 0 if good else 4
        return [
            {"selection": name, "codec": "compact", "count": 1, "bytes": 9, "trials": trials}
            | {"refused": trials - lost, "wrong": lost}
            for name in resilience.SELECTIONS
        ]

    def bare(n: int) -> list[dict[str, Any]]:
        values = {resilience.TEMPLATE: 0.8 if good else 0.6, resilience.PAIRS: 0.7, resilience.COMPACT: 0.3}
        return [
            {"selection": name, "format": kind, "bytes": 9, "unread": 0.5}
            | dict.fromkeys(("f1", "edit", "right"), value + noise(n))
            for name in resilience.SELECTIONS
            for kind, value in values.items()
        ]

    return records_of(answers=answers, wire=wire, bare=bare)


_KINDS = (resilience.TOKEN, resilience.PLACE)


def endings(good: bool) -> Records:
    """To cut at the last anchor helps, or harms."""
    values = {ends.ON: 0.9 if good else 0.5, ends.RULE: 0.9 if good else 0.5, ends.OFF: 0.7}

    def answers(n: int) -> list[dict[str, Any]]:
        labels = {"high": True, "high_by_estimate": True, "high_by_canvas": False, "off_by": 2}
        return [
            {"order": order, "step": 12, "condition": name, "f1": value + noise(n), **labels}
            for order in ORDERS
            for name, value in values.items()
        ]

    return records_of(answers=answers)


PROPOSED: tuple[tuple[str, str, Callable[[bool], Records]], ...] = (
    ("budget", "Prophet's confidence gap", budgets),
    ("budget", "A plateau of the commit rate", budgets),
    ("budget", "The sum of the open entropies", budgets),
    ("budget", "Right answers are found by half of the steps", converging),
    ("adaptive", "More steps for harder questions", levels),
    ("pivotal", "Pivotal tokens are critical among the anchors", pivots),
    ("pivotal", "To make sure of pivotal tokens", pivots),
    ("pivotal", "Pivotal tokens commit early", pivots),
    ("influence", "What is committed early is load-bearing", influential),
    ("influence", "Edge-aware's gain, of one pass, ranks tokens", influential),
    ("influence", "Chosen by influence", influential),
    ("resilience", "One wrong anchor does not derail", errors),
    ("resilience", "A payload that was changed on its way is refused", errors),
    ("resilience", "Errors in the template's text are made good", errors),
    ("ends", "The rule raises F1 where it applies by the length", endings),
)
"""A phase, the beginning of one of its statements, and records that bear it out (True) or contradict it."""
