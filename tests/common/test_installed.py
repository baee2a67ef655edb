"""Commands in an environment that lacks a library or a room: one line, exit code 2."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from common import installed
from common.cli import required, run_command

ROOT = Path(__file__).parents[2]
LEAN = f"""
import runpy, sys
lacking = {{*{sorted(installed.LIBRARIES)!r}, sys.argv[1]}}
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name in lacking:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Lacking())
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def run(line: str, lacking: str = "") -> subprocess.CompletedProcess[str]:
    """A command where the libraries of the device alone are installed, and a room may be lacking."""
    command = [sys.executable, "-c", LEAN, lacking, *line.split()]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("line", "lacking", "missing", "extra"),
    [
        ("convert gpt2 -o none", "", "rich", "convert"),
        ("cloud_anchor.demo", "", "rich", "cloud"),
        ("cloud_anchor.anchor --prompt Why? -o none", "", "rich", "cloud"),
        ("cloud_anchor.serve", "", "uvicorn", "serve"),
        ("lab list", "", r"\w+", "experiments"),
    ],
)
def test_what_is_missing_is_one_line(line: str, lacking: str, missing: str, extra: str) -> None:
    done = run(line, lacking)
    assert done.returncode == 2, done.stderr
    said = done.stderr.splitlines()[-1]
    assert re.fullmatch(
        rf"\w+: expected the package {missing}, found none: pip install '\.\[{extra}\]'", said
    ), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["cloud_anchor.anchor", "cloud_anchor.serve", "edge_runtime.fill"])
def test_help_needs_no_library(command: str) -> None:
    assert run(f"{command} --help").returncode == 0


@pytest.mark.parametrize("name", ["torch.nothing", "lab.nothing", "nothing"])
def test_a_mistake_of_the_code_is_not_hidden(name: str) -> None:
    def wrong() -> int:
        raise ModuleNotFoundError(name=name)

    with pytest.raises(ModuleNotFoundError):
        run_command("draw", wrong)
    with pytest.raises(ModuleNotFoundError), required("draw", "edge"):
        wrong()


def test_away_from_a_clone_the_remedy_names_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "__file__", "/nowhere/common/installed.py")
    assert installed.remedy("serve") == "pip install 'inverse-speculation[serve]'"


def test_the_libraries_of_commands_are_known() -> None:
    required = set()
    for file in ROOT.glob("distributions/*/pyproject.toml"):
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
        always = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
        extras = settings["project"].get("optional-dependencies", {})
        required |= {*always, *(text for name in ("serve", "ray") for text in extras.get(name, ()))}
    device = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required |= {*device["tool"]["hatch"]["metadata"]["hooks"]["custom"]["extras"]["endpoint"]}
    names = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in required}
    assert {name for name in names if not name.startswith("inverse_speculation")} == installed.LIBRARIES


def test_remedies_name_extras_that_there_are() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    there = {*settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["extras"]}
    rooms = ("common", "payload", "edge_runtime", "links", "convert", "cloud_anchor", "lab", "android_demo")
    text = "".join(path.read_text(encoding="utf-8") for room in rooms for path in (ROOT / room).rglob("*.py"))
    named = re.findall(
        r"""(?:remedy\(|(?<!Dict\()extra=|required\("\w+", )["'](\w+)["']|extra `(\w+)`""", text
    )
    assert len(named) > 10
    assert {a or b for a, b in named} <= there


@pytest.mark.parametrize(("name", "extra"), [("tiny", "experiments"), ("testbed", "cloud")])
def test_missing_weights_name_the_extra_that_has_them(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="checkpoints are loaded with PyTorch")
    from cloud_anchor.errors import CheckpointError
    from cloud_anchor.model import checkpoint

    pairs = {key: replace(pair, weights=tmp_path) for key, pair in checkpoint.PAIRS.items()}
    monkeypatch.setattr(checkpoint, "PAIRS", pairs)
    with pytest.raises(CheckpointError, match=re.escape(installed.remedy(extra))):
        checkpoint.find_checkpoint(name)
