"""Every command line of every page, and of every command's own help, is one that its command takes.

Nothing is run: a module is started as `python -m` does and stopped once it has parsed its arguments. So a
command that needs a radio, a GPU or a phone is checked like any other. Links between pages lead somewhere.
"""

from __future__ import annotations

import argparse
import gc
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from cloud_anchor.shipped import shipped_checkpoint
from edge_runtime.bundle.bundle import shipped_bundles

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
)
PROJECTS = {
    path.parent: tomllib.loads(path.read_text())
    for path in (ROOT / "pyproject.toml", *ROOT.glob("distributions/*/pyproject.toml"))
}
SCRIPTS = {name: at for each in PROJECTS.values() for name, at in each["project"]["scripts"].items()}
EXTRAS = PROJECTS[ROOT]["tool"]["hatch"]["metadata"]["hooks"]["custom"]["extras"]
pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
"""A module that is imported already is run again, as a command."""

_COMMAND = re.compile(r"^(?:python -m|make|pip install|inversespec-[a-z]+|curl) .*$", re.MULTILINE)
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Line(NamedTuple):
    """A command line, and where it stands."""

    where: str
    text: str


def commands(text: str, where: str) -> Iterator[Line]:
    """The command lines of a text, each with its continuation."""
    for match in _COMMAND.finditer(text.replace("\\\n", " ")):
        yield Line(f"{where}: {match[0][:60]}", match[0])


def lines_of_pages() -> list[Line]:
    found = []
    for page in PAGES:
        text, where = page.read_text(), str(page.relative_to(ROOT))
        for block in _BLOCK.findall(text):
            found += commands(block, where)
        found += [Line(f"{where}: {each}", each) for each in re.findall(r"`(make [a-z][^`]*)`", text)]
    return found


LINES = lines_of_pages()


class Parsed(BaseException):
    """Ends a command that has parsed its arguments."""

    def __init__(self, parser: argparse.ArgumentParser, found: argparse.Namespace) -> None:
        self.parser, self.found = parser, found


def parsed(module: str, arguments: list[str], *, only_parser: bool = False) -> Parsed:
    """What a module makes of its arguments; fails where it refuses them. only_parser: takes any."""
    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> argparse.Namespace:
        found = argparse.Namespace() if only_parser else parse(parser, *given, **named)
        raise Parsed(parser, found)

    try:
        with (
            patch.object(argparse.ArgumentParser, "parse_args", stop),
            patch.object(sys, "argv", ["", *arguments]),
        ):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Parsed as done:
        return done
    except SystemExit as end:
        if end.code:
            raise ValueError(f"{module}: it does not take {' '.join(arguments)}") from None
        return Parsed(argparse.ArgumentParser(), argparse.Namespace())  # --help
    finally:
        gc.enable()  # a short program may have turned it off
    raise AssertionError(f"{module}: expected to parse its arguments, found an end without that")


