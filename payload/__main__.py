"""`python -m payload inspect`: what a payload says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.cli import CommandParser, run_command
from payload import inspect


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code (see `common.cli`)."""
    parser = CommandParser(prog="python -m payload", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    says = "header, optional fields and anchors of a payload"
    commands.add_parser("inspect", help=says, epilog=inspect.EPILOG).declare(inspect.InspectArguments)
    args = parser.parse(inspect.InspectArguments, argv)
    return run_command("payload inspect", lambda: inspect.run(args))


if __name__ == "__main__":
    sys.exit(main())
