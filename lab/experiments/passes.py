"""Experiment `passes`: right answers over few passes of the diffusion model.

Every commit rule after a few passes, where answers are not complete yet: sent as they stand (early stop) and
edge-aware at several thresholds, with paired differences against the threshold rule sent alike, for all
answers and by their length. Each rule is finished as well, and its F1 is against its own finished answer.
With --controls the main table by length instead: one rule's edge-aware payload beside controls of at most as
many bytes. Not responsible for the rules (see `sampling.commits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import CONFIDENCE as BY_CONFIDENCE
from cloud_anchor.sampling.config import DenoiseConfig, steps_for
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import CONFIDENCE, EDGE_AWARE, Selection, select
from common.cli import option
from lab.case import Case
from lab.conditions import Situation, plan
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.equal_bytes import controls
from lab.experiments.length_tables import (
    AWARE,
    EARLY,
    LENGTH_GROUPS,
    LengthGroup,
    by_length,
    length_plot,
    length_tables,
)
from lab.plots import MARKERS, Picture, band, png
from lab.questions.items import Item
from lab.store import Record
from lab.tables import Answers, Column, Table, less_than, rows

PASSES = (1, 2, 3, 4, 6, 8)
THRESHOLDS = (0.0, 0.3, 0.5)
EARLY_STOP = "early stop"
BASELINE = "0.9"
SENT_TODAY = f"edge-aware {EdgeAwareConfig().threshold:g}"
"""What is sent by default."""
PAPER_RULE = "paper"
"""The order of commits and the settings of the paper, a quota a step."""
DEFAULT_RULES = ("quota", BASELINE)

READOUTS: dict[str, Selection] = {
    EARLY_STOP: Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0)),
    **{
        f"edge-aware {threshold:g}": Selection(EDGE_AWARE, EdgeAwareConfig(threshold=threshold))
        for threshold in THRESHOLDS
    },
}
"""What is sent of an unfinished run, by the name in the table."""


def rule_config(rule: str, base: DenoiseConfig) -> DenoiseConfig:
    """`base` with a commit rule: quota, paper, a probability.

    Raises RequestError for another text.
    """
    name, _, given = rule.partition(":")
    config = replace(base, order=BY_CONFIDENCE, stop="complete")
    try:
        match name:
            case "quota" if not given:
                return replace(config, commit="quota")
            case "paper" if not given:
                return replace(plan("entropy", base), stop="complete")
            case _ if not given:
                return replace(config, commit=float(name))
    except ValueError:
        pass
    raise RequestError(f"rule: expected quota, a probability or paper, found {rule!r}")


@dataclass(frozen=True)
class PassesOptions:
    """Raises RequestError for rules and passes that there are not."""

    passes: tuple[int, ...] = option(PASSES, "after which passes", metavar="N")
    fractions: tuple[float, ...] = option((), "after which shares of the steps, instead", float, metavar="F")
    rules: tuple[str, ...] = option(
        DEFAULT_RULES,
        "quota, a probability, paper",
        metavar="RULE",
    )
    controls: str | None = option(
        None,
        "one of the rules: its edge-aware payload beside controls of at most as many bytes, by length",
        metavar="RULE",
    )

    def __post_init__(self) -> None:
        if min(self.passes) < 1:
            raise RequestError(f"--passes: expected at least 1, found {min(self.passes)}")
        if self.controls and self.controls not in self.rules:
            raise RequestError(f"--controls: expected one of {' '.join(self.rules)}, found {self.controls}")
        for rule in self.rules:
            rule_config(rule, DenoiseConfig())  # a wrong one fails before a model is loaded

    def marks(self, total_steps: int) -> list[int]:
        """After which passes runs are read, ascending; raises RequestError where the plan has none."""
        wanted = [steps_for(fraction, total_steps) for fraction in self.fractions] or self.passes
        if min(wanted) > total_steps:
            raise RequestError(
                f"--passes: expected at most the {total_steps} steps of the plan, found {min(wanted)}"
            )
        return sorted({passes for passes in wanted if passes <= total_steps})

    @property
    def baseline(self) -> str:
        """The rule that others are compared with: the threshold rule, else the first one."""
        return BASELINE if BASELINE in self.rules else self.rules[0]


def runs_at(
    pipeline: Pipeline, prompts: Sequence[list[int]], rule: str, marks: Sequence[int]
) -> list[dict[int, Denoised]]:
    """The run of each prompt after each number of passes; a complete answer stays as it is."""
    rows_: list[dict[int, Denoised]] = [{} for _ in prompts]
    config = rule_config(rule, pipeline.plan())
    batch: ContinuousBatch[int] = ContinuousBatch(pipeline.model, config)
    for index, prompt in enumerate(prompts):
        batch.join(index, prompt, marks)
    while len(batch):
        for index, run, done in batch.step():
            reached = (m for m in marks if m == run.steps or (done and m >= run.steps))
            rows_[index] |= dict.fromkeys(reached, run)
    return rows_


def measure(setup: Setup, items: Sequence[Item]) -> Iterator[Record]:
    """The records of some prompts, which are denoised together."""
    own: PassesOptions = setup.own
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    prompts = [pipeline.form.ids(item.prompt) for item in items]
    whole = replace(pipeline.plan(), commit="quota", stop="complete")
    marks, end = own.marks(whole.total_steps), whole.total_steps
    full = denoise(pipeline.model, prompts, whole)
    runs = {rule: runs_at(pipeline, prompts, rule, [*marks, end]) for rule in own.rules}
    paper = runs_at(pipeline, prompts, PAPER_RULE, [*marks, end]) if own.controls else []
    for index, item in enumerate(items):
        case = Case(item, prompts[index], pipeline.form, edge, whole.canvas, setup.options.seed)
        finished = {rule: found[index][end] for rule, found in runs.items()}
        cells = {
            rule: {
                str(passes): _cells(setup, case, found[index][passes], finished[rule].answer)
                for passes in marks
            }
            for rule, found in runs.items()
        }
        record: Record = {
            "tokens": len(full[index].answer),
            "full": _whole(case, full[index]),
            "finished": {rule: _whole(case, run) for rule, run in finished.items()},
            "rules": cells,
        }
        if own.controls:
            record["finished"][PAPER_RULE] = _whole(case, paper[index][end])
            record["controls"] = {}
            for passes in marks:
                run, sent = runs[own.controls][index][passes], cells[own.controls][str(passes)][SENT_TODAY]
                assert pipeline.scorer is not None  # a payload with a budget is edge-aware
                at = Situation(run, finished[own.controls].answer, case.contract, pipeline.scorer, case.seed)
                beside = replace(at, early=paper[index][passes], full=paper[index][end].answer)
                record["controls"][str(passes)] = controls(case, at, beside, sent["bytes"])
        yield record


def _whole(case: Case, run: Denoised) -> Record:
    """Figures of a finished run."""
    judged = case.judged(run.answer, run.answer)
    return {"right": judged["right"], "graded": judged["graded"], "steps": run.steps}


def _cells(setup: Setup, case: Case, run: Denoised, reference: Sequence[int]) -> dict[str, Record]:
    """The figures of one run, by what is sent of it."""
    pipeline, edge = setup.lab.pipeline, setup.lab.edges[0]
    parameters = pipeline.model.parameters
    found = {}
    for name, selection in READOUTS.items():
        selected = select(run, case.contract, selection, pipeline.scorer)
        walk = selected.walk
        text = run.predicted_answer if walk is None else case.fill(selected.anchors).ids
        edge_tokens = walk.tokens if walk else 0
        tokens = run.steps * (len(run.prompt_ids) + run.canvas)
        found[name] = case.judged(text, reference) | {
            "bytes": case.size(selected.anchors, extras=run.extras()),
            "sent": len(selected.anchors),
            "steps": run.steps,
            "edge_passes": walk.passes if walk else 0,
            "edge_tokens": edge_tokens,
            "gflop": 2e-9 * (parameters * tokens + edge.parameters * edge_tokens),
        }
    return found


SHOWN = {EARLY_STOP: EARLY, SENT_TODAY: AWARE}
"""Readouts in the main table, and their names there."""


def lengths(records: Records, about: About) -> dict[str, LengthGroup]:
    """The groups of the main table."""
    return {
        name: LengthGroup(part, SHOWN, about.own.controls, about.total_steps)
        for name, part in by_length(records, LENGTH_GROUPS).items()
    }


def tables(records: Records, about: About) -> list[Table]:
    if about.own.controls:
        return length_tables(lengths(records, about))
    parts = {"": list(records), **by_length(records)}
    return [_by_rule(part, length, about.own) for length, part in parts.items()]


def flat(records: Records) -> Answers:
    """One row per prompt, number of passes, rule and readout."""
    return Answers(
        [
            {
                "id": record["id"],
                "subject": record.get("subject"),
                "passes": int(passes),
                "rule": rule,
                "readout": readout,
                **figures,
            }
            for record in records
            for passes in sorted(next(iter(record["rules"].values())), key=int)
            for rule, cells in record["rules"].items()
            for readout, figures in cells[passes].items()
        ]
    )


def _by_rule(records: Records, length: str, own: PassesOptions) -> Table:
    """Every rule is compared with the baseline, of which the same is sent."""
    answers = flat(records)
    plain = answers.where(rule=own.baseline)

    def baseline(group: Answers) -> Answers:
        """The baseline's answers like these; none for its own."""
        first = group.rows[0]
        same = plain.where(passes=first["passes"], readout=first["readout"])
        return Answers() if first["rule"] == own.baseline else same

    columns: dict[str, Column] = {
        "N": len,
        "right": "right",
        "right, difference": less_than(baseline, "right"),
        "graded": "graded",
        "graded, difference": less_than(baseline, "graded"),
        "F1": "f1",
        "F1, difference": less_than(baseline, "f1"),
        "bytes": "bytes",
        "bytes, difference": less_than(baseline, "bytes"),
        "sent": "sent",
        "passes run": "steps",
        "edge passes": "edge_passes",
        "edge tokens": "edge_tokens",
        "GFLOP": "gflop",
    }
    right, steps = (sum(r["full"][name] for r in records) / len(records) for name in ("right", "steps"))
    ends = ", ".join(
        f"{rule} {sum(r['finished'][rule]['right'] for r in records) / len(records):.3f}"
        for rule in records[0]["finished"]
    )
    note = (
        f"F1 is against the rule's own finished answer. Differences: paired, to rule {own.baseline} after as "
        f"many passes, sent alike. Right at the end: one token a pass {right:.3f} after {steps:.1f} passes; "
        f"{ends}."
    )
    title = "After few passes of the diffusion model" + (f", answers of {length} tokens" if length else "")
    groups = answers.by({"passes": ("passes", str), "rule": "rule", "sent as": "readout"})
    return Table.of(f"passes {length}".strip(), title, rows(groups, columns), note)