def words(line: str) -> list[str]:
    """The words of a command, up to a pipe, a redirection or a second command; [OPTIONAL ones] among them."""
    lexer = shlex.shlex(re.sub(r" \[(--[^]]*)\]", r" \1", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found = list(lexer)
    return found[: next((at for at, word in enumerate(found) if set(word) <= set("();<>|&")), len(found))]


def check(line: str) -> None:
    program, *rest = words(line)
    if program == "python":
        check_module(rest[1], rest[2:])
    elif program in SCRIPTS:
        check_module(SCRIPTS[program].partition(":")[0].removesuffix(".__main__"), rest)
    elif program == "make":
        check_make(rest)
    elif program == "pip":
        check_pip(rest)
    else:
        assert program == "curl", f"{program}: expected one of {', '.join(SCRIPTS)}"
        check_curl(rest)


def check_module(module: str, arguments: list[str]) -> None:
    if module == "pytest":
        assert all((ROOT / each).exists() for each in arguments if not each.startswith("-"))
        return
    done = parsed(module, arguments)
    says = {action.dest: action.help or "" for action in done.parser._actions}
    of_server = str(getattr(done.found, "backend", None)).startswith("openai:")  # which has models of its own
    for option in ("edge", "target", "bundle", *(() if of_server else ("model",))):
        value = getattr(done.found, option, None) or []
        for each in map(str, value if isinstance(value, list) else [value]):
            assert names_something(each, module) or each in says[option], (
                f"{option}: no bundle or checkpoint is named {each}"
            )


def names_something(name: str, module: str) -> bool:
    """Whether a bundle or a checkpoint may be called so: one that ships, a user's own path, a placeholder."""
    if "/" in name or name.endswith(".gguf") or name.isupper() or name in shipped_bundles():
        return True
    on_device = module.partition(".")[0] in ("edge_runtime", "links")
    return not on_device and shipped_checkpoint(name) is not None


def check_make(arguments: list[str]) -> None:
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def check_pip(arguments: list[str]) -> None:
    for each in arguments[1:]:
        match = re.fullmatch(r"(\S*?)(?:\[([\w,-]+)\])?", each)
        assert match
        named, extras = match[1], set(match[2].split(",") if match[2] else [])
        if named in (".", "inverse-speculation"):
            assert extras <= set(EXTRAS), f"{each}: expected extras among {', '.join(EXTRAS)}"
        elif "/" in named:
            assert (ROOT / named).exists() or named.endswith(".whl")
        elif named.startswith("inverse-speculation"):
            (project,) = (p["project"] for p in PROJECTS.values() if p["project"]["name"] == named)
            assert extras <= set(project.get("optional-dependencies", {}))


def check_curl(arguments: list[str]) -> None:
    """Its path is one of the service's or of the device's endpoint."""
    address = next(each for each in arguments if "localhost" in each or "://" in each)
    path = urlsplit(address if "://" in address else f"http://{address}").path
    servers = (ROOT / "cloud_anchor" / "serve", ROOT / "edge_runtime" / "endpoint")
    assert any(f'"{path}"' in each.read_text() for folder in servers for each in folder.rglob("*.py"))


@pytest.mark.parametrize("line", LINES, ids=[line.where for line in LINES])
def test_a_page_s_command_is_one(line: Line) -> None:
    check(line.text)


MODULES = sorted(
    {words(line.text)[2] for line in LINES if line.text.startswith("python -m")} - {"pytest"}
    | {at.partition(":")[0].removesuffix(".__main__") for at in SCRIPTS.values()}
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_command_s_help_are_commands(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parsers = [parsed(module, [], only_parser=True).parser]
    if module in ("edge_runtime.fill", "links.ask"):
        lines = parsers[0].format_help().splitlines()
        assert (len(lines) <= 40, max(map(len, lines)) <= 80) == (True, True), "one screen"
    for parser in parsers:
        text = re.sub(r"^ +|^examples?: +", "", parser.epilog or "", flags=re.MULTILINE)
        for line in commands(text, module):
            check(line.text)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()


@pytest.mark.parametrize(
    "line",
    [
        "python -m edge_runtime.fill payload.bin --no-such-option",
        "python -m edge_runtime.fill payload.bin --edge no-such-bundle",
        "python -m edge_runtime.moved payload.bin",
        "make no-such-target",
        "pip install '.[no-such-extra]'",
        "curl localhost:8080/v1/nothing",
    ],
)
def test_a_wrong_line_is_found(line: str) -> None:
    with pytest.raises((AssertionError, ImportError, LookupError, ValueError)):
        check(line)


def headings(page: Path) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    text = _BLOCK.sub("", page.read_text())
    titles = re.findall(r"^#+ (.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(<?([^)\s>]+)", _BLOCK.sub("", page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        assert not heading or target.suffix != ".md" or heading in headings(target), (
            f"{link}: no such heading"
        )


@pytest.mark.skipif(shipped_checkpoint("testbed") is None, reason="the shipped pair is missing")
@pytest.mark.parametrize("name", ["recording", "way", "slots", "links"])
def test_a_picture_is_the_one_that_its_command_makes(name: str) -> None:
    made = runpy.run_path(str(ROOT / "docs/pictures.py"))[name]()
    kept = (ROOT / f"docs/images/{name}.svg").read_text(encoding="utf-8")
    assert made.split("<style>")[0] == kept.split("<style>")[0], (
        "its size, and what it says to those who do not see it"
    )
