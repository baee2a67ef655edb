"""The sampler's bench: its plain sampler is the published one, and it says when commits differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from lab.__main__ import main
from lab.benches import sampler
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
        seed=0,
        **options,  # type: ignore[arg-type]
    )
    assert sampler.plain(model, [5, 9, 17], config) == expected


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def table(name: str) -> list[dict[str, object]]:
        options = "--canvas 16 --total-steps 8 --steps 4 --batch 2 3 --repeat 1 --stop complete".split()
        assert main(["run", "sampler", "-o", str(tmp_path / name), *options]) == 0
        rows = json.loads((tmp_path / name / "tables.json").read_bytes())["tables"]["sampler"]["rows"]
        assert [(row["sampler"], row["batch"]) for row in rows] == [
            ("plain", 1),
            ("batched", 2),
            ("batched", 3),
            ("stop complete", 2),
            ("stop complete", 3),
        ]
        return list(rows)

    rows = table("same")
    assert [row["commits"] for row in rows] == ["", *["identical"] * 4]
    assert all(row["steps per answer"] <= 4 and row["ms per step"] > 0 for row in rows)  # type: ignore[operator]

    def careless(model: object, prompts: object, config: DenoiseConfig, batch: int = 1) -> object:
        return denoise(model, prompts, DenoiseConfig(**{**vars(config), "seed": 1, "temperature": 2.0}))  # type: ignore[arg-type]

    monkeypatch.setattr(sampler, "denoise", careless)
    assert all("the same" in str(row["commits"]) for row in table("careless")[1:])
