"""`python -m cloud_anchor.suite`, for one version: it is now `python -m lab run paper`.

Responsible for handing the command on: `--phases A,B` are names of experiments there. Not responsible for
anything else; it imports no laboratory, which is installed with the extra `experiments`.
"""

from __future__ import annotations

import sys
from importlib import import_module

from common.cli import required


def laboratory(arguments: list[str]) -> list[str]:
    """The laboratory's arguments for the suite's."""
    if arguments[:1] in (["traces"], ["published"], ["compare"]):
        return arguments
    names = ["paper"]
    if "--phases" in arguments[:-1]:
        at = arguments.index("--phases")
        names = [name.strip() for name in arguments[at + 1].split(",")]
        arguments = arguments[:at] + arguments[at + 2 :]
    return ["run", *names, *("--prompts" if word == "--subset" else word for word in arguments)]


if __name__ == "__main__":
    print("suite: this command is now `python -m lab run paper`", file=sys.stderr)
    with required("suite", "experiments"):
        main = import_module("lab.__main__").main
    sys.exit(main(laboratory(sys.argv[1:])))
