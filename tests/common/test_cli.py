"""Parsers with two levels of help, options declared as fields, and arguments as a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from common.cli import CommandParser, option
from common.version import __version__


@dataclass(frozen=True, kw_only=True)
class Drawing:
    file: Path
    colour: str
    dots: int
    solid: bool


def parser() -> CommandParser:
    result = CommandParser(prog="draw", epilog="examples:\n  draw a.png")
    result.add_argument("file", type=Path)
    result.add_argument("--colour", default="red")
    raster = result.expert_group("printing", "For paper.")
    raster.add_argument("--dots", type=int, default=300)
    ways = result.expert_group("shading").add_mutually_exclusive_group()
    ways.add_argument("--solid", action="store_true")
    return result


def shown(option: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="0"):
        parser().parse(Drawing, [option])
    return capsys.readouterr().out


def test_help_leaves_out_what_is_for_experts(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("--help", capsys)
    assert "--colour" in text
    assert "also of: printing, shading" in text
    assert text.endswith("examples:\n  draw a.png\n")
    assert not any(word in text for word in ("--dots", "--solid", "For paper."))


def test_help_all_shows_every_option_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown("--help-all", capsys)
    assert all(word in text for word in ("--colour", "printing:\n  For paper.\n\n  --dots", "--solid"))


def test_every_command_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("--version", capsys) == f"inverse-speculation {__version__}\n"


def test_a_wrong_argument_shows_the_short_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse(Drawing, ["a.png", "--dots", "many"])
    assert "--solid" not in capsys.readouterr().err


def test_arguments_become_a_dataclass() -> None:
    expected = Drawing(file=Path("a.png"), colour="red", dots=600, solid=False)
    assert parser().parse(Drawing, ["a.png", "--dots", "600"]) == expected


def test_a_parser_without_experts_has_one_level() -> None:
    assert "--help-all" not in CommandParser(prog="plain").format_help()


@dataclass(frozen=True, kw_only=True)
class Paper:
    width: int = option(210, "in millimetres", group="paper")
    lines: int | None = option(None, "printed on it", int, either="lines")
    blank: bool = option(False, "none", either="lines")


@dataclass(frozen=True, kw_only=True)
class Printing(Paper):
    file: Path = option(None, "to print", Path, flags=("file",))
    copies: int = option(1, "how many", flags=("-n", "--copies"))
    black: bool = option(False, "instead of colours", either="ink", required=True)
    colours: str | None = option(None, "of the inks", either="ink", required=True)


def test_options_are_declared_as_fields(capsys: pytest.CaptureFixture[str]) -> None:
    declared = CommandParser(prog="print")
    declared.declare(Printing, {"paper": "Its size."})
    found = declared.parse(Printing, ["a.png", "-n", "3", "--black", "--lines", "7", "--width", "297"])
    assert found == Printing(file=Path("a.png"), copies=3, black=True, lines=7, width=297)
    assert "--width" not in declared.format_help()
    for wrong in ([], ["--black", "--colours", "red"], ["--black", "--lines", "7", "--blank"]):
        with pytest.raises(SystemExit, match="2"):
            declared.parse(Printing, ["a.png", *wrong])
    with pytest.raises(SystemExit, match="0"):
        declared.parse(Printing, ["--help-all"])
    text = capsys.readouterr().out.partition("options:")[2]
    assert text.index("--copies") < text.index("--lines") < text.index("paper:\n  Its size.\n\n  --width")
