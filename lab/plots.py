"""The report's plots, as PNG bytes.

Responsible for the fields that are drawn and for matplotlib, which is imported when a plot is drawn and never
opens a window. Not responsible for models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any

from lab.conditions import ABLATION, ALONE, CONDITIONS, FULL, ORDERS, PARALLEL_CONDITIONS
from lab.drafting.spec_diff import AUTOREGRESSIVE, DIFFUSION, best
from lab.experiments.paper import About, budget
from lab.experiments.paper.bridge import GIVEN, KINDS, THRESHOLDS
from lab.experiments.paper.fills import at
from lab.experiments.paper.resilience import PLACE, RIGHT, TOKEN
from lab.store import Record
from lab.tables import Answers

Picture = tuple[str, bytes]
Records = Mapping[str, Sequence[Record]]

_MARKERS = "osD^v<>pPX*hH"


def pictures(records: Records, about: About) -> Iterator[Picture]:
    """(title, PNG) of every plot for which there are records."""
    if records.get("fill"):
        answers = Answers.of(records["fill"])
        for order in ORDERS:
            title = f"Frontier, order of commits by {order}: every condition at {len(about.steps)} fractions"
            yield title, _frontier(answers.where(order=order), about)
    if records.get("commits"):
        yield "Commit curves, and S50 by length", _commits(records["commits"])
    if records.get("ablation"):
        title = "Ablation (Figure 3): F1, and edit similarity, which sees order"
        yield title, _ablation(Answers.of(records["ablation"]), about)
    if records.get("pearl"):
        yield "Word problems: F1 by step", _pearl(Answers.of(records["pearl"]))
    if records.get("budget"):
        yield "Steps per query, and right answers by step", _budgets(Answers.of(records["budget"]))
    if records.get("resilience"):
        yield "F1 by anchors in error", _errors(Answers.of(records["resilience"]))
    if records.get("bridge"):
        yield (
            "Bridge: each layer through the head",
            _layers(Answers.of(records["bridge"], "layers").where(source=GIVEN)),
        )
    if records.get("specdiff"):
        answers = Answers.of(records["specdiff"])
        yield "SpecDiff: tokens a pass by gamma and T, and speed-up by length", _drafts(answers)


def _png(draw: Callable[[Any], None], size: tuple[float, float]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    data = BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return data.getvalue()


def _frontier(answers: Answers, about: About) -> bytes:
    """F1 and right answers against steps, bytes and passes, with all controls."""
    from matplotlib import colormaps

    colours = colormaps["tab20"]

    def draw(figure: Any) -> None:
        grid = figure.subplots(2, 3, sharey="row")
        across = (
            ("step", "diffusion steps"),
            ("bytes", "payload bytes"),
            ("passes", "passes of the edge model"),
        )
        for row, (metric, says) in enumerate((("f1", "F1 against the full run"), ("right", "right answers"))):
            for axes, (field, label) in zip(grid[row], across, strict=True):
                for index, name in enumerate((*CONDITIONS, *PARALLEL_CONDITIONS, ALONE, FULL)):
                    points = _points(answers.where(condition=name), field, metric)
                    if not points:
                        continue
                    style = {
                        "marker": _MARKERS[index % len(_MARKERS)],
                        "color": colours((2 * index + index // 10) % 20),
                        "markersize": 4,
                    }
                    if name in (ALONE, FULL):
                        axes.axhline(points[0][1], linestyle=":", color="black", linewidth=0.8)
                        axes.annotate(
                            name,
                            (0.99, points[0][1]),
                            xycoords=("axes fraction", "data"),
                            ha="right",
                            fontsize=7,
                        )
                        continue
                    xs, ys = zip(*points, strict=True)
                    axes.plot(xs, ys, linewidth=0.9, label=name, **style)
                axes.set(xlabel=label)
            grid[row][0].set_ylabel(says)
        figure.legend(
            *grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
        )

    return _png(draw, (13, 8.5))


def _points(answers: Answers, x: str, y: str) -> list[tuple[float, float]]:
    """Means of two metrics by step."""
    found = []
    for _, group in answers.groups("step"):
        across, up = group.values(x), group.values(y)
        found.append((sum(across) / len(across), sum(up) / len(up)))
    return found


def _commits(records: Sequence[Record]) -> bytes:
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

    return _png(draw, (10, 4))


def _ablation(answers: Answers, about: About) -> bytes:
    """Bars by condition and fraction, with 95% intervals: a row an order of commits, a column a measure."""
    names = (ALONE, *ABLATION)

    def draw(figure: Any) -> None:
        grid = figure.subplots(len(ORDERS), 2, sharey=True, squeeze=False)
        for row, order in zip(grid, ORDERS, strict=True):
            for axes, (metric, says) in zip(row, (("f1", "F1"), ("edit", "edit similarity")), strict=True):
                for place, name in enumerate(names):
                    for shift, step in enumerate(about.paper_steps):
                        cell = at(answers, order, step, name).cell(metric)
                        if cell is None:
                            continue
                        middle = place + 0.27 * (shift - (len(about.paper_steps) - 1) / 2)
                        ends = [[cell.mean - cell.low], [cell.high - cell.mean]]
                        label = f"{about.share(step)} steps" if not place else None
                        axes.bar(middle, cell.mean, 0.25, yerr=ends, color=f"C{shift}", label=label)
                axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=7)
                axes.set(title=f"{says}, order by {order}")
        grid[0][0].legend(fontsize=8)

    return _png(draw, (12, 7))


def _pearl(answers: Answers) -> bytes:
    def draw(figure: Any) -> None:
        for axes, order in zip(figure.subplots(1, len(ORDERS), sharey=True), ORDERS, strict=True):
            for (name,), group in answers.where(order=order).groups("condition"):
                xs, ys = zip(*_points(group, "step", "f1"), strict=True)
                axes.plot(xs, ys, marker="o", markersize=3, label=name)
            axes.axhline(0.95, linestyle=":", color="black", linewidth=0.8)
            axes.set(xlabel="diffusion steps", ylabel="F1", title=f"order by {order}")
        axes.legend(fontsize=8)

    return _png(draw, (10, 4))


def _budgets(answers: Answers) -> bytes:
    """Right answers against mean steps: fixed budgets as a line, rules as points; a panel per plan."""

    def draw(figure: Any) -> None:
        plans = [plan for plan in budget.PLANS if plan != budget.RANDOM]
        *panels, last = figure.subplots(1, len(plans) + 1, sharey=True)
        for axes, plan in zip(panels, plans, strict=True):
            here = answers.where(plan=plan)
            xs, ys = zip(*sorted(_means(here.where(budget=budget.FIXED), "planned")), strict=True)
            axes.plot(xs, ys, color="black", linewidth=0.9, label="the same steps for all")
            for index, rule in enumerate(budget.RULES):
                for x, y in _means(here.where(budget=rule), "budget"):
                    axes.plot(x, y, _MARKERS[index], markersize=5, label=rule)
            axes.set(xlabel="mean steps", xscale="log", title=f"plan {plan}")
        panels[0].set_ylabel("right answers")
        for plan in budget.PLANS:
            last.plot(*_curve(answers.where(plan=plan, budget=budget.FIXED)), label=plan)
        last.set(xlabel="steps planned", title="drafts by step")
        last.legend(fontsize=7)
        labelled = panels[0].get_legend_handles_labels()
        figure.legend(*labelled, loc="outside lower center", ncols=5, fontsize=8)

    return _png(draw, (13, 4.5))


def _means(answers: Answers, key: str) -> list[tuple[float, float]]:
    """Mean steps and right answers of each group."""
    found = []
    for _, group in answers.groups(key):
        steps, right = group.values("steps"), group.values("right")
        found.append((sum(steps) / len(steps), sum(right) / len(right)))
    return found


def _curve(fixed: Answers) -> tuple[list[float], list[float]]:
    """Right answers by the number of steps planned."""
    points = sorted(_points_by(fixed, "planned", "right"))
    return [x for x, _ in points], [y for _, y in points]


def _errors(answers: Answers) -> bytes:
    def draw(figure: Any) -> None:
        groups = list(answers.groups("selection"))
        for axes, ((selection,), group) in zip(
            figure.subplots(1, len(groups), sharey=True, squeeze=False)[0], groups, strict=True
        ):
            start = _points_by(group.where(error=RIGHT), "count", "f1")
            for kind in (TOKEN, PLACE):
                points = sorted(start + _points_by(group.where(error=kind), "count", "f1"))
                axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=kind)
            for _, f1 in _points_by(group.where(error=ALONE), "count", "f1"):
                axes.axhline(f1, linestyle=":", color="black", linewidth=0.8, label=ALONE)
            axes.set(xlabel="anchors in error", ylabel="F1", title=selection)
        axes.legend(fontsize=8)

    return _png(draw, (9, 4))


def _drafts(answers: Answers) -> bytes:
    def draw(figure: Any) -> None:
        accepted, faster = figure.subplots(1, 2)
        for (steps,), group in answers.where(drafter=DIFFUSION).groups("steps"):
            accepted.plot(*_lines(group, "accepted"), marker="o", markersize=4, label=f"T = {steps}")
        small = answers.where(drafter=AUTOREGRESSIVE)
        accepted.plot(*_lines(small, "accepted"), "k--", label="draft model")
        accepted.set(xlabel="gamma", ylabel="tokens a pass of the target")
        accepted.legend(fontsize=8)
        for kind, style in ((DIFFUSION, "o"), (AUTOREGRESSIVE, "x")):
            gamma, steps = best(answers.where(drafter=kind))
            cell = answers.where(drafter=kind, gamma=gamma, steps=steps)
            faster.plot(cell.values("length"), cell.values("faster"), style, markersize=4, label=kind)
        faster.axhline(1, linestyle=":", color="black", linewidth=0.8)
        faster.set(xlabel="tokens of the answer", ylabel="times as fast as the target alone")
        faster.legend(fontsize=8)

    return _png(draw, (10, 4))


def _lines(answers: Answers, metric: str) -> tuple[list[float], list[float]]:
    """Means of a metric by gamma."""
    points = sorted(
        (gamma, sum(group.values(metric)) / len(group)) for (gamma,), group in answers.groups("gamma")
    )
    return [x for x, _ in points], [y for _, y in points]


def _layers(layers: Answers) -> bytes:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for (kind,), group in layers.groups("kind"):
            for metric, style in (("own", "-"), ("dream", "--"), ("confidence", ":")):
                colour = dict(zip(KINDS, ("C0", "C1", "C2"), strict=True))[kind]
                says = {
                    "own": "its own answer",
                    "dream": "the diffusion model's",
                    "confidence": "its confidence",
                }
                xs, ys = zip(*sorted(_points_by(group, "layer", metric)), strict=True)
                axes.plot(xs, ys, style, color=colour, label=f"{kind}: {says[metric]}")
        for threshold in THRESHOLDS:
            axes.axhline(threshold, color="grey", linewidth=0.4)
        axes.set(xlabel="layer", ylabel="share of tokens", ylim=(0, 1.02))
        axes.legend(fontsize=7)

    return _png(draw, (7, 4.5))


def _points_by(answers: Answers, key: str, metric: str) -> list[tuple[float, float]]:
    return [(float(value), sum(group.values(metric)) / len(group)) for (value,), group in answers.groups(key)]
