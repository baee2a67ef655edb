"""The left-to-right losses compared: `python -m lab.drafting.loss_ablation`.

The same drafter trained without an intervention, with each and with all, the same steps and the same seeds;
its mean accepted length on held-out prompts, also of the long answers and by family, with intervals and
paired differences. Resumable.
Responsible for the comparison. Not responsible for training (see `drafter_training`) or accepted lengths (see
`accepted`).
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cloud_anchor.errors import RequestError
from common.cli import run_command
from common.files import write_whole
from lab.drafting.accepted import tokens_a_pass
from lab.drafting.losses import CHAIN_WEIGHT, FOCAL_WEIGHT
from lab.drafting.options import GAMMA_OF_BLOCK, add_options, plan_of, prepare
from lab.drafting.training import LossOptions, train_drafter
from lab.statistics import bootstrap

BASE, ALL = "base", "all"
EVERY = "every answer"
LONG = 60
"""Tokens from which on an answer is long."""


def arms(block: int) -> dict[str, LossOptions]:
    """The losses that are compared, by name."""
    gamma = GAMMA_OF_BLOCK * block
    return {
        BASE: LossOptions(),
        "+weights": LossOptions(gamma=gamma),
        "+focal": LossOptions(focal=FOCAL_WEIGHT),
        "+chain": LossOptions(chain=CHAIN_WEIGHT),
        ALL: LossOptions(gamma, FOCAL_WEIGHT, CHAIN_WEIGHT),
    }


def groups_of(families: Sequence[str], sizes: Sequence[int]) -> dict[str, list[int]]:
    """The answers, by place: all of them, the long ones where there are any, and each family's.

    families, sizes: of every answer, its size in tokens.
    """
    groups = {EVERY: list(range(len(families)))}
    long = [place for place, size in enumerate(sizes) if size >= LONG]
    if long:
        groups[f"{LONG} tokens and more"] = long
    for family in dict.fromkeys(families):
        groups[family] = [place for place, name in enumerate(families) if name == family]
    return groups


def summarise(
    lengths: Mapping[str, Sequence[Sequence[float]]], groups: Mapping[str, Sequence[int]]
) -> list[dict[str, Any]]:
    """A row for each arm and group: the mean over answers and seeds, and its paired difference to base's.

    lengths: by arm, for each seed the accepted length of every answer. An answer's lengths are averaged over
    the seeds first: the interval is that of the answers, with these seeds. groups: places of answers.
    """
    per_answer = {
        arm: [sum(values) / len(values) for values in zip(*runs, strict=True)]
        for arm, runs in lengths.items()
    }
    rows = []
    for group, here in groups.items():
        for arm, values in per_answer.items():
            mine = bootstrap([values[i] for i in here])
            less = bootstrap([values[i] - per_answer[BASE][i] for i in here])
            rows.append(
                {
                    "arm": arm,
                    "group": group,
                    "answers": len(here),
                    "tokens a pass": mine.mean,
                    "interval": [mine.low, mine.high],
                    "less base": less.mean,
                    "less base interval": [less.low, less.high],
                    "seeds": [sum(run[i] for i in here) / len(here) for run in lengths[arm]],
                }
            )
    return rows


def ablation_table(report: Mapping[str, Any]) -> Table:
    table = Table(
        title=f"Tokens a pass of the target, blocks of {report['block']}, {report['steps']} steps, "
        f"seeds {', '.join(map(str, report['seeds']))}"
    )
    for column in ("answers", "loss", "number", "tokens a pass [95%]", "less base [95%]", "by seed"):
        table.add_column(column, justify="left" if column in ("answers", "loss") else "right")
    for row in report["rows"]:
        table.add_row(
            row["group"],
            row["arm"],
            str(row["answers"]),
            _interval(row["tokens a pass"], row["interval"]),
            _interval(row["less base"], row["less base interval"], "+"),
            " ".join(f"{value:.2f}" for value in row["seeds"]),
            end_section=row["arm"] == report["arms"][-1],
        )
    return table


def _interval(mean: float, ends: Sequence[float], sign: str = "") -> str:
    return f"{mean:{sign}.2f} [{ends[0]:{sign}.2f}, {ends[1]:{sign}.2f}]"


def plot_ablation(report: Mapping[str, Any]) -> bytes:
    """Tokens a pass by loss, side by side for each group of answers, as PNG."""
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(row["group"] for row in report["rows"]))
    figure = Figure(figsize=(2 + 1.8 * len(groups), 4), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(report["arms"])
    for index, arm in enumerate(report["arms"]):
        rows = [row for row in report["rows"] if row["arm"] == arm]
        means = [row["tokens a pass"] for row in rows]
        spread = [
            [mean - row["interval"][0] for mean, row in zip(means, rows, strict=True)],
            [row["interval"][1] - mean for mean, row in zip(means, rows, strict=True)],
        ]
        places = [at + (index - (len(report["arms"]) - 1) / 2) * width for at in range(len(groups))]
        axes.bar(places, means, width, yerr=spread, label=arm, error_kw={"linewidth": 0.8})
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel("tokens a pass of the target")
    axes.legend(fontsize=7)
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def main(argv: list[str] | None = None) -> int:
    parser = ArgumentParser(
        prog="python -m lab.drafting.loss_ablation",
        description="Compare the left-to-right losses of a block drafter: base, each, and all.",
        epilog="example: python -m lab.drafting.loss_ablation --target runs/testbed/testbed-causal "
        "--data testbed --block 16 -o runs/ablation",
    )
    add_options(parser, Path("runs/ablation"))
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="runs of each loss (3), from --seed"
    )
    args = parser.parse_args(argv)
    again = f"interrupted: run the same command again to continue from {args.output}"
    return run_command("ablation", lambda: _run(args), interrupted=again)


def _run(args: Namespace) -> int:
    if args.seeds < 1:
        raise RequestError(f"--seeds: expected at least 1, found {args.seeds}")
    compared = arms(args.block)
    plans = {name: plan_of(args, loss) for name, loss in compared.items()}
    material = prepare(args)
    seeds = list(range(args.seed, args.seed + args.seeds))
    console = Console(stderr=True)
    lengths: dict[str, list[list[float]]] = {name: [] for name in plans}
    for seed in seeds:
        for name, plan in plans.items():
            console.print(f"{name}, seed {seed}")
            folder = args.output / f"{name.strip('+')}-{seed}"
            trainer = train_drafter(
                plan,
                material.folder,
                material.answers,
                material.loaded,
                folder,
                seed=seed,
                device=args.device,
            )
            file = folder / "lengths.json"
            if not file.is_file() or len(json.loads(file.read_bytes())) != len(material.held_out):
                net = trainer.averaged().eval()
                found = tokens_a_pass(net, trainer.form, material.held_out, material.loaded[0])
                write_whole(file, json.dumps(found).encode())
            lengths[name].append(json.loads(file.read_bytes()))
    report = {
        "target": str(material.folder),
        "block": args.block,
        "steps": args.steps,
        "seeds": seeds,
        "arms": list(plans),
        "rows": summarise(
            lengths,
            groups_of(
                [item.family for item in material.held_out], [len(item.answer) for item in material.held_out]
            ),
        ),
    }
    write_whole(args.output / "ablation.json", (json.dumps(report, indent=1) + "\n").encode())
    write_whole(args.output / "ablation.png", plot_ablation(report))
    Console(width=None if sys.stdout.isatty() else 160).print(ablation_table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
