"""Every statement of the suite can hold and can fail: on synthetic records made to support or contradict it.

A statement that is not in `STATEMENTS` fails a test, and so does a place in the code that makes a claim which
no record here reaches.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pytest

from lab.conditions import (
    ABLATION,
    ALONE,
    ANCHORS,
    CONDITIONS,
    FULL,
    ORDERS,
    PARALLEL_CONDITIONS,
    PREFIX,
    PRODUCT,
    RANDOM_POSITIONS,
    RANDOM_TOKENS,
)
from lab.drafting import spec_diff
from lab.experiment import About, no_claims
from lab.experiments.paper import PHASES, ends, gaps, pearl, template_prompting, thinker
from lab.experiments.paper.bridge import COLD_MORE, EARLY, GIVEN, WARM, taps
from lab.experiments.paper.fills import CLAIMED, LAST
from lab.experiments.paper.quantised import AS_TRAINED, WEIGHTS
from lab.experiments.paper.sending import GZIP
from lab.tables import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Claim, compared
from tests.lab.experiments.proposal_records import PROPOSED

N = 100
STEPS = (6, 12, 19, 32, 51)
PAPER_STEPS = (12, 19, 32)
ABOUT = About(
    model="cloud",
    parameters=1_000,
    canvas=128,
    total_steps=128,
    steps=STEPS,
    paper_steps=PAPER_STEPS,
    edges={"small": 100, "large": 300},
    thinker="teacher",
    thinker_parameters=2_000,
)
Rows = list[dict[str, Any]]
LAYERS = 8


def records(rows: Callable[[int], Rows], key: str = "answers", n: int = N, **more: Any) -> Rows:
    """One record per item with the rows of its number; `more`: further fields, called with the number."""
    return [
        {"id": f"item-{i}", "benchmark": "sum", "difficulty": "easy", key: rows(i)}
        | {name: value(i) if callable(value) else value for name, value in more.items()}
        for i in range(n)
    ]


def share(i: int, mean: float) -> float:
    """1 for a share `mean` of the items, else 0; items of a smaller share are among those of a larger one."""
    return float(i * 0.6180339887 % 1 < mean)


def scores(i: int, f1: float, right: float | None = None) -> dict[str, float]:
    """Measures around a mean, which differ from item to item."""
    value = f1 + 0.02 * (-1) ** i
    return {
        "f1": value,
        "f1_set": value,
        "chrf": value,
        "edit": value,
        "exact": 0.0,
        "right": share(i, f1 if right is None else right),
        "tokens": 30,
        "sent": 5,
        "bytes": 20,
        "passes": 30,
    }


def commits(reversals: int = 0, harder_later: int = 1, own: float = 0.5, own_all: float = 0.9) -> Rows:
    def curves(i: int) -> Rows:
        length = 20 + i % 17
        level = i // 3 % 3
        s50 = length + harder_later * 3 * level
        one = {"coverage": [1.0], "s50": s50, "length": length, "committed": 128, "misbooked": 0}
        return [one | {"order": order, "reversals": reversals if i == 7 else 0} for order in ORDERS]

    def anchors(i: int) -> Rows:
        noise = 0.01 * (-1) ** i
        return [
            {"order": order, "step": step, "anchors": 5, "coverage": 0.3, "leading": 0.5, "runs": 2}
            | {"own": own + noise, "own_prefix": own, "own_all": own_all}
            for order in ORDERS
            for step in STEPS
        ]

    return records(anchors, curves=curves, steps=None, level=lambda i: i // 3 % 3)


def fill(**means: float) -> Rows:
    """Means by condition, 0.7 where none is given; `full`: share right in the full run."""
    names = (ALONE, FULL, *CONDITIONS)

    def rows(i: int) -> Rows:
        found = []
        for order in ORDERS:
            for step in (PAPER_STEPS[0], PAPER_STEPS[-1]):
                for name in (*names, *(PARALLEL_CONDITIONS if order == LAST else ())):
                    mean = 1.0 if name == FULL else means.get(name, 0.7)
                    found.append({"order": order, "step": step, "condition": name, **scores(i, mean)})
        return found

    return records(rows)


def kept(share_: float) -> Rows:
    """Every full run is right, and this share of the fills after a quarter of the steps."""
    rows = fill()
    for i, record in enumerate(rows):
        for row in record["answers"]:
            if row["condition"] == ANCHORS and row["step"] == PAPER_STEPS[-1]:
                row["right"] = share(i, share_)
    return rows


def sizes(alone: float, filled: float) -> Rows:
    """What the larger edge model has more than the small one, alone and with anchors."""

    def rows(i: int) -> Rows:
        found = []
        for edge, more in (("small", (0.0, 0.0)), ("large", (alone, filled))):
            for order in ORDERS:
                found.append({"order": order, "step": 0, "condition": ALONE} | scores(i, 0.4 + more[0]))
                found[-1]["edge"] = edge
                for step in PAPER_STEPS:
                    row = {"order": order, "step": step, "condition": ANCHORS, "edge": edge}
                    found.append(row | scores(i, 0.7 + more[1]))
        return found

    return records(rows)


def conditions(names: Sequence[str], means: dict[str, float], steps: Sequence[int] = PAPER_STEPS) -> Rows:
    """Rows of these conditions in both orders, at every step."""
    return records(
        lambda i: [
            {"order": order, "step": step, "condition": name, "gaps": 9, **scores(i, means.get(name, 0.5))}
            for order in ORDERS
            for step in steps
            for name in names
        ],
        left_out=0,
    )


def ablation(**means: float) -> Rows:
    return conditions((ALONE, *ABLATION), means)


def gap_rows(forced: float = 0.7, alone: float = 0.4, slope: float = 0.0) -> Rows:
    def rows(i: int) -> Rows:
        coverage = (i * 37 % N) / N
        found = []
        for order in ORDERS:
            for step in PAPER_STEPS:
                for name, mean in ((gaps.FORCED, forced + slope * coverage), (gaps.SAME, alone)):
                    value = mean + 0.02 * (-1) ** i
                    row = {"order": order, "step": step, "condition": name, "coverage": coverage}
                    row |= {"gap_f1": value, "gap_accuracy": value, "strict": value, "f1": value, "gaps": 9}
                    found.append(row)
                for name in (PREFIX, gaps.OWN):
                    found.append({**found[-1], "condition": name})
        return found

    return records(rows)


def pearl_rows(early: float) -> Rows:
    """This share of the items stays above 95% F1 from half of the steps on, the others from the end on."""

    def rows(i: int) -> Rows:
        return [
            {"order": order, "step": step, "condition": name, "right": 1.0}
            | {"f1": 1.0 if step == 128 or (step >= 64 and share(i, early)) else 0.5}
            for order in ORDERS
            for step in (32, 64, 128)
            for name in pearl.NAMES
        ]

    return records(rows, n=200)  # of fewer than 124 not even all show a share of 97%


def end_rows(on: float, off: float) -> Rows:
    names = (ends.ON, ends.OFF, ends.KNOWN, ends.PREFIX_ON, ends.PREFIX_OFF, ends.PREFIX_KNOWN)
    rows = conditions(names, {ends.ON: on, ends.OFF: off}, STEPS)
    for record in rows:
        for row in record["answers"]:
            row["high"] = row["step"] > 12
    return rows


def byte_rows(anchors: int, full: int) -> Rows:
    def rows(i: int) -> Rows:
        found = []
        for order in ORDERS:
            for name, step, size in ((ANCHORS, 12, anchors), (FULL, 128, full)):
                row = {"order": order, "step": step, "condition": name, "template + gzip": size + i % 3}
                found.append(row | {"compact, prompt known": size + i % 3, GZIP: size + i % 3})
        return found

    return records(rows)


def timing(speedup: float = 3.0, at_once: float = 4.0, saved: float = 0.9) -> Rows:
    def rows(i: int) -> Rows:
        noise = 1 + 0.01 * (-1) ** i
        return [
            {"speedup": speedup * noise, "speedup at once": at_once * noise, "saved": saved + noise / 1e4}
        ]

    return records(rows, n=20, machine="a machine")


def quantised(overlap: float) -> Rows:
    def rows(i: int) -> Rows:
        return [
            {"weights": weights, "condition": FULL, "right": 1.0, "overlap": overlap, "repeated": 0.0}
            for weights in (AS_TRAINED, *WEIGHTS)
        ]

    return records(rows, n=40)


def template(prompted: float, forced: float) -> Rows:
    names = (template_prompting.PROMPTED, ANCHORS, PREFIX, ALONE)
    return conditions(names, {template_prompting.PROMPTED: prompted, ANCHORS: forced})


def bridge(
    warm: float = 0.9, cold: float = 0.5, knows: float = 1.0, hits: float = 0.95, trend: int = 1, n: int = N
) -> Rows:
    injected = [(GIVEN, LAYERS), *((source, layer) for source in (GIVEN, EARLY) for layer in taps(LAYERS))]

    def rows(i: int) -> Rows:
        found = []
        for source, layer in injected:
            labels = {"source": source, "layer": layer, "kind": "all"}
            found.append(labels | {"condition": COLD_MORE, "threshold": 0, "injected": 0, **scores(i, cold)})
            for threshold in (0.5, 0.8, 0.95):
                row = labels | {"condition": WARM, "threshold": threshold, "injected": 20, "hits": 20 * hits}
                found.append(row | scores(i, warm))
        return found

    def layers(i: int) -> Rows:
        # The last layer agrees with itself, whatever the layers below it say.
        return [
            {"source": GIVEN, "layer": layer, "kind": "all", "confidence": 0.5, "dream": 0.1}
            | {"own": 1.0 if layer == LAYERS else 0.4 + trend * 0.02 * layer + 0.01 * ((i + layer) % 2)}
            for layer in range(1, LAYERS + 1)
        ]

    return records(
        rows, n=n, layers=layers, teacher=lambda i: [{"knows": share(i, knows), "alone": share(i, 0.3)}]
    )


def plans(with_plan: float, without: float, oracle: float = 1.0, knows: float = 1.0) -> Rows:
    means = {thinker.NONE: without, thinker.THINKER: with_plan, thinker.ORACLE: oracle}
    return records(
        lambda i: [
            {"plan": name, "stage": stage, **scores(i, mean)}
            for name, mean in means.items()
            for stage in (thinker.FULL, thinker.ANCHORS, thinker.AWARE)
        ],
        teacher=lambda i: [{"knows": share(i, knows), "alone": share(i, 0.3)}],
        cut=0,
    )


def drafts(ours: float, theirs: float) -> Rows:
    def rows(i: int) -> Rows:
        found = []
        for kind, gamma, mean in ((spec_diff.DIFFUSION, 5, ours), (spec_diff.AUTOREGRESSIVE, 1, theirs)):
            speed = mean + 0.01 * (-1) ** i
            row = {"drafter": kind, "gamma": gamma, "steps": 1, "length": 30}
            found.append(row | {"faster": speed, "accepted": speed, "passes": 30 / speed})
        return found

    return records(rows, n=40)


@dataclass(frozen=True)
class Statement:
    """A phase's statement, by its beginning, and records that support and contradict it."""

    phase: str
    begins: str
    supporting: Rows
    contradicting: Rows

    def __str__(self) -> str:
        return f"{self.phase}: {self.begins[:60]}"


