"""The direction of imports, between the packages and between the parts of each."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PACKAGES: dict[str, tuple[str, ...]] = {
    "payload": (),
    "edge_runtime": ("payload",),
    "convert": ("payload", "edge_runtime"),
    "cloud_anchor": ("payload", "edge_runtime", "convert"),
}
"""Packages, and those that each may import."""

LEVELS: dict[str, str] = {
    "payload": """
        errors
        bytesio certainty cli contract lazy progress
        anchors
        codecs
        extras shared
        header
        files wire
        __init__
        frames
        tools
        __main__""",
    "edge_runtime": """
        errors
        client system text
        bundle
        engine
        decode
        predictor
        runtime
        online
        links
        over_link
        __init__
        tools
        bench doctor fill
        ask""",
    "cloud_anchor": """
        errors metrics
        shipped
        model
        sampling
        selection
        pipeline
        batch options
        __init__
        anchor
        serve tiny
        testbed
        demo_view
        demo
        drafting
        suite""",
}
"""The parts of a package, modules or folders, the lowest level first. A part may import itself and the parts
of lower levels, not those beside it on its line. convert is flat."""

CONVERTING = {"cloud_anchor.tiny.ship", "cloud_anchor.suite.loading", "cloud_anchor.suite.real"}
"""Modules of the cloud that may use the converter, which needs onnx: the cloud extra does not bring that."""

Imports = Mapping[str, Iterable[str]]
"""Modules by dotted name (a package's own is NAME.__init__), and the modules that each imports."""


@cache
def modules() -> dict[str, Path]:
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for package in PACKAGES
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
    """Imports against the direction of `PACKAGES` and `LEVELS`, as "importer -> imported"."""
    wrong = []
    for importer, imported in found.items():
        for target in imported:
            package, part = importer.split(".")[:2]
            other, other_part = target.split(".")[:2]
            if package != other:
                right = other in PACKAGES[package] and (
                    (package, other) != ("cloud_anchor", "convert") or importer in CONVERTING
                )
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
        ("payload.wire", "payload.tools.inspect"),
        ("edge_runtime.bundle.bundle", "edge_runtime.engine.ort_engine"),
        ("edge_runtime.engine.base", "edge_runtime.decode.forced"),
        ("edge_runtime.fill", "edge_runtime.bench"),
        ("edge_runtime.runtime", "convert.source"),
        ("convert.source", "cloud_anchor.model.checkpoint"),
        ("cloud_anchor.sampling.sampler", "cloud_anchor.selection.committed"),
        ("cloud_anchor.pipeline", "cloud_anchor.anchor"),
        ("cloud_anchor.pipeline", "cloud_anchor.options"),
        ("cloud_anchor.pipeline", "cloud_anchor.drafting.losses"),
        ("cloud_anchor.sampling.sampler", "cloud_anchor.drafting.diffusion_drafter"),
        ("cloud_anchor.serve.app", "cloud_anchor.tiny.world"),
        ("cloud_anchor.demo", "cloud_anchor.suite.conditions"),
        ("cloud_anchor.model.prompt_form", "convert.identity"),
    ],
)
def test_a_wrong_arrow_is_reported(importer: str, imported: str) -> None:
    assert wrong_arrows({importer: {imported}}) == [f"{importer} -> {imported}"]


def test_a_circle_is_reported() -> None:
    assert set(circle({"a.b": {"a.c"}, "a.c": {"a.d"}, "a.d": {"a.b"}})) == {"a.b", "a.c", "a.d"}


def foreign(file: Path) -> set[str]:
    """Top-level names of everything that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", ["payload", "edge_runtime"])
def test_the_device_needs_no_training_framework(package: str) -> None:
    for name, file in modules().items():
        if name.split(".")[0] == package:
            wrong = foreign(file) & {"torch", "transformers", "onnx", "optimum", "safetensors"}
            assert not wrong, f"{name} imports {sorted(wrong)}"


SHARED_NAMES = {"__init__", "__main__", "errors"}
"""File names that every package may have."""


def used_twice(places: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names with more than one place, from (name, place) pairs."""
    found: dict[str, list[str]] = {}
    for name, place in places:
        found.setdefault(name, []).append(place)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_a_file_name_is_used_once() -> None:
    names = ((module.split(".")[-1], module) for module in modules())
    assert used_twice(pair for pair in names if pair[0] not in SHARED_NAMES) == {}


def test_a_class_name_is_used_once() -> None:
    classes = (
        (node.name, module)
        for module, file in modules().items()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert used_twice(classes) == {}


def test_a_name_used_twice_is_reported() -> None:
    assert used_twice([("Token", "a"), ("Span", "a"), ("Token", "b")]) == {"Token": ["a", "b"]}