def plots(records: Records, about: About) -> Iterator[Picture]:
    if about.own.controls:
        title = "The share told of what was asked, by length, over the share of the steps"
        yield Picture("by_length", title, length_plot(lengths(records, about)))
    else:
        yield Picture("passes", "Right answers and F1 by rule, over passes", _plot(records))


def _plot(records: Records) -> bytes:
    """A column a readout and a line a rule; below right answers and F1, right answers by length."""
    lines: list[tuple[str, str, Sequence[Record]]] = [
        ("right", "right answers", records),
        ("f1", "F1 against the rule's own finished run", records),
    ]
    lines += [("right", f"right, {name} tokens", part) for name, part in by_length(records).items()]

    def draw(figure: Any) -> None:
        grid = figure.subplots(len(lines), len(READOUTS), sharex=True, sharey="row")
        for line, (metric, says, part) in zip(grid, lines, strict=True):
            answers = flat(part)
            for axes, readout in zip(line, READOUTS, strict=True):
                for index, ((rule,), group) in enumerate(answers.where(readout=readout).groups("rule")):
                    found = {passes: one.cell(metric) for (passes,), one in group.groups("passes")}
                    cells = [cell for cell in found.values() if cell]
                    marker = MARKERS[index % len(MARKERS)]
                    band(axes, list(found), cells, 0.08, marker=marker, label=rule)
                if metric == "right":
                    right = sum(record["full"]["right"] for record in part) / len(part)
                    axes.axhline(right, linestyle=":", color="black", linewidth=0.8)
                axes.set_title(readout, fontsize=9)
                axes.set_xlabel("passes of the diffusion model")
            line[0].set_ylabel(f"{says} (N = {len(part)})")
        grid[0][0].legend(fontsize=7)

    return png(draw, (13, 3.4 * len(lines)))


EXPERIMENT = Experiment(
    "passes",
    "Right answers over few passes of the diffusion model, by commit rule",
    measure,
    tables,
    plots=plots,
    options=PassesOptions,
)