ABOVE = fill(**dict.fromkeys(CONDITIONS, 0.5) | {PRODUCT: 0.95, CLAIMED: 0.85, ANCHORS: 0.7, ALONE: 0.4})
BELOW = fill(**{PRODUCT: 0.1, CLAIMED: 0.2, ANCHORS: 0.3})
"""The conditions that statements are made for, above and below those that they are compared with."""


def _fill(begins: str) -> Statement:
    return Statement("fill", begins, ABOVE, BELOW)


STATEMENTS: tuple[Statement, ...] = (
    Statement("commits", "Committed tokens are permanent", commits(), commits(reversals=1)),
    Statement("commits", "Harder tasks commit later", commits(harder_later=1), commits(harder_later=-1)),
    Statement("commits", "What is committed early", commits(own=0.5), commits(own=0.95)),
    _fill("Anchors raise the edge model's F1"),
    _fill("Anchors raise the edge model's accuracy"),
    _fill("Control: anchors are worth more than a prefix"),
    _fill("Control: anchors give more right answers"),
    _fill("Control: anchors are worth more than their own leading run"),
    _fill("Control: anchors are worth more than as many tokens"),
    _fill("The edge model is needed"),
    _fill("The pipeline is not equivalent to stopping"),
    _fill("This project's selection beats the paper's"),
    _fill("This project's selection gives more right answers than the paper's"),
    _fill("This project's selection beats a prefix"),
    _fill("This project's selection gives more right answers than that prefix"),
    _fill("With parallel commits this project's selection beats"),
    _fill("With parallel commits it gives more right answers"),
    _fill("Parallel commits give it more right answers"),
    _fill("Filling gives more right answers"),
    Statement("fill", "The pipeline keeps 94.6%", kept(0.95), kept(0.8)),
    Statement("sizes", "With anchors the size", sizes(0.1, -0.009), sizes(0.1, 0.1)),
    Statement(
        "ablation",
        "Token identity matters",
        ablation(**{ANCHORS: 0.8, RANDOM_TOKENS: 0.1}),
        ablation(**{ANCHORS: 0.1, RANDOM_TOKENS: 0.8}),
    ),
    Statement(
        "ablation",
        "Random tokens are worse than no anchors",
        ablation(**{RANDOM_TOKENS: 0.1, ALONE: 0.4}),
        ablation(**{RANDOM_TOKENS: 0.4, ALONE: 0.1}),
    ),
    Statement(
        "ablation",
        "Position is secondary",
        ablation(**{ANCHORS: 0.8, RANDOM_POSITIONS: 0.79}),
        ablation(**{ANCHORS: 0.8, RANDOM_POSITIONS: 0.4}),
    ),
    Statement("gaps", "Anchors make the edge write better", gap_rows(), gap_rows(0.4, 0.7)),
    Statement("gaps", "Gap-only F1 does not depend on coverage", gap_rows(), gap_rows(slope=0.3)),
    Statement("pearl", "97% of the word problems", pearl_rows(1.0), pearl_rows(0.9)),
    Statement("ends", "Cutting at the last anchor", end_rows(0.8, 0.6), end_rows(0.6, 0.8)),
    Statement("bytes", "The paper's template + gzip is smaller", byte_rows(60, 110), byte_rows(110, 60)),
    Statement("bytes", "Anchors take fewer bytes", byte_rows(60, 110), byte_rows(110, 60)),
    Statement("timing", "One after the other", timing(2.5), timing(1.5)),
    Statement("timing", "With both sides at once", timing(at_once=3.1), timing(at_once=2.5)),
    Statement("timing", "The cloud works at least 89.7% less", timing(saved=0.92), timing(saved=0.85)),
    Statement("quantised", "Quantisation destroys", quantised(0.3), quantised(0.9)),
    Statement(
        "template", "Asking the edge to fill in a template fails", template(0.2, 0.8), template(0.8, 0.2)
    ),
    Statement("bridge", "Early layers, before", bridge(), bridge(0.5, 0.9)),
    Statement("bridge", "The deepest layer below half", bridge(), bridge(0.5, 0.9)),
    Statement("bridge", "The last layer", bridge(), bridge(0.5, 0.9)),
    Statement("bridge", "Deeper layers say more", bridge(), bridge(trend=-1)),
    Statement("thinker", "A Thinker's plan", plans(0.9, 0.5), plans(0.3, 0.5)),
    Statement("specdiff", "A diffusion drafter is faster", drafts(2.5, 1.5), drafts(1.5, 2.5)),
    Statement("specdiff", "Of as many passes of its own", drafts(2.5, 1.5), drafts(1.5, 2.5)),
    *(Statement(phase, begins, made(True), made(False)) for phase, begins, made in PROPOSED),
)


