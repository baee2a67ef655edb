"""Phase `commits` (A): the order in which a run commits its tokens (sections 2.1, 3.1 and 4.6).

Coverage by step, S50, and their correlation with difficulty and length; and two figures for the value of
anchors: the share of them in one leading run, and the share that the edge model predicts by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lab.case import RunCase
from lab.conditions import ORDERS
from lab.experiment import About, Records, phase
from lab.plots import Picture, png
from lab.questions.items import WORD_PROBLEMS
from lab.statistics import Correlation, partial_spearman, spearman, wilson
from lab.tables import Answers, Claim, Column, Label, Row, Table, compare, less, rows, show, verdict


def measure(case: RunCase) -> dict[str, Any]:
    curves, answers = [], []
    for order in ORDERS:
        run = case.runs[order]
        full = run.full
        curves.append(
            {
                "order": order,
                "coverage": [round(share, 4) for share in full.coverage],
                "s50": full.s50,
                "length": len(run.answer),
                "reversals": run.reversals,
                "misbooked": run.misbooked,
                "committed": sum(step > 0 for step in run.when),
            }
        )
        for step in case.lab.steps:
            answers.append({"order": order, "step": step, **_anchors(case, order, step)})
    return {"steps": case.item.steps, "level": case.item.level, "curves": curves, "answers": answers}


def _anchors(case: RunCase, order: str, step: int) -> dict[str, Any]:
    at = case.situation(order, step)
    size = len(at.full)
    places = sorted(p for p in at.committed if p < size)
    leading = next((i for i, p in enumerate(places) if i != p), len(places))
    return {
        "anchors": len(places),
        "coverage": len(places) / size if size else 1.0,
        "leading": leading / len(places) if places else None,
        "runs": sum(1 for i, p in enumerate(places) if not i or places[i - 1] != p - 1),
        "own": case.own(at.full, places),
        "own_prefix": case.own(at.full, range(len(places))),
        "own_all": case.own(at.full, range(size)),
    }


def tables(records: Records, about: About) -> list[Table]:
    return [_coverage(records, about), _correlations(records, about)]


def _coverage(records: Records, about: About) -> Table:
    labels: dict[str, Label] = {"order": "order", "steps": ("step", about.share)}
    columns: dict[str, Column] = {
        "N": len,
        "anchors": "anchors",
        "coverage": "coverage",
        "share in the leading run": "leading",
        "runs": "runs",
        "the edge's own": "own",
        "the edge's own, prefix of as many": "own_prefix",
        "the edge's own, all tokens": "own_all",
    }
    note = (
        "Coverage: share of the full answer's tokens that are committed. The edge's own: share of the "
        "tokens that the edge model writes by itself, given all that stands before; sending these changes "
        "nothing."
    )
    found = rows(Answers.of(records).by(labels), columns)
    return Table.of("commits", "A: commits by step", found, note)


def _columns(records: Records, order: str) -> dict[str, list[float]]:
    """S50, length, level and solution steps of the items that have an S50."""
    found: dict[str, list[float]] = {"s50": [], "length": [], "level": [], "steps": [], "word": []}
    for record in records:
        curve = next(c for c in record["curves"] if c["order"] == order)
        if curve["s50"] is None:
            continue
        found["s50"].append(curve["s50"])
        found["length"].append(curve["length"])
        for name in ("level", "steps"):
            value = record[name]
            found[name].append(float("nan") if value is None else value)
        found["word"].append(float(record["benchmark"] in WORD_PROBLEMS))
    return found


def _known(columns: dict[str, list[float]], names: Iterable[str]) -> list[list[float]]:
    """These columns over the items that have all of them."""
    kept = [
        row
        for row in zip(*(columns[name] for name in names), strict=True)
        if all(value == value for value in row)
    ]
    return [list(column) for column in zip(*kept, strict=True)] or [[] for _ in names]


def correlations(records: Records, order: str) -> dict[str, Correlation]:
    """The correlations of section 4.6 in one order."""
    columns = _columns(records, order)
    word = {
        name: [v for v, is_word in zip(values, columns["word"], strict=True) if is_word]
        for name, values in columns.items()
    }
    level, s50, length = _known(columns, ("level", "s50", "length"))
    steps, step_s50, step_length = _known(word, ("steps", "s50", "length"))
    return {
        "S50 and difficulty": spearman(s50, level),
        "S50 and length": spearman(columns["s50"], columns["length"]),
        "S50 and difficulty, length held fixed": partial_spearman(s50, level, length),
        "S50 and solution steps, word problems": spearman(step_s50, steps),
        "S50 and solution steps, length held fixed": partial_spearman(step_s50, steps, step_length),
    }


PAPER = {
    "S50 and difficulty": "0.182 (p 0.003, N 260)",
    "S50 and length": "0.929",
    "S50 and difficulty, length held fixed": "0.117",
    "S50 and solution steps, word problems": "0.315 (p 0.014)",
}


def _correlations(records: Records, about: About) -> Table:
    found: list[Row] = [
        {"order": order, "Spearman's rho of": name, "rho": rho, "paper": PAPER.get(name)}
        for order in ORDERS
        for name, rho in correlations(records, order).items()
    ]
    note = (
        "S50: the first step after which half of the answer's tokens are committed. None: a constant sample."
    )
    return Table.of("difficulty", "A: S50, difficulty and length (section 4.6)", found, note)


def claims(records: Records, about: About) -> list[Claim]:
    found = [_permanent(records)]
    for order in ORDERS:
        got = correlations(records, order)
        plain, partial = got["S50 and difficulty"], got["S50 and difficulty, length held fixed"]
        length = got["S50 and length"]
        found.append(
            Claim(
                "Harder tasks commit later, modestly so once length is held fixed (section 4.6).",
                verdict(partial.rho > 0 and partial.p < 0.05, partial.p < 0.05 and partial.rho < 0, plain.n),
                f"Spearman's rho {show(plain)}; with length held fixed {show(partial)}; length alone "
                f"{show(length)}.",
                where=about.where(order),
            )
        )
        found.append(_load_bearing(records, about, order))
    return found


def _permanent(records: Records) -> Claim:
    """The claim about the canvases that the model was shown, of all runs."""
    curves = [curve for record in records for curve in record["curves"]]
    changed, committed, wrong = (
        sum(curve[name] for curve in curves) for name in ("reversals", "committed", "misbooked")
    )
    _, high = wilson(min(changed, committed), committed)
    return Claim(
        "Committed tokens are permanent (section 2.1).",
        verdict(changed == 0, changed > 0, len(records)),
        f"{changed} of {committed} committed tokens changed or were masked again in {len(curves)} runs (95% "
        f"interval to {high:.2g}), by the canvas that the model was shown in every pass.",
        "The sampler writes to masked positions only, so this is a property of the sampler and no finding "
        f"about the model. Its own account of the steps differs from the canvases at {wrong} positions.",
    )


def _load_bearing(records: Records, about: About, order: str) -> Claim:
    """The claim that the edge model does not predict the early commits by itself."""
    here = Answers.of(records).where(order=order, step=about.paper_steps[0])
    own, every = (here.renamed(name, "share") for name in ("own", "own_all"))
    sentence, result = compare("early commits", own, "all tokens", every, "share")
    leading = here.cell("leading")
    return Claim(
        "What is committed early is structurally load-bearing (section 2.1), so the edge would not have "
        "written it.",
        less(result),
        f"Share that the edge writes by itself, given what stands before: {sentence}.",
        f"{leading.mean:.0%} of the anchors are one leading run, which is a prefix." if leading else "",
        about.where(order, about.paper_steps[0]),
    )


def plots(records: Records, about: About) -> Iterator[Picture]:
    yield Picture("commits", "Commit curves, and S50 by length", _commits(records))


def _commits(records: Records) -> bytes:
    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for index, order in enumerate(ORDERS):
            curves = [c for record in records for c in record["curves"] if c["order"] == order]
            mean = [
                sum(values) / len(values) for values in zip(*(c["coverage"] for c in curves), strict=True)
            ]
            for curve in curves[:40]:
                left.plot(
                    range(1, len(mean) + 1), curve["coverage"], color=f"C{index}", alpha=0.12, linewidth=0.7
                )
            left.plot(range(1, len(mean) + 1), mean, color=f"C{index}", label=order)
            points = [(c["length"], c["s50"]) for c in curves if c["s50"] is not None]
            right.scatter(*zip(*points, strict=True), s=9, color=f"C{index}", label=order)
        left.set(xlabel="step", ylabel="coverage of the answer")
        right.set(xlabel="tokens of the answer", ylabel="S50")
        left.legend(title="order by", fontsize=8)

    return png(draw, (10, 4))


EXPERIMENT = phase("commits", "A: commit curves", measure, tables, claims, plots=plots)
