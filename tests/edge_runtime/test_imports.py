"""Imports of the device: numpy, onnxruntime, tokenizers, and nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = ("torch", "transformers", "onnx")
FOREIGN: dict[str, set[str]] = {
    "common": set(),
    "payload": {"numpy", "common"},
    "edge_runtime": {"numpy", "onnxruntime", "tokenizers", "common", "payload"},
    "links": {"common", "payload", "edge_runtime"},
}
LAZY = {"brotli", "matplotlib", "tokenizers", "onnxruntime_genai", "llama_cpp", "rich"}
LAZY |= {"cryptography", "llguidance", "meshtastic", "pubsub"}
"""What a benchmark, a progress bar, a form or a link may import in a function, where it is installed."""


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(node: ast.AST) -> list[str]:
    """Top-level names of the packages that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module.split(".")[0]]
    return []


def test_importing_every_module_loads_no_training_library() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in FOREIGN
        for path in modules(package)
        if path.stem != "__main__"
    ]
    assert "edge_runtime.decode.forced" in names
    assert "payload.anchors" in names
    script = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name.removesuffix('.__init__'))\n"
        f"print(*[name for name in {FORBIDDEN!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


@pytest.mark.parametrize("package", FOREIGN)
def test_sources_import_only_what_the_edge_extra_brings(package: str) -> None:
    for path in modules(package):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top_level = {name for node in tree.body for name in imported(node)}
        anywhere = {name for node in ast.walk(tree) for name in imported(node)}
        allowed = FOREIGN[package] | {package} | set(sys.stdlib_module_names)
        if path.parent.name == "endpoint":  # an extra of its own, which nothing else imports
            allowed |= {"starlette", "uvicorn", "h11"}
        assert top_level <= allowed, f"{path}: {sorted(top_level - allowed)}"
        assert anywhere <= allowed | LAZY, f"{path}: {sorted(anywhere - allowed - LAZY)}"


def test_the_public_names_are_imported_on_first_use() -> None:
    script = (
        "import sys, edge_runtime\n"
        "assert 'numpy' not in sys.modules\n"
        "import edge_runtime.fill\n"
        "assert not {'onnxruntime', 'tokenizers'} & set(sys.modules), 'python -m edge_runtime.fill --help'\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert result.returncode == 0, result.stderr
    with pytest.raises(ImportError):
        from edge_runtime import Nothing  # noqa: F401