_known: dict[tuple[str, int], list[Claim]] = {}


def claimed(phase: str, data: Rows) -> list[Claim]:
    """The claims of a phase on records of the table, derived once."""
    key = (phase, id(data))
    if key not in _known:
        _known[key] = PHASES[phase].claims(data, ABOUT)
    return _known[key]


def decided(statement: Statement, claims: Sequence[Claim]) -> list[Claim]:
    """The claims on the statement, in every order of commits."""
    return [claim for claim in claims if claim.paper.startswith(statement.begins)]


@pytest.mark.parametrize("statement", STATEMENTS, ids=str)
def test_a_statement_holds_where_the_figures_support_it_and_fails_where_they_contradict_it(
    statement: Statement,
) -> None:
    supported, contradicted = (
        decided(statement, claimed(statement.phase, data))
        for data in (statement.supporting, statement.contradicting)
    )
    assert supported, "no claim begins so"
    assert {claim.verdict for claim in supported} == {HOLDS}, supported
    assert {claim.verdict for claim in contradicted} == {FAILS}, contradicted


@pytest.mark.parametrize("statement", STATEMENTS, ids=str)
def test_of_a_few_items_nothing_is_decided(statement: Statement) -> None:
    few = decided(statement, PHASES[statement.phase].claims(statement.contradicting[:8], ABOUT))
    assert few
    assert {claim.verdict for claim in few} <= {UNDECIDED, NOT_MEASURED}, few


