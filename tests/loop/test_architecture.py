"""Who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("payload", "edge_runtime", "convert", "cloud_anchor")
ALLOWED = {
    "payload": set(),
    "edge_runtime": {"payload"},
    "convert": {"payload", "edge_runtime"},
    # From convert only the compiler of chat templates; the converter itself in the release script, and in the
    # experiments, which take checkpoints as edge models.
    "cloud_anchor": {"payload", "edge_runtime", "convert"},
}


def imports(file: Path) -> set[str]:
    """Top-level names of the modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_downwards(room: str) -> None:
    for file in (ROOT / room).rglob("*.py"):
        wrong = imports(file) & (set(ROOMS) - {room} - ALLOWED[room])
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


@pytest.mark.parametrize("room", ["payload", "edge_runtime"])
def test_the_device_needs_no_training_framework(room: str) -> None:
    for file in (ROOT / room).rglob("*.py"):
        wrong = imports(file) & {"torch", "transformers", "onnx", "optimum", "safetensors"}
        assert not wrong, f"{file.relative_to(ROOT)} imports {sorted(wrong)}"


def test_the_cloud_borrows_nothing_of_the_converter_but_its_template_compiler() -> None:
    cloud = ROOT / "cloud_anchor"
    converting = {cloud / "tiny" / "ship.py", cloud / "suite" / "models.py"}
    borrowed: set[str] = set()
    for file in set(cloud.rglob("*.py")) - converting:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("convert"):
                borrowed.add(node.module)
    assert borrowed <= {"convert.chat_template", "convert.errors"}
