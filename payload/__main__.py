"""`python -m payload inspect`: what a payload says."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from common.cli import run_command
from payload import inspect


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code (see `common.cli`)."""
    parser = argparse.ArgumentParser(prog="python -m payload", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser(
        "inspect",
        help="header, optional fields and anchors of a payload",
        epilog=inspect.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_arguments(sub)
    args = parser.parse_args(argv)
    return run_command("payload inspect", lambda: inspect.run(args))


if __name__ == "__main__":
    sys.exit(main())
