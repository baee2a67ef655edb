"""The published repository's result files: figures from rows in their form, and files in another form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.__main__ import main
from lab.published.published_files import FILES
from lab.published.traces import read_fills


def _fill(text: str, f1: float) -> dict[str, Any]:
    return {"text": text, "time": 0.1, "f1": f1, "delta": 0.0}


def _gap(coverage: float, gap_f1: float, compared: int = 4) -> dict[str, Any]:
    found = {"coverage_pct": coverage, "gap_word_f1": gap_f1, "gap_token_accuracy": 0.5, "full_f1": 0.9}
    tokens = {"real_text": "ab", "real_tokens": [1, 2], "is_anchor": [True, False]}
    return found | {"n_gap_compared": compared, **tokens}


def _timed(seconds: float) -> dict[str, float]:
    return {"mean_s": seconds, "mean_committed": 256.0}


PUBLISHED: dict[str, Any] = {
    "dlm_anchor_results.json": [
        {
            "dream_text": "The river is long.",
            "small_alone": {"text": "The sea is long.", "f1_vs_dream": 0.75},
            "anchor_forced": {
                "0.1": {"forced": _fill("The river is long.", 1.0), "template": _fill("a b", 0.0)}
            },
        }
    ],
    "llm_size_results.json": {
        "0.5B": [{"alone_f1": 0.25, "forced": {"10%": {"f1": 0.75}}}] * 2,
        "1.5B": [{"alone_f1": 0.5, "forced": {"10%": {"f1": 0.5}}}] * 2,
    },
    "gap_only_full.json": [
        {"benchmark": "arc", "index": n, "alone_text": "x", "alone_f1": 0.25, "sf_0.1": _gap(20 + n, n / 8)}
        for n in range(5)
    ]
    + [
        {"benchmark": "arc", "index": 9, "alone_text": "x", "alone_f1": 0.1, "sf_0.1": _gap(covered, 1, 0)}
        for covered in (90, 100)
    ],
    "supplement_timing.json": {
        "config": {
            "dream_model": "D",
            "qwen_model": "Q",
            "device": "G",
            "n_prompts": 20,
            "max_new_tokens": 256,
        },
        "dream": {"steps_128": _timed(5.3825672442093495), "steps_13": _timed(0.5517848713323474)},
        "qwen": {"mean_per_token_ms": 18.248899043751315},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in PUBLISHED.items():
        (tmp_path / name).write_text(json.dumps(data))
    return tmp_path


def test_every_file_is_read_in_its_own_form(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert main(["published", str(folder), "--json", str(out)]) == 0
    found = {name: table["rows"] for name, table in json.loads(out.read_text()).items()}
    assert PUBLISHED.keys() == FILES.keys()
    forced = next(row for row in found["fills"] if row["what"] == "anchors, filled")
    assert (forced["F1 as stored"]["mean"], forced["F1 of the texts"]["mean"]) == (1, 1)
    alone = next(row for row in found["fills"] if row["what"] == "edge alone")
    assert alone["F1 of the texts"]["mean"] == 0.75
    ten = next(row for row in found["sizes"] if row["fraction"] == "10%")
    assert (ten["1.5B less 0.5B"]["mean"], ten["N"]) == (-0.25, 2)
    part, compared = found["gaps"]
    assert (part["N"], part["gap-only F1"]["mean"]) == (6, pytest.approx(2.25 / 6)), "fully covered: left out"
    assert (compared["N"], compared["gap-only F1"]["mean"]) == (5, 0.25)
    assert compared["gap F1 and coverage"]["rho"] == pytest.approx(1)
    short, full = found["timing"]
    assert (short["steps"], full["steps"]) == (13, 128)
    assert short["equation 1, ms"] == pytest.approx(2371.5, abs=1)
    assert short["times, one after the other"] == pytest.approx(2.27, abs=0.005)
    assert short["times, both at once"] == pytest.approx(2.95, abs=0.005)


def test_the_published_fills_are_read_as_a_list_too(folder: Path) -> None:
    fills = read_fills(folder / "gap_only_full.json")
    assert (len(fills), fills[0].name, list(fills[0].forced)) == (7, "arc/0", ["0.1"])


def test_another_form_is_one_clear_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "gap_only_full.json").write_text('[{"benchmark": "arc", "sf_0.1": {}}]')
    assert main(["published", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "gap_only_full.json: expected the published form of this file" in error
    assert len(error.splitlines()) == 1
    assert main(["published", str(folder / "nowhere")]) == 2
    assert "expected one of dlm_anchor_results.json" in capsys.readouterr().err
