"""`python -m lab run rivals`: what a sceptic would do instead, over links.

Every method on the same questions with one pair of models, its conversations simulated over LTE, 3G, a
satellite, NB-IoT by satellite and SBD, each without and with loss. Responsible for the options, the tables
and the plot. Not responsible for methods (see `methods`) or networks (see `links.networks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import DenoiseConfig
from common.cli import option
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.passes import rule_config
from lab.links.conversation import CLOUD, EDGE, Speeds
from lab.links.networks import LOSSES, NETWORKS
from lab.plots import COLOURS, Picture, png
from lab.questions.items import Item
from lab.rivals.methods import ALONE, REFINED, WHOLE, Exchange, MethodBench, MethodOptions, shot
from lab.rivals.standings import Exchanges, Race, curves, race
from lab.store import Record
from lab.tables import Answers, Row, Table


@dataclass(frozen=True)
class RivalOptions:
    """Speeds are assumed: Dream-7B on an A100, 42 ms a pass, and Qwen2.5-0.5B there, 18 ms (section 4.8 of
    the paper); 0.5B in 4 bits on a phone, 50 tokens a second, 2 ms for a further known token.
    """

    links: tuple[str, ...] = option(tuple(NETWORKS), "networks", choices=tuple(NETWORKS))
    losses: tuple[float, ...] = option(LOSSES, "shares of the packets lost", metavar="SHARE")
    repeats: int = option(5, "losses drawn per question", metavar="N")
    finish: str = option("0.9", "commit rule of a finished answer", metavar="RULE")
    shots: tuple[int, ...] = option(
        (1, 2, 12),
        "passes after which ours sends; an answer that is complete before is sent then. The last is what all "
        "are compared with",
        metavar="PASSES",
    )
    cloud_ms: float = option(42.0, "milliseconds of a pass of the diffusion model")
    edge_ms: float = option(18.0, "of a pass of the edge model in the cloud")
    device_ms: float = option(20.0, "of a pass, or token, on the device")
    device_token_ms: float = option(2.0, "of a further known token in a pass there")

    def __post_init__(self) -> None:
        if min(self.repeats, *self.shots) < 1:
            raise RequestError("--repeats, --shots: expected at least 1, found less")
        if not all(0 <= loss < 1 for loss in self.losses):
            raise RequestError(f"--losses: expected shares from 0, below 1, found {self.losses}")
        if not all(0 <= value < 1e6 for value in self.milliseconds):
            raise RequestError("milliseconds: expected 0 to 1,000,000, found another number")
        rule_config(self.finish, DenoiseConfig())

    @property
    def milliseconds(self) -> tuple[float, float, float, float]:
        return self.cloud_ms, self.edge_ms, self.device_ms, self.device_token_ms

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.shots)))

    @property
    def race(self) -> Race:
        speeds = Speeds(*(value / 1000 for value in self.milliseconds))
        return Race([NETWORKS[name] for name in self.links], sorted(self.losses), self.repeats, speeds)


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    steps: tuple[int, ...] = setup.own.steps
    setup.lab.pipeline.require_one_vocabulary("rivals")
    options = MethodOptions(finish=setup.own.finish, shots=steps, refine=steps)
    bench = MethodBench(setup.lab.pipeline, setup.lab.edges[0].runtime, options)
    if steps[-1] > bench.plan.total_steps:
        raise RequestError(f"--shots: expected at most {bench.plan.total_steps} passes, found {steps[-1]}")
    for item in items:
        yield {"exchanges": [each.to_json() for each in bench.exchanges(item)]}


def exchanges_of(records: Records) -> Exchanges:
    return {each["id"]: [Exchange.from_json(data) for data in each["exchanges"]] for each in records}


def tables(records: Records, about: About) -> Iterator[Table]:
    """What no network changes, then a table a network."""
    setting, exchanges = about.own.race, exchanges_of(records)
    first, worst = setting.losses[0], setting.losses[-1]
    answers, reference = Answers(list(race(exchanges, setting))), shot(about.own.steps[-1])
    speeds = ", ".join(f"{ms:g} ms" for ms in about.own.milliseconds)
    note = (
        "Right: the whole answer on the screen at the end of the link's patience. Less the reference: paired "
        f"by question, to {reference}. Speeds: {speeds} for a pass of the diffusion model, of the edge model "
        "in the cloud, for a token on the device and for a further known one. "
        f"{setting.repeats} draws of losses a question."
    )
    yield Table.of("methods", "Methods", list(_methods(exchanges, answers, about, reference)), note)
    for network in setting.networks:
        here = answers.where(network=network.name)
        base = here.where(method=reference, loss=worst)
        lines: list[Row] = []
        for (method,), group in here.groups("method"):
            calm, lossy = group.where(loss=first), group.where(loss=worst)
            line: Row = {"method": method}
            line |= {f"bytes {way}": _mean(calm, way, 0) for way in ("up", "down")}
            line |= {"first token, s": _mean(calm, "first"), "first that stays, s": _mean(calm, "standing")}
            line |= {"last token, s": _mean(calm, "last")}
            for loss in setting.losses[1:]:
                line[f"at {loss:.0%} loss"] = _mean(group.where(loss=loss), "last")
            if setting.losses[1:]:
                line |= {"ended": _mean(lossy, "success"), "right": _mean(lossy, "right")}
            line |= {"right, less the reference": _less(lossy, base, "right")}
            lines.append(line | {"last token, less the reference": _less(lossy, base, "last")})
        note = (
            f"Bytes and times at {first:.0%} loss; what stands behind the last token's times, at {worst:.0%}."
        )
        yield Table.of(network.name, f"Over {network.name}", lines, note)


def _methods(exchanges: Exchanges, answers: Answers, about: About, reference: str) -> Iterator[Row]:
    setting = about.own.race
    calm = answers.where(network=setting.networks[0].name, loss=setting.losses[0])
    for (method,), group in calm.groups("method"):
        found = [each for of in exchanges.values() for each in of if each.method == method]
        cloud, edge = (sum(each.rows(who) for each in found) / len(found) for who in (CLOUD, EDGE))
        work = cloud * about.parameters + edge * next(iter(about.edges.values()))
        yield {
            "method": method,
            "right": group.cell("right"),
            "less the reference": _less(group, calm.where(method=reference), "right"),
            "requests": round(sum(each.requests for each in found) / len(found), 1),
            "cloud passes": round(cloud, 1),
            "edge passes in the cloud": round(edge, 1),
            "cloud passes x parameters, millions": round(work / 1e6, 1),
        }


def _mean(group: Answers, metric: str, digits: int = 2) -> float | int | None:
    values = group.values(metric)
    return round(sum(values) / len(values), digits or None) if values else None


def _less(group: Answers, other: Answers, metric: str) -> Any:
    found = group.less(other, metric)
    return found.summary if found else None


def plots(records: Records, about: About) -> Iterator[Picture]:
    """Share of right answers over time, a panel a network, at the least loss above none; of the methods that
    differ most. The tables have the others.
    """
    setting, exchanges = about.own.race, exchanges_of(records)
    drawn = [WHOLE["zstd"], shot(about.own.shots[-1]), REFINED, ALONE]
    loss = setting.losses[min(1, len(setting.losses) - 1)]

    def draw(figure: Any) -> None:
        from matplotlib.ticker import LogLocator

        panels = figure.subplots(down, across, squeeze=False).ravel()
        for axes, network in zip(panels, setting.networks, strict=False):
            times, found = curves(exchanges, setting, network, loss)
            moved = []
            for colour, method in zip(COLOURS, (each for each in drawn if each in found), strict=False):
                curve = found[method]
                axes.plot(times, curve, drawstyle="steps-post", color=colour, label=method)
                moved += [t for t, a, b in zip(times, curve, [0.0, *curve], strict=False) if a != b]
            if moved:
                axes.set_xlim(min(moved) * 0.7, max(moved) * 1.3)
            axes.set(xscale="log", ylim=(-0.02, 1.02), title=f"{network.name}, {loss:.0%} loss")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
            axes.set(xlabel="seconds from the question", ylabel="whole answer shown and right")
            axes.grid(alpha=0.3, which="both", linewidth=0.4)
        for axes in panels[len(setting.networks) :]:
            axes.axis("off")
        panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center", fontsize=9, frameon=False)

    across = 2 if len(setting.networks) > 1 else 1
    down = -(-(len(setting.networks) + 1) // across)
    yield Picture("rivals", "Right answers over time", png(draw, (6.5 * across, 3.6 * down)))


EXPERIMENT = Experiment(
    "rivals",
    "Ours against its rivals: right answers, bytes, round trips and time over links",
    measure,
    lambda records, about: list(tables(records, about)),
    plots=plots,
    options=RivalOptions,
    defaults={"prompts": 40},
)
