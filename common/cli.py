"""Command-line conventions shared by every command: exit codes, one-line errors, options.

Responsible for turning exceptions into exit codes and one line on standard error, and for options as fields
of a dataclass. Not responsible for what the options are, or for output.

    0 done, 1 failed otherwise, 2 usage, 3 bad payload, 4 bad or missing model, 5 refused by a service,
    6 declined as asked, for lack of certainty, 7 answered by the device alone; 130 interrupted
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, field, fields
from pathlib import Path
from typing import Any, TypeVar

from common.errors import UserError
from common.installed import missing
from common.version import __version__

USAGE, INTERRUPTED = 2, 130

KINDS = {"Path": Path, "float": float, "int": int, "str": str}
"""Of the values of options, by what their annotation says."""
METAVARS = {"Path": "FILE", "int": "N"}

Options = TypeVar("Options")


def option(default: Any, says: str, kind: Any = None, **settings: Any) -> Any:
    """A field of a dataclass that is an option of its name; a bool that is false is a switch, and a tuple
    holds one or more values.

    kind: of a value, by default the one that the field's annotation names. settings: for argparse, and:
    `flags` names others than --NAME; of the options with one `either` a user gives one at most, or exactly
    one where they are `required`.
    """
    return field(default=default, metadata={"help": says, "type": kind, **settings})


class CommandParser(argparse.ArgumentParser):
    """A parser whose options are fields of a dataclass; its description and epilog keep their line breaks."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter} | settings)
        says = f"inverse-speculation {__version__}"
        self.add_argument("--version", action="version", version=says, help="show the version")

    def declare(self, kind: type) -> None:
        """Adds the fields of a dataclass that `option` made, those of a class before those of its bases."""
        declared = {each.name: each for each in fields(kind)}
        choices: dict[str, Any] = {}
        for name in dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base)):
            self._declare(declared[name], choices)

    def _declare(self, each: Field[Any], choices: dict[str, Any]) -> None:
        """choices: the groups of `either` that are there already."""
        settings = dict(each.metadata)
        flags = settings.pop("flags", (f"--{each.name.replace('_', '-')}",))
        kind = settings.pop("type")
        if each.default is False:
            settings["action"] = "store_true"
        elif settings.get("action", "append") == "append":
            named = next((name for name in KINDS if name in str(each.type)), "")
            settings["type"] = kind or KINDS[named]
            if isinstance(each.default, tuple):
                settings["nargs"] = "+"
            if named in METAVARS and flags[0].startswith("-"):
                settings.setdefault("metavar", METAVARS[named])
        place: Any = self
        if (either := settings.pop("either", None)) is not None:
            required = settings.pop("required", False)
            if either not in choices:
                choices[either] = self.add_mutually_exclusive_group(required=required)
            place = choices[either]
        if flags[0].startswith("-"):
            settings["dest"] = each.name
            if each.default and "required" not in settings and "default" not in settings["help"]:
                settings["help"] += " (default: %(default)s)"
        place.add_argument(*flags, default=each.default, **settings)

    def parse(self, kind: type[Options], arguments: Sequence[str] | None = None) -> Options:
        """The arguments as a dataclass with one field for each option."""
        return taken(kind, vars(self.parse_args(arguments)))


def taken(kind: type[Options], found: Mapping[str, Any]) -> Options:
    """A dataclass of options from parsed arguments, which may have others too."""
    values = {each.name: found[each.name] for each in fields(kind)}  # type: ignore[arg-type]
    several = {each.name for each in fields(kind) if isinstance(each.default, tuple)}  # type: ignore[arg-type]
    return kind(**{name: tuple(of) if name in several else of for name, of in values.items()})


def run_options(
    module: str,
    command: Callable[[Options], int | None],
    kind: type[Options],
    argv: Sequence[str] | None,
    epilog: str,
    *,
    usage: str | None = None,
    extra: str = "edge",
    interrupted: str = "interrupted",
) -> int:
    """Runs a module's command with its options, fields of the dataclass `kind`, as `run_command` does.

    The docstring of `kind` describes the command. usage: what follows the command; None lists all options.
    """
    prog = f"python -m {module}"
    says = inspect.getdoc(kind)
    parser = CommandParser(prog=prog, usage=usage and f"{prog} {usage}", description=says, epilog=epilog)
    parser.declare(kind)
    options = parser.parse(kind, argv)
    name = module.rpartition(".")[2]
    return run_command(name, lambda: command(options), extra=extra, interrupted=interrupted)


def run_command(
    program: str,
    command: Callable[[], int | None],
    *,
    extra: str = "edge",
    interrupted: str = "interrupted",
    exit_codes: Mapping[type[UserError], int] | None = None,
) -> int:
    """Run a command and return its exit code; errors meant for users become one line on standard error.

    program:     name that begins the line, as in "fill: expected ...".
    command:     returns an exit code; None is 0.
    extra:       the extra that brings what the command needs, said where a package is missing.
    interrupted: what is said on Ctrl-C.
    exit_codes:  exit codes by exception class where the class's own `exit_code` does not suit.

    A reader that closes the pipe early (`| head`) ends the command with exit code 0. Any other exception
    passes. What libraries tell those who program with them (FutureWarning) is not shown, unless asked for.
    """
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.filterwarnings("ignore", category=FutureWarning, module=r"(torch|transformers)\.")
            return command() or 0
    except UserError as error:
        print(f"{program}: {error}", file=sys.stderr)
        overrides = (code for kind, code in (exit_codes or {}).items() if isinstance(error, kind))
        return next(overrides, error.exit_code)
    except ModuleNotFoundError as error:
        print(f"{program}: {missing(error, extra)}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print(f"{program}: {interrupted}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # What Python still wants to flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextmanager
def required(program: str, extra: str) -> Iterator[None]:
    """For the imports of a command's module: a missing package ends the program as in `run_command`."""
    try:
        yield
    except ModuleNotFoundError as error:
        print(f"{program}: {missing(error, extra)}", file=sys.stderr)
        raise SystemExit(USAGE) from None
