"""`python -m lab`: the laboratory's command line.

Responsible for the commands. Not responsible for measuring (see `run`, `experiments`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

from common.cli import CommandParser, required, run_command, taken

with required("lab", "experiments"):
    from lab import publish
    from lab.experiments import PAPER, chosen, every
    from lab.options import NoOptions, Options
    from lab.report import print_tables
    from lab.run import run
    from payload import PayloadError

EPILOG = """examples:
  python -m lab run paper --model tiny -o results/              # every table and figure of the paper
  python -m lab run fill ablation --prompts 20 --seed 1 -o results-seed1/
  python -m lab run passes --fractions 0.1 0.25 -o results/passes
  python -m lab run paper --model Dream-org/Dream-v0-Instruct-7B \\
      --edge bundles/qwen2.5-0.5b bundles/qwen2.5-1.5b \\
      --thinker Qwen/Qwen2.5-7B-Instruct --canvas 256 --total-steps 128 \\
      --data gsm8k=gsm8k.jsonl mmlu=mmlu.jsonl arc=arc.jsonl -o results/

`python -m lab run NAME --help` shows an experiment's own options, `python -m lab list` the names. Several
experiments that are not the paper's get a folder each below the results folder.

exit codes: 0 ok, 1 failed, 2 usage, 4 bad or missing model, 130 interrupted (run again to continue)
"""
ABOUT = """run        measure experiments: python -m lab run NAME [NAME ...] -o FOLDER
list       the experiments by name
distil     teach a masked model to answer in few passes: python -m lab distil MODEL -o FOLDER
publish    the pages that quote measured figures, and the figures of a results folder"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run_command(
        "lab",
        lambda: _dispatch(arguments),
        extra="experiments",
        interrupted="interrupted; the same command continues from here",
        exit_codes={PayloadError: 4},  # models with different vocabularies
    )


def _dispatch(arguments: Sequence[str]) -> int:
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is None:
        parser = CommandParser(prog="python -m lab", description=ABOUT, epilog=EPILOG)
        parser.add_argument("command", choices=tuple(COMMANDS))
        parser.parse_args(arguments[:1])
    assert command is not None  # else the parser has said what is wrong
    return command(arguments[1:])


def _run(arguments: Sequence[str]) -> int:
    names = _leading(arguments)
    parser = CommandParser(
        prog=f"python -m lab run {' '.join(names) or 'NAME'}",
        description="Measure experiments, with controls and 95% intervals, and write a report.",
        epilog=EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="`paper` for all that are the paper's")
    experiments = chosen(names) if names else []
    own = experiments[0].options if experiments else NoOptions
    for kind in (Options, own):
        parser.declare(kind)
    parser.set_defaults(**experiments[0].defaults if experiments else {})
    found = vars(parser.parse_args(arguments))
    options = taken(Options, found)
    report = run(experiments or chosen(names), options, taken(own, found))
    if len(experiments) == 1:
        print_tables(report.tables)
    items = max(report.measured.values(), default=0)
    print(json.dumps({"items": items, "report": str(options.output / "report.html")}))
    return 0


def _leading(arguments: Sequence[str]) -> list[str]:
    """The words before the first option: names of experiments."""
    first = next((at for at, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return list(arguments[:first])


def _list(arguments: Sequence[str]) -> int:
    CommandParser(prog="python -m lab list", description="The experiments by name.").parse_args(arguments)
    print(f"{PAPER:15} all of these down to specdiff, the paper's, in one report")
    for each in every():
        print(f"{each.name:15} {each.title}")
    return 0


def _distil(arguments: Sequence[str]) -> int:
    from lab.distil import command  # the training's packages

    return command.main(arguments)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": _run,
    "list": _list,
    "distil": _distil,
    "publish": publish.main,
}

if __name__ == "__main__":
    sys.exit(main())
