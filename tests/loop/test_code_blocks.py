"""The Python of the pages runs as it stands; that of docs/inside/extending.md prints what the page says.

What a page does not make has a stand-in: the shipped pair and payload, a silent service and gateway.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from cloud_anchor.selection.select import SELECTIONS
from cloud_anchor.shipped import PAIRS
from edge_runtime import Client, EdgeRuntime, EdgeSession
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.fill import SAMPLE
from lab.__main__ import main
from tests.shipped import TINY_BUNDLE

ROOT = Path(__file__).parents[2]
PROMPT = "What is the capital of Japan?"


def blocks(page: Path) -> list[tuple[str, str]]:
    """The Python of a page, each with its line numbers, and the output that stands below it."""
    text = page.read_text()
    found = re.finditer(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL)
    return [("\n" * text.count("\n", 0, each.start(1)) + each[1], each[2] or "") for each in found]


BLOCKS = blocks(ROOT / "docs/inside/extending.md")
PAGES = [*ROOT.glob("docs/start/*.md"), *ROOT.glob("docs/guides/*.md"), ROOT / "payload/README.md"]
RUN = {str(page.relative_to(ROOT)): found for page in PAGES if (found := blocks(page))}
pytestmark = pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)


def test_the_page_has_all_three() -> None:
    assert [bool(output) for _, output in BLOCKS] == [True, True, False]
    assert all(len(re.findall(r"^.", code, re.MULTILINE)) <= 40 for code, _ in BLOCKS)


@pytest.mark.parametrize(("code", "output"), BLOCKS[:2], ids=["selection", "model"])
def test_code_prints_what_the_page_says(code: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    with patch.dict(SELECTIONS):
        exec(compile(code, "extending.md", "exec", dont_inherit=True), {"__name__": "extending"})
    assert capsys.readouterr().out == output


def test_an_experiment_is_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_experiment.py").write_text(BLOCKS[2][0])
    asked = ["run", str(tmp_path / "my_experiment.py"), "-o", str(tmp_path / "results")]
    assert main([*asked, "--model", "tiny", "--prompts", "3"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["items"] == 3
    table = json.loads((tmp_path / "results" / "tables.json").read_text())["tables"]["sent"]
    assert table["columns"] == ["question", "N", "anchors", "bytes"]
    assert sum(row["N"] for row in table["rows"]) == 3


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the pages do not make, in a folder with the files that they name."""
    monkeypatch.chdir(tmp_path)
    Path("bundles").mkdir()
    Path("bundles/qwen2.5-0.5b").symlink_to(SHIPPED)
    for form in ROOT.glob("edge_runtime/*.json"):
        Path(form.name).symlink_to(form)
    monkeypatch.setattr(Client, "decide", lambda *_: {})
    edge = EdgeRuntime.open(SHIPPED, threads=1)
    return {
        "ask_a_person": print,
        "cloud": Client("http://localhost:8080"),
        "command": "rm -rf ~/photos",
        "contract": replace(edge.bundle.contract, vocab_size=151_643),  # ids of Qwen's
        "data": SAMPLE.read_bytes(),
        "edge": edge,
        "frame": b"a frame",
        "prompt": PROMPT,
        "prompt_ids": edge.prompt_ids(PROMPT),
        "session": EdgeSession(edge),
        "tokenizer": edge.bundle.tokenizer,
        "tools": [{"name": "call", "parameters": {"properties": {"number": {"type": "integer"}}}}],
    }


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs(page: str, names: dict[str, Any]) -> None:
    for code, _ in RUN[page]:
        here = code.replace("gateway.example.com", "localhost").replace("timeout=30", "timeout=0")
        exec(compile(here, ROOT / page, "exec", dont_inherit=True), names)
