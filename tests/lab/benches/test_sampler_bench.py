"""The benchmark: its plain sampler is the published one, and it says when commits differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from lab.benches import sampler_bench
from tests.cloud_anchor.cloud_reference import ReferenceModel, sample


def test_the_plain_sampler_is_the_published_one(dream_folder: Path) -> None:
    model = load_model(str(dream_folder), device="cpu")
    options = {"canvas": 20, "temperature": 0.2, "top_p": 0.95}
    config = DenoiseConfig(total_steps=10, order="entropy", **options)  # type: ignore[arg-type]
    expected = sample(
        ReferenceModel(dream_folder),
        [5, 9, 17],
        steps=10,
        alg="entropy",
        top_k=None,
        alg_temp=None,
        seed=0,
        **options,  # type: ignore[arg-type]
    )
    assert sampler_bench.plain(model, [5, 9, 17], config) == expected


def test_the_table(
    dream_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", str(dream_folder), "--device", "cpu", "--canvas", "16", "--total-steps", "8"]
    options += [
        "--steps",
        "4",
        "--batch",
        "2",
        "3",
        "--repeat",
        "1",
        "--json",
        "--stop",
        "complete",
    ]
    assert sampler_bench.main(options) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["sampler"], row["batch"], row["same"]) for row in rows] == [
        ("plain", 1, None),
        ("batched", 2, 1.0),
        ("batched", 3, 1.0),
        ("stop complete", 2, 1.0),
        ("stop complete", 3, 1.0),
    ]
    assert all(
        row["anchors"] > row["prompts"] > 0 and row["steps"] <= 4 and row["step_ms"] > 0 for row in rows
    )

    def careless(model: object, prompts: object, config: DenoiseConfig, batch: int = 1) -> object:
        return denoise(model, prompts, DenoiseConfig(**{**vars(config), "seed": 1, "temperature": 2.0}))  # type: ignore[arg-type]

    monkeypatch.setattr(sampler_bench, "denoise", careless)
    assert sampler_bench.main(options) == 0
    assert all(row["same"] < 0.9 for row in json.loads(capsys.readouterr().out)[1:])
    assert sampler_bench.main([*options, "--canvas", "600"]) == 2
