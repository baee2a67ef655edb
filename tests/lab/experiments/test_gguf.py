"""Bit widths of GGUF files: the tables from records."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("gguf", reason="writing GGUF files needs the gguf package")

from lab.experiment import About
from lab.experiments.gguf import CHECKPOINT, KINDS, tables
from lab.statistics import Summary


def answer(kind: str, right: float) -> dict[str, Any]:
    figures = dict.fromkeys(("same", "overlap", "agreement", "repeated", "f1", "graded"), 0.5)
    return {"weights": kind, "MB": 1.0, "passes": 9, "right": right} | figures


def test_every_width_is_held_against_the_checkpoint() -> None:
    answers = [answer(CHECKPOINT, 1.0), *(answer(kind, 0.0) for kind in KINDS)]
    kinds = {"Q4_K_M": {"attn_v": {"Q4_K": 4, "Q6_K": 2}}, "F32": {"attn_v": {"F32": 6}}}
    records = [{"id": str(at), "answers": answers, "types": kinds} for at in range(3)]
    figures, types = tables(records, About(model="testbed"))
    assert [row["weights"] for row in figures.rows] == [CHECKPOINT, *KINDS]
    less = [row["right less the checkpoint's"] for row in figures.rows]
    assert [each.mean for each in less if isinstance(each, Summary)] == [0.0, *[-1.0] * len(KINDS)]
    assert types.rows == [{"tensor": "attn_v", "Q4_K_M": "Q4_K (4), Q6_K (2)", "F32": "F32 (6)"}]
