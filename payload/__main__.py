"""`python -m payload`: look into a payload, or measure the codecs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from payload.errors import PayloadError
from payload.files import InputError
from payload.tools import codec_bench, inspect


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 ok, 2 usage, 3 bad payload, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m payload",
        description=__doc__,
        epilog=inspect.EPILOG.rstrip() + codec_bench.EPILOG.removeprefix("examples:"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module, text in (
        ("inspect", inspect, "what a payload says"),
        ("bench", codec_bench, "bytes by codec on published runs"),
    ):
        sub = commands.add_parser(
            name, help=text, epilog=module.EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    try:
        return int(args.run(args))
    except InputError as error:
        print(f"payload {args.command}: {error}", file=sys.stderr)
        return 2
    except PayloadError as error:
        print(f"payload {args.command}: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
