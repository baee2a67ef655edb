"""`python -m payload`: inspect a payload or a frame, or benchmark the codecs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from payload.cli import run_command
from payload.tools import codec_bench, inspect


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code (see `payload.cli`)."""
    parser = argparse.ArgumentParser(
        prog="python -m payload",
        description=__doc__,
        epilog=inspect.EPILOG.rstrip() + codec_bench.EPILOG.removeprefix("examples:"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module, text in (
        ("inspect", inspect, "header, optional fields and anchors of a payload or a frame"),
        ("bench", codec_bench, "bytes per codec on published runs"),
    ):
        sub = commands.add_parser(
            name, help=text, epilog=module.EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    return run_command(f"payload {args.command}", lambda: int(args.run(args)))


if __name__ == "__main__":
    sys.exit(main())
