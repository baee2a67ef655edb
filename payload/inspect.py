"""`python -m payload inspect`: header, fields and anchors of a payload, as text or JSON.

Responsible for what can be read without a tokenizer: the header always; the anchors where the contract, and
the prompt ids if needed, are given. Not responsible for template payloads, deltas and codec predictive.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.cli import option
from common.errors import InputError
from common.files import read_json
from payload.contract import Contract
from payload.files import read_payload
from payload.header import Codec, peek
from payload.shared import Shared
from payload.wire import decode

EPILOG = """examples:
  python -m payload inspect payload.bin
  python -m payload inspect payload.bin --contract bundle.json --prompt-ids 785,3974,13876 --json
"""


@dataclass(frozen=True, kw_only=True)
class InspectArguments:
    """What is read, and with what."""

    file: str = option("", "the file; - reads standard input", flags=("file",))
    contract: Path | None = option(
        None, "bundle.json or a contract's JSON: lists the anchors as well", Path, metavar="FILE"
    )
    prompt_ids: str | None = option(
        None, "comma-separated ids of the prompt, where the payload needs it", metavar="IDS"
    )
    json: bool = option(False, "print one JSON object")


def run(args: InspectArguments) -> int:
    data = read_payload(args.file)
    shared = shared_of(args)
    if data and not data[0] >> 6:
        raise InputError(f"{args.file}: expected a payload, found a frame")
    show(describe(data, shared), args.json)
    return 0


def shared_of(args: InspectArguments) -> Shared | None:
    """What --contract and --prompt-ids say that both sides share; None without them. Raises InputError."""
    contract = None
    if args.contract:
        found = read_json(args.contract)
        try:
            contract = Contract.from_json(found.get("contract", found))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InputError(
                f"{args.contract}: expected a bundle.json or a contract, found no usable {error}"
            ) from None
    ids = _ids(args.prompt_ids) if args.prompt_ids else None
    return Shared(contract, ids) if contract is not None else None


def show(report: dict[str, Any], as_json: bool) -> None:
    """Prints a report, as lines of text or as one JSON object."""
    if as_json:
        print(json.dumps({key: value for key, value in report.items() if key != "hint"}))
    else:
        for key, value in report.items():
            print(f"{'anchors' if key == 'hint' else key:>14}  {value if value is not None else '-'}")


def describe(data: bytes, shared: Shared | None) -> dict[str, Any]:
    header = peek(data)
    report: dict[str, Any] = {}
    readable = header.codec is Codec.COMPACT and header.base_ref is None
    if shared is not None and readable and (shared.prompt_ids is not None or not header.needs_prompt):
        anchors = decode(header, shared)
        report = {
            "canvas": anchors.canvas,
            "length": anchors.length,
            "coverage": round(anchors.coverage, 4),
            "positions": list(anchors.positions),
            "ids": list(anchors.ids),
        }
    elif header.codec is Codec.PREDICTIVE:
        report["hint"] = "need the device's model: python -m edge_runtime.fill"
    else:
        option = "--contract" if shared is None else "--prompt-ids" if header.needs_prompt else None
        report["hint"] = f"give {option} to list them" if option else "need a tokenizer or a base"
    extras = header.extras
    return {
        "codec": header.codec.label,
        "ranking_tag" if header.codec is Codec.PREDICTIVE else "contract_tag": header.tag,
        "verified": "positions" in report,
        "bytes": len(data),
        "body_bytes": len(header.body),
        "needs_prompt": header.needs_prompt,
        "base_ref": header.base_ref,
        "prompt": extras.prompt,
        "step": extras.step or None,
        "total_steps": extras.total_steps or None,
        "confidences": len(extras.confidence),
        **report,
    }


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--prompt-ids: expected ids with commas between them, found {text!r}") from None
