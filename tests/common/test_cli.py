"""Options declared as fields, and arguments as a dataclass."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from common.cli import CommandParser, option
from common.version import __version__

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Paper:
    width: int = option(210, "in millimetres")
    lines: int | None = option(None, "printed on it", int, either="lines")
    blank: bool = option(False, "none", either="lines")


@dataclass(frozen=True, kw_only=True)
class Printing(Paper):
    file: Path = option(None, "to print", Path, flags=("file",))
    copies: int = option(1, "how many", flags=("-n", "--copies"))
    black: bool = option(False, "instead of colours", either="ink", required=True)
    colours: str | None = option(None, "of the inks", either="ink", required=True)


def parser() -> CommandParser:
    result = CommandParser(prog="print", epilog="examples:\n  print a.png")
    result.declare(Printing)
    return result


def test_arguments_become_a_dataclass() -> None:
    found = parser().parse(Printing, ["a.png", "-n", "3", "--black", "--lines", "7", "--width", "297"])
    assert found == Printing(file=Path("a.png"), copies=3, black=True, lines=7, width=297)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["--black", "--colours", "red"],
        ["--black", "--lines", "7", "--blank"],
        ["--black", "--copies", "many"],
    ],
)
def test_a_wrong_choice_is_a_usage_error(wrong: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse(Printing, ["a.png", *wrong])


def test_help_shows_the_options_of_a_class_before_those_of_its_bases() -> None:
    text = parser().format_help().partition("options:")[2]
    assert text.index("--copies") < text.index("--width") < text.index("--lines")
    assert text.endswith("examples:\n  print a.png\n")


def test_every_command_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        parser().parse(Printing, ["--version"])
    assert capsys.readouterr().out == f"inverse-speculation {__version__}\n"


def test_warnings_of_libraries_to_those_who_program_with_them_are_not_shown() -> None:
    warn = "warnings.warn_explicit('old', FutureWarning, 'file', 1, module={!r})"
    code = "import sys, warnings; from common.cli import run_command\nrun_command('draw', lambda: {})"
    for module, shown in (("transformers.utils", False), ("torch.nn", False), ("lab.run", True)):
        program = code.format(warn.format(module))
        plain, asked = (
            subprocess.run([sys.executable, *given, "-c", program], cwd=ROOT, capture_output=True, text=True)
            for given in ([], ["-W", "always"])
        )
        assert plain.returncode == asked.returncode == 0
        assert ("FutureWarning" in plain.stderr) == shown
        assert "FutureWarning" in asked.stderr
