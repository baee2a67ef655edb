"""The direction of imports, between the packages and between the parts of each."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from common.version import __version__

ROOT = Path(__file__).resolve().parents[2]

ROOMS: dict[str, tuple[str, ...]] = {
    "common": (),
    "payload": ("common",),
    "edge_runtime": ("common", "payload"),
    "links": ("common", "payload", "edge_runtime"),
    "convert": ("common", "payload", "edge_runtime"),
    "cloud_anchor": ("common", "payload", "edge_runtime"),
    "android_demo": ("common", "payload", "edge_runtime", "cloud_anchor"),
    "lab": ("common", "payload", "edge_runtime", "links", "convert", "cloud_anchor"),
}
"""Rooms, and those that each may import. Nothing imports the laboratory."""

LEVELS: dict[str, str] = {
    "common": """
        version
        __init__ errors installed lazy progress
        cli files""",
    "payload": """
        errors
        bytesio contract
        anchors
        codecs
        extras shared
        header
        decisions
        wire
        __init__
        __main__""",
    "edge_runtime": """
        errors
        form system text
        grammar
        client
        bundle
        engine
        decode
        predictor
        decisions
        runtime
        cloud finished
        session
        __init__
        console
        commands
        bench decide doctor fill send
        chat endpoint""",
    "links": """
        airtime duty frames plain
        profiles quota
        address datagram
        kinds seal
        __init__
        exchange
        asking
        __main__ ask gateway""",
    "convert": """
        errors
        source
        graph
        check
        stages variants
        preflight
        conversion
        __init__
        __main__""",
    "cloud_anchor": """
        errors metrics
        shipped
        sampling
        model
        selection
        pipeline
        decide options
        __init__
        anchor demo_view serve
        demo""",
}
"""The parts of a room, modules or folders, the lowest level first. A part may import itself and the parts of
lower levels, not those beside it on its line. In the laboratory only circles are forbidden."""

MOST_MODULES = 20
"""Modules in one folder."""

Imports = Mapping[str, Iterable[str]]
"""Modules by dotted name (a package's own is NAME.__init__), and the modules that each imports."""


@cache
def modules() -> dict[str, Path]:
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for package in ROOMS
        for file in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def imports() -> dict[str, set[str]]:
    """The imports of every module among the packages, anywhere in it, inside functions too."""
    return {name: set(_imported(file)) for name, file in modules().items()}


def _imported(file: Path) -> Iterable[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{file}: expected absolute imports"
            for alias in node.names:
                yield from _module(f"{node.module}.{alias.name}") or _module(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(alias.name)


def _module(name: str) -> list[str]:
    return [known for known in (name, f"{name}.__init__") if known in modules()][:1]


def test_the_table_names_the_parts_that_there_are() -> None:
    for package, levels in LEVELS.items():
        found = {name.split(".")[1] for name in modules() if name.startswith(f"{package}.")}
        assert set(levels.split()) == found, f"{package}: add what is new to its level, remove what is gone"


def wrong_arrows(found: Imports) -> list[str]:
    """Imports against the direction of `ROOMS` and `LEVELS`, as "importer -> imported"."""
    wrong = []
    for importer, imported in found.items():
        for target in imported:
            package, part = importer.split(".")[:2]
            other, other_part = target.split(".")[:2]
            if package != other:
                right = other in ROOMS[package]
            elif part == other_part or package not in LEVELS:
                right = True
            else:
                right = _level(package, part) > _level(package, other_part)
            if not right:
                wrong.append(f"{importer} -> {target}")
    return sorted(wrong)


def _level(package: str, part: str) -> int:
    lines = LEVELS[package].strip().splitlines()
    # A part that the table lacks lies below all others: everything it imports is reported.
    return next((level for level, line in enumerate(lines) if part in line.split()), -1)


def circle(found: Imports) -> list[str]:
    """Modules that import one another in a circle, the first also last; empty where there is none."""
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_arrow_points_down() -> None:
    assert wrong_arrows(imports()) == []


def test_no_modules_import_one_another() -> None:
    assert circle(imports()) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("payload.codecs.compact", "payload.wire"),
        ("payload.wire", "payload.__main__"),
        ("edge_runtime.bundle.bundle", "edge_runtime.engine.ort_engine"),
        ("edge_runtime.engine.base", "edge_runtime.decode.forced"),
        ("edge_runtime.fill", "edge_runtime.bench"),
        ("edge_runtime.runtime", "convert.source.checkpoint"),
        ("convert.source.checkpoint", "cloud_anchor.model.checkpoint"),
        ("convert.source.checkpoint", "convert.graph.decoder"),
        ("convert.graph.moments", "convert.check.reference"),
        ("cloud_anchor.sampling.sampler", "cloud_anchor.selection.select"),
        ("cloud_anchor.pipeline", "cloud_anchor.anchor"),
        ("cloud_anchor.pipeline", "cloud_anchor.options"),
        ("cloud_anchor.pipeline", "lab.drafting.losses"),
        ("cloud_anchor.sampling.sampler", "lab.drafting.diffusion_drafter"),
        ("cloud_anchor.serve.http.app", "lab.pairs.tiny.world"),
        ("cloud_anchor.demo", "lab.conditions"),
        ("cloud_anchor.model.prompt_form", "convert.source.tokenizer"),
    ],
)
def test_a_wrong_arrow_is_reported(importer: str, imported: str) -> None:
    assert wrong_arrows({importer: {imported}}) == [f"{importer} -> {imported}"]


def test_a_circle_is_reported() -> None:
    assert set(circle({"a.b": {"a.c"}, "a.c": {"a.d"}, "a.d": {"a.b"}})) == {"a.b", "a.c", "a.d"}


def test_no_folder_is_crowded() -> None:
    files: dict[Path, int] = {}
    for file in modules().values():
        files[file.parent] = files.get(file.parent, 0) + (file.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): n for folder, n in files.items() if n > MOST_MODULES} == {}


def test_every_command_has_the_options_of_all() -> None:
    found = [file for name, file in modules().items() if name != "common.cli"]
    assert not [file for file in found if "argparse.ArgumentParser(" in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "android_demo"])
def test_every_room_has_the_version(room: str) -> None:
    assert import_module(room).__version__ == __version__
