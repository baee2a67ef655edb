"""A block drafter's bundle: its graph against PyTorch, and answers with it against answers without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForCausalLM

from convert import Thresholds
from convert import convert as run_convert
from convert.errors import ArchitectureError
from convert.source.checkpoint import Checkpoint
from edge_runtime.bench.__main__ import main as bench_main
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.manifest import BlockForm
from edge_runtime.decode.block_drafter import BlockDrafter
from edge_runtime.decode.forced import FillOptions, FillStats, fill
from edge_runtime.decode.speculate import Speculator
from edge_runtime.fill import main as fill_main
from edge_runtime.runtime import EdgeRuntime
from lab.benches.write_gguf import write_gguf
from payload import AnchorSet, Codec, Extras, Shared, encode
from tests.checkpoints import write_tiny_qwen

BLOCK, MASK = 6, 303
LOOSE = {"int8": Thresholds(top1=0.6, mean_kl=0.1)}


def write_drafter(folder: Path, **fields: Any) -> Path:
    """A random checkpoint of a block drafter."""
    write_tiny_qwen(folder, seed=5, hidden=32, heads=2, kv_heads=2, layers=1, intermediate=64)
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["BlockDrafter"], "block_size": BLOCK, "mask_token_id": MASK} | fields
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def drafter_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drafter(tmp_path_factory.mktemp("drafter") / "checkpoint")


@pytest.fixture(scope="module")
def drafter_bundle(drafter_checkpoint: Path) -> Path:
    out = drafter_checkpoint.parent / "bundle"
    run_convert(drafter_checkpoint, out, variants=("fp32", "int8"), thresholds=LOOSE, threads=1)
    return out


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> EdgeRuntime:
    folder = tmp_path_factory.mktemp("target")
    run_convert(write_tiny_qwen(folder / "checkpoint"), folder / "bundle", variants=("fp32",), threads=1)
    return EdgeRuntime.open(folder / "bundle", threads=1)


def test_the_bundle_says_what_it_is(drafter_bundle: Path) -> None:
    manifest = Bundle.open(drafter_bundle).manifest
    assert manifest.drafter == BlockForm(BLOCK, MASK)
    assert not list(drafter_bundle.rglob("genai*"))
    exact, small = (manifest.variants[name].verification for name in ("fp32", "int8"))
    assert exact["positions"] == exact["greedy_tokens"] >= 256
    assert exact["top1"] == exact["greedy"] == 1
    assert exact["max_delta"] < 1e-4 < small["max_delta"]


def test_drafts_are_pytorchs(drafter_bundle: Path, drafter_checkpoint: Path, target: EdgeRuntime) -> None:
    """Against one pass without a cache, in which row and column of every token are spelt out."""
    net = Qwen2ForCausalLM.from_pretrained(drafter_checkpoint).eval()
    found = BlockDrafter.open(drafter_bundle, target.bundle.contract, 320, variant="fp32", threads=1)
    text = [5, 9, 200, 31, 7]
    for _ in range(6):
        ids = [*text, *[MASK] * (BLOCK - 1)]
        mask = torch.zeros(1, 1, len(ids), len(ids))
        for row in range(len(text) - 1):
            mask[..., row, row + 1 :] = float("-inf")
        with torch.no_grad():
            hidden = net.model(
                torch.tensor([ids]), attention_mask={"full_attention": mask}, use_cache=False
            ).last_hidden_state
            logits = net.lm_head(hidden[0, len(text) - 1 :])[:, :320]
        logits[:, MASK] = -torch.inf
        assert list(found.draft(text, BLOCK)) == logits.argmax(-1).tolist()
        assert list(found.draft(text, 2)) == logits.argmax(-1).tolist()[:2]
        text += [int(logits[0].argmax()), len(text)]


def test_answers_are_the_same_with_it(drafter_bundle: Path, target: EdgeRuntime) -> None:
    contract = target.bundle.contract
    blocks = target.block_drafter(drafter_bundle)
    for places in ({}, {2: 7, 3: 9, 11: 40}):
        anchors = AnchorSet.of(places, 40, contract, 40)
        expected = [token.id for token in fill(target.engine, [3, 4, 5], anchors)]
        stats = FillStats()
        options = FillOptions(drafter=Speculator({1: 1.0, 9: 1.0}, blocks), max_draft=BLOCK)
        found = [token.id for token in fill(target.engine, [3, 4, 5], anchors, options, stats)]
        assert found == expected
        assert stats.drafted


def test_fill_takes_a_drafter(
    drafter_bundle: Path, target: EdgeRuntime, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contract = target.bundle.contract
    prompt = "How many loaves?"
    anchors = AnchorSet.of({4: 7, 9: 8}, 24, contract)
    shared = Shared(contract, target.prompt_ids(prompt))
    file = tmp_path / "payload.bin"
    file.write_bytes(encode(anchors, shared, Codec.COMPACT, extras=Extras(prompt=prompt)))
    common = [str(file), "--edge", str(target.bundle.path), "--json", "--quiet", "--threads", "1"]
    answers = []
    for more in ([], ["--drafter", str(drafter_bundle)]):
        assert fill_main([*common, *more]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["text"] == answers[1]["text"]
    assert answers[0]["tokens"] == answers[1]["tokens"]
    assert fill_main([*common, "--drafter", str(drafter_bundle), "--speculate", "off"]) == 2
    assert "drafter: expected none beside speculate 'off'" in capsys.readouterr().err
    assert fill_main([*common, "--drafter", str(target.bundle.path)]) == 2
    assert "found one of a model that answers" in capsys.readouterr().err


def test_the_benchmark_compares_drafters(
    drafter_bundle: Path, target: EdgeRuntime, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    anchors = {"0.1": [[0, 5], [9, 7]], "0.25": [[0, 5], [1, 6], [9, 7]]}
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps({"prompt": "How many?", "gen_len": 12, "anchors": anchors}))
    common = [str(target.bundle.path), "--threads", "1", "--repeat", "1", "--length", "8"]
    common += ["--format", "json", "--drafter", str(drafter_bundle)]
    assert bench_main(common) == 2
    assert "recorded answers beside it (--traces)" in capfd.readouterr().err
    assert bench_main([*common, "--traces", str(traces)]) == 0
    report = json.loads(capfd.readouterr().out)
    passes = {figure["test"]: figure["passes"] for figure in report["figures"]}
    for what in ("no anchors", "0.1", "0.25"):
        plain = passes[f"traces at {what}, no drafter"]
        for kind in ("prompt lookup", "block drafter", "block drafter, always"):
            assert passes[f"traces at {what}, {kind}"] <= plain
            assert f"traces at {what}, {kind} over no drafter" in report["ratios"]
    assert passes["traces at no anchors, no drafter"] == 12


def test_what_has_no_bundle_is_refused(tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "states", target_hidden_size=64)
    with pytest.raises(ArchitectureError, match="reads its target's hidden states"):
        Checkpoint(folder)
    plain = write_drafter(tmp_path / "plain")
    with pytest.raises(ArchitectureError, match="GGUF files cannot hold"):
        write_gguf(plain, tmp_path / "out.gguf", "f32", "f32")
