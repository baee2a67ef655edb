"""`python -m payload inspect`: what the header and the optional fields of a payload say, as text or JSON.

Not responsible for anchors, which take a contract, a prompt or a model to decode.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from common.cli import CommandParser, option, run_command
from common.errors import InputError
from common.files import read_bounded
from payload.errors import OversizedPayloadError
from payload.header import MAX_PAYLOAD_BYTES, Codec, peek


@dataclass(frozen=True, kw_only=True)
class _InspectArguments:
    file: str = option("", "the file; - reads standard input", flags=("file",))
    json: bool = option(False, "print one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code (see `common.cli`)."""
    parser = CommandParser(prog="python -m payload", description=__doc__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    example = "example:\n  python -m payload inspect payload.bin --json"
    command = commands.add_parser("inspect", help="header and optional fields of a payload", epilog=example)
    command.declare(_InspectArguments)
    args = parser.parse(_InspectArguments, argv)
    return run_command("payload inspect", lambda: _inspect(args))


def _inspect(args: _InspectArguments) -> None:
    data = read_bounded(args.file, MAX_PAYLOAD_BYTES, large=OversizedPayloadError)
    if data and not data[0] >> 6:
        raise InputError(f"{args.file}: expected a payload, found a frame")
    report = describe(data)
    if args.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:>14}  {value if value is not None else '-'}")


def describe(data: bytes) -> dict[str, Any]:
    """The header and the optional fields; raises PayloadError subclasses."""
    header = peek(data)
    extras = header.extras
    return {
        "codec": header.codec.label,
        "ranking_tag" if header.codec is Codec.PREDICTIVE else "contract_tag": header.tag,
        "bytes": len(data),
        "body_bytes": len(header.body),
        "needs_prompt": header.needs_prompt,
        "base_ref": header.base_ref,
        "prompt": extras.prompt,
        "step": extras.step or None,
        "total_steps": extras.total_steps or None,
        "confidences": len(extras.confidence),
        "check": f"not tested, which takes the model's bundle{' and the prompt' * header.needs_prompt}",
    }


if __name__ == "__main__":
    sys.exit(main())