def test_every_statement_of_a_phase_is_in_the_table() -> None:
    phases = {name for name, phase in PHASES.items() if phase.claims is not no_claims}
    assert phases == {statement.phase for statement in STATEMENTS}
    for name in phases:
        own = [statement for statement in STATEMENTS if statement.phase == name]
        for statement in own:
            for claim in claimed(name, statement.supporting):
                matching = [s.begins for s in own if claim.paper.startswith(s.begins)]
                assert len(matching) == 1, f"{name}: {claim.paper!r} matches {matching}"


MAKERS: dict[str, Callable[..., Claim]] = {"Claim": Claim, "compared": compared}


def _places(module: str) -> set[tuple[str, int, int]]:
    """First and last line of every `Claim(...)` and `compared(...)` in a module's source."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {
        (module, node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS
    }


def test_every_place_that_makes_a_claim_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {phase.claims.__module__ for phase in PHASES.values() if phase.claims is not no_claims}
    made: set[tuple[str, int]] = set()

    def recorded(make: Callable[..., Claim], *args: Any, **more: Any) -> Claim:
        frame = sys._getframe(1)
        made.add((frame.f_globals["__name__"], frame.f_lineno))
        return make(*args, **more)

    for module, (maker, make) in product(modules, MAKERS.items()):
        if hasattr(importlib.import_module(module), maker):
            monkeypatch.setattr(importlib.import_module(module), maker, partial(recorded, make))
    for name in {statement.phase for statement in STATEMENTS}:
        data = next(statement.supporting for statement in STATEMENTS if statement.phase == name)
        PHASES[name].claims(data[:20], ABOUT)
    PHASES["bridge"].claims(bridge(hits=0.5, n=20), ABOUT)  # nothing is viable
    PHASES["bridge"].claims(_shallow(), ABOUT)
    places = {place for module in modules for place in _places(module)}
    missed = [
        place
        for place in sorted(places)
        if not any(name == place[0] and place[1] <= line <= place[2] for name, line in made)
    ]
    assert places
    assert missed == []


def _shallow() -> Rows:
    """Records of an autoregressive model of two layers."""
    rows = bridge(n=20)
    for record in rows:
        record["layers"] = [row | {"layer": row["layer"] - 6} for row in record["layers"] if row["layer"] > 6]
    return rows


def test_size_is_not_asked_of_a_larger_model_that_is_no_better_alone() -> None:
    for alone in (0.0, -0.1):
        claims = PHASES["sizes"].claims(sizes(alone, 0.0), ABOUT)
        assert {claim.verdict for claim in claims} == {NOT_MEASURED}
        assert "Without anchors" in claims[0].found


def test_a_teacher_that_does_not_know_measures_nothing() -> None:
    for name, data in (("bridge", bridge(knows=0.3)), ("thinker", plans(0.9, 0.5, knows=0.3))):
        claims = [c for c in PHASES[name].claims(data, ABOUT) if not c.paper.startswith("Deeper")]
        assert {claim.verdict for claim in claims} == {NOT_MEASURED}
        assert all("--thinker" in claim.found for claim in claims)


def test_a_diffusion_model_that_cannot_read_plans_measures_nothing() -> None:
    (claim,) = PHASES["thinker"].claims(plans(0.3, 0.5, oracle=0.5), ABOUT)
    assert claim.verdict == NOT_MEASURED
    assert "seen plans in training" in claim.found


def test_layers_that_are_not_viable_are_not_asked() -> None:
    early = next(c for c in PHASES["bridge"].claims(bridge(hits=0.5), ABOUT) if c.paper.startswith("Early"))
    assert (early.verdict, early.found[:12]) == (NOT_MEASURED, "Not measured")


def test_the_last_layer_does_not_count_for_depth() -> None:
    """Layers below it that say the same at every depth contradict the statement, though the last agrees."""
    flat = bridge(trend=0)
    for record in flat:
        for row in record["layers"]:
            row["own"] = 1.0 if row["layer"] == LAYERS else 0.4
    claims = PHASES["bridge"].claims(flat, ABOUT)
    assert [c.verdict for c in claims if c.paper.startswith("Deeper")] == [FAILS]
    assert [
        c.verdict for c in PHASES["bridge"].claims(_shallow(), ABOUT) if c.paper.startswith("Deeper")
    ] == [NOT_MEASURED]
