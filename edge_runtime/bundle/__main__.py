"""python -m edge_runtime.bundle: the bundles of this device, and how one comes here.

Responsible for the command line. Not responsible for installing (see `install`) or choosing them (`lookup`).
What is slow to load is imported where it is used, so that an interrupt from the start on ends in one line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.cli import CommandParser, option, run_command
from common.progress import BytesLine, Silent
from edge_runtime.client import KeyOptions

_EPILOG = """\
examples:
  python -m edge_runtime.bundle list
  python -m edge_runtime.bundle get http://localhost:8080 --variant int8
  python -m edge_runtime.bundle get /media/stick/smollm2
  python -m edge_runtime.bundle get https://example.com/smollm2/bundle.json --sha256 HEX

exit codes: 0 done, 2 wrong usage, 4 bad or missing bundle,
5 refused by the service or not reached, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class _ListArguments:
    json: bool = option(False, "print one JSON object")


@dataclass(frozen=True, kw_only=True)
class _GetArguments(KeyOptions, _ListArguments):
    source: str = option(
        "", "a service's URL, a bundle's folder, or the URL of a bundle.json", flags=("source",)
    )
    sha256: str | None = option(None, "SHA-256 of its bundle.json; needed for the URL of one", metavar="HEX")
    timeout: float = option(
        60.0, "seconds for one request; what is longer continues in the next (default 60)", metavar="S"
    )
    name: str | None = option(None, "name that it gets here; default: its own")
    variant: str | None = option(None, "take this variant alone; default: all", metavar="NAME")
    replace: bool = option(False, "replace the bundle of this name")
    quiet: bool = option(False, "no progress on standard error")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    parser = CommandParser(
        prog="python -m edge_runtime.bundle",
        description="List this device's model bundles, or get one from a service.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (kind, run, says) in _COMMANDS.items():
        command = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
        command.declare(kind)
        command.set_defaults(command=(kind, run))
    given = vars(parser.parse_args(argv))
    kind, run = given.pop("command")
    kept = "interrupted; the same command continues where it stopped"
    return run_command("bundle", lambda: run(kind(**given)), interrupted=kept)


def _list(args: _ListArguments) -> int:
    from edge_runtime.bundle.lookup import candidates

    found = [_described(path) for path in candidates()]
    if args.json:
        print(json.dumps({"bundles": found}, indent=1))
        return 0
    for each in found:
        if "trouble" in each:
            print(f"{each['name']:20} unusable: {each['trouble']}")
            continue
        sizes = ", ".join(
            f"{name}{'*' * (name == each['default'])} {size / 1e6:.1f} MB"
            for name, size in each["variants"].items()
        )
        print(f"{each['name']:20} {sizes}\n{'':20} contract {each['contract'][:12]}..., {each['path']}")
    return 0


def _described(path: Path) -> dict[str, Any]:
    from edge_runtime.bundle.bundle import BUNDLES, read_manifest
    from edge_runtime.errors import EdgeError

    known: dict[str, Any] = {
        "name": path.name,
        "path": str(path.resolve()),
        "shipped": path.parent == BUNDLES,
    }
    try:
        manifest = read_manifest(path)
    except EdgeError as error:
        return known | {"trouble": str(error)}
    common = sum(record.size for record in manifest.files.values())
    return known | {
        "contract": manifest.contract.identity,
        "default": manifest.default_variant,
        "variants": {name: common + variant.size for name, variant in manifest.variants.items()},
    }


def _get(args: _GetArguments) -> int:
    from edge_runtime.bundle.install import pull
    from edge_runtime.bundle.sources import open_source

    path = pull(
        open_source(args.source, args.key_file, args.timeout, args.sha256),
        name=args.name,
        variant=args.variant,
        sha256=args.sha256,
        replace=args.replace,
        progress=Silent() if args.quiet else BytesLine(),
    )
    if args.json:
        print(json.dumps({"installed": path.name, "path": str(path.resolve())}))
    else:
        print(f"installed {path.name}: {path}")
    return 0


_COMMANDS: dict[str, tuple[type, Callable[[Any], int], str]] = {
    "list": (_ListArguments, _list, "the bundles of this device, in the order in which they are looked up"),
    "get": (_GetArguments, _get, "install a bundle; an interrupted download continues"),
}


if __name__ == "__main__":
    sys.exit(main())
