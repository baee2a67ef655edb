"""The code of docs/inside/extending.md runs as it stands, and prints what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from unittest.mock import patch

import pytest

from cloud_anchor.selection.select import SELECTIONS
from cloud_anchor.shipped import PAIRS
from lab.__main__ import main
from tests.shipped import TINY_BUNDLE

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?",
    (ROOT / "docs/inside/extending.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
pytestmark = pytest.mark.skipif(
    not PAIRS["tiny"].checkpoint.exists() or not TINY_BUNDLE.exists(),
    reason="the shipped pair is missing",
)


def test_the_page_has_all_three() -> None:
    assert [bool(output) for _, output in BLOCKS] == [True, True, False]
    assert all(code.count("\n") - code.count("\n\n") <= 40 for code, _ in BLOCKS)


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
