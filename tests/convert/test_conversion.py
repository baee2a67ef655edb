"""A whole conversion: content of the bundle, verification, continuation after an interruption."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import convert.conversion
from common.progress import Silent
from convert import Thresholds, VerificationError
from convert import convert as run_convert
from convert.__main__ import main, thresholds_of
from convert.check.reference import Reference, ReferenceText
from convert.check.verify import Figures, compare
from convert.variants import RECIPES
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from tests.checkpoints import write_tiny_qwen
from tests.convert.conftest import LOOSE

INT8: dict[str, Any] = {"variants": ["int8"], "thresholds": {"int8": LOOSE["int8"]}, "threads": 1}
BOTH = INT8 | {"variants": ["fp32", "int8"]}


@pytest.mark.parametrize("variant", RECIPES)
def test_every_variant_opens_and_answers(variant: str, bundle_folder: Path) -> None:
    bundle = Bundle.open(bundle_folder, variant)
    bundle.verify_contract()
    engine = OrtEngine.open(bundle, threads=1)
    ids = bundle.form.ids("How many loaves?")
    assert np.isfinite(engine.append(ids, [len(ids) - 1])).all()


def test_fp32_answers_token_for_token_like_pytorch(checkpoint_folder: Path, bundle_folder: Path) -> None:
    """An independent loop: transformers' own generate against the device's engine."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder)
    model = AutoModelForCausalLM.from_pretrained(checkpoint_folder)
    bundle = Bundle.open(bundle_folder, "fp32")
    engine = OrtEngine.open(bundle, threads=1)
    for text in ("Name a river.", "24 + 17 = ?", "def f(x):"):
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
        assert bundle.form.ids(text) == prompt
        with torch.inference_mode():
            expected = model.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False)[0].tolist()
        engine.rewind(0)
        found, chunk = list(prompt), prompt
        while len(found) < len(expected):
            chunk = [int(engine.append(chunk, [len(chunk) - 1])[0].argmax())]
            found += chunk
        assert found == expected


def test_the_manifest_tells_what_was_made(bundle_folder: Path, checkpoint_folder: Path) -> None:
    manifest = Bundle.open(bundle_folder).manifest
    assert manifest.default_variant == "int8"
    assert manifest.context == 512
    assert manifest.model.id == checkpoint_folder.name
    assert manifest.model.revision.startswith("sha256:")
    assert {"torch", "transformers", "onnx", "onnxruntime"} <= set(manifest.tools)
    own = {"tokenizer.json", "chat_template.json", "chat_template.jinja", "genai_config.json"}
    assert own | {"tokenizer_config.json"} == set(manifest.files)
    listed = set(manifest.files) | {name for v in manifest.variants.values() for name in v.files}
    present = {str(p.relative_to(bundle_folder)) for p in bundle_folder.rglob("*") if p.is_file()}
    assert present == listed | {"bundle.json"}
    for variant in manifest.variants.values():
        figures = variant.verification
        assert figures["positions"] >= 256
        assert figures["greedy_tokens"] >= 64
    found = {name: variant.verification for name, variant in manifest.variants.items()}
    assert found["fp32"]["greedy"] == found["fp32"]["top1"] == 1.0
    divergences = [found[name]["mean_kl"] for name in ("fp32", "fp16", "int8", "int4")]
    assert divergences == sorted(divergences)


class Interrupting(Silent):
    """Breaks off, as Ctrl-C does, halfway through the first stage whose title has the given end."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.stages: list[str] = []

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Any]:
        self.stages.append(title)
        done = 0

        def step(steps: int) -> None:
            nonlocal done
            done += steps
            if title == self.at and done * 2 >= total:
                raise KeyboardInterrupt

        yield step


STAGES = [
    "original model",
    *(f"{n}: {part}" for n in ("fp32", "int8") for part in ("weights", "verification")),
]


@pytest.mark.parametrize("at", [STAGES[0], STAGES[2], STAGES[3]])
def test_an_interrupted_conversion_goes_on_where_it_was(
    at: str, checkpoint_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_convert(checkpoint_folder, out, progress=Interrupting(at), **BOTH)
    assert not out.exists()
    again = Interrupting("")
    run_convert(checkpoint_folder, out, progress=again, **BOTH)
    assert again.stages == STAGES[STAGES.index(at) :]
    Bundle.open(out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_on_the_command_line_is_code_130_and_says_how_to_go_on(
    checkpoint_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    arguments = [str(checkpoint_folder), "-o", str(out), "--variants", "fp32"]
    with monkeypatch.context() as patch:
        patch.setattr("convert.__main__.Bars", lambda: Interrupting(STAGES[1]))
        assert main(arguments) == 130
    error = capsys.readouterr().err
    assert f"{out}.partial" in error
    assert not out.exists()
    assert main(arguments) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_was_damaged_or_changed_since_is_made_again(checkpoint_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_convert(checkpoint_folder, out, progress=Interrupting(STAGES[4]), **BOTH)
    data = tmp_path / "out.partial" / "bundle" / "fp32" / "model.onnx.data"
    content = bytearray(data.read_bytes())
    content[1000] ^= 1
    data.write_bytes(content)
    again = Interrupting("")
    with pytest.raises(KeyboardInterrupt):
        run_convert(checkpoint_folder, out, progress=(again := Interrupting(STAGES[4])), **BOTH)
    # The verification of equal files is kept.
    assert again.stages == [STAGES[1], STAGES[4]]
    other = Interrupting("")
    run_convert(checkpoint_folder, out, progress=other, context=256, **BOTH)
    assert [title for title in other.stages if "weights" in title] == [STAGES[1], STAGES[3]]
    assert Bundle.open(out).context == 256


def test_force_replaces_a_bundle_and_only_then(checkpoint_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_convert(checkpoint_folder, out, variants=["fp32"], threads=1)
    with pytest.raises(convert.ConvertError):
        run_convert(checkpoint_folder, out, **INT8)
    run_convert(checkpoint_folder, out, force=True, **INT8)
    assert set(Bundle.open(out).manifest.variants) == {"int8"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("size", [1, 100])
def test_outlier_weights_fail_the_check_with_figures(size: float, tmp_path: Path) -> None:
    """Two models that compute the same: some units of the MLP never fire, and in the second one the weights
    that read them are huge. They share blocks with the others and leave 8 bits little for those."""
    folder = write_tiny_qwen(tmp_path / "source")
    tensors = load_file(folder / "model.safetensors")
    for name, value in tensors.items():
        if "gate_proj" in name:
            value[::32] = 0
        if "down_proj" in name:
            value[:, ::32] *= size
    save_file(tensors, folder / "model.safetensors")
    if size == 1:
        run_convert(folder, tmp_path / "out", **INT8)
        return
    with pytest.raises(VerificationError, match=r"int8 .*0\.85"):
        run_convert(folder, tmp_path / "out", **INT8)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", ["bias", "order", "nan"])
def test_a_wrong_graph_fails_the_check(
    damage: str, checkpoint_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes an exporter can make: a bias forgotten, two layers exchanged, a value that is no number."""
    write = convert.conversion.write_graph

    def wrong(checkpoint: Any, *arguments: Any) -> None:
        class Damaged:
            shape = checkpoint.shape

            @staticmethod
            def tensor(name: str) -> np.ndarray:
                if damage == "order" and "mlp.down_proj" in name:
                    name = re.sub("[01]", lambda layer: str(1 - int(layer[0])), name)
                value = np.array(checkpoint.tensor(name))
                if damage == "bias" and name.endswith("k_proj.bias"):
                    value[:] = 0
                if damage == "nan" and name == "model.norm.weight":
                    value[0] = np.nan
                return value

        write(Damaged(), *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(convert.conversion, "write_graph", wrong)
    with pytest.raises(VerificationError):
        run_convert(checkpoint_folder, tmp_path / "out", variants=["fp32"], threads=1)
    assert not (tmp_path / "out").exists()


class Table(Engine):
    """An engine whose logits depend on the last token only, from a table [V, V]."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__(context=1000, vocab=len(table))
        self.table = table

    def _run(self, ids: Any, rows: Any) -> np.ndarray:
        result: np.ndarray = self.table[[ids[row] for row in rows]]
        return result


def reference_of(table: np.ndarray, prompt: list[int], tokens: int) -> Reference:
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(int(table[ids[-1]].argmax()))
    return Reference([ReferenceText(ids, len(prompt))], table[ids])


def test_figures_are_what_they_say() -> None:
    table = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) * 3
    reference = reference_of(table, [1, 2, 3], 20)
    same = compare(Table(table), reference)
    assert (same.positions, same.top1, same.mean_kl, same.max_delta) == (23, 1.0, 0.0, 0.0)
    assert (same.greedy_tokens, same.greedy) == (20, 1.0)

    other = table + np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    found = compare(Table(other), reference)
    ids = reference.texts[0].ids
    p, q = (torch.log_softmax(torch.tensor(t[ids], dtype=torch.float64), -1) for t in (table, other))
    expected = torch.nn.functional.kl_div(q, p, log_target=True, reduction="batchmean")
    assert found.mean_kl == pytest.approx(float(expected))
    assert found.max_delta == pytest.approx(float(np.abs(table[ids] - other[ids]).max()))
    assert found.top1 == pytest.approx(np.mean(table[ids].argmax(1) == other[ids].argmax(1)))


def test_greedy_counts_up_to_the_first_difference_and_ties_are_no_difference() -> None:
    table = np.full((6, 6), -5, np.float32)
    for token in range(6):
        table[token, (token + 1) % 6] = 5
    reference = reference_of(table, [0], 5)  # 1 2 3 4 5
    wrong = table.copy()
    wrong[3] = np.roll(table[3], 2)
    assert compare(Table(wrong), reference).greedy == pytest.approx(3 / 5)
    tied = table.copy()
    tied[3, 0] = 5
    broken = tied.copy()
    broken[3, 0] -= 0.01  # now the other of the two equal ones wins
    found = compare(Table(broken), reference_of(tied, [1], 4))
    assert (found.greedy, found.greedy_tokens) == (1.0, 2)


def test_the_command_line(
    checkpoint_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    common = [str(checkpoint_folder), "-o", out, "--variants", "int8"]
    assert main([*common, "--threshold", "int8.top1=0.99999"]) == 5
    said = capsys.readouterr().err
    assert "top1" in said
    assert re.search(r" --threshold int8\.top1=0\.\d+[ .]", said)
    assert f"{out}.partial" in said
    settings = [f"--threshold=int8.{each}" for each in ("top1=0.8", "greedy=0", "mean_kl=0.1")]
    assert main([*common, *settings, "--json"]) == 0
    shown, next_one = capsys.readouterr()
    assert json.loads(shown)["default_variant"] == "int8"
    assert f"python -m edge_runtime.chat --edge {out}\n" in next_one
    assert "Warning" not in next_one
    assert main([*common, *settings]) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*common, "--threshold", "int8.speed=1"]) == 2
    assert main([*common, "--threshold", "fp32.top1=1"]) == 2
    assert main(["absent", "-o", out + "2"]) == 4


def test_a_refusal_has_the_settings_that_accept_it() -> None:
    found = Figures(800, 0.6187, 0.5213, 7.5, 400, 0.119, 1.0)
    bounds = Thresholds(top1=0.7, mean_kl=0.5, max_delta=1.0, greedy=0.5)
    with pytest.raises(VerificationError) as refused:
        bounds.check("int4", found)
    expected = ("int4.top1=0.61", "int4.greedy=0.11", "int4.mean_kl=0.53", "int4.max_delta=7.5")
    assert refused.value.accepting == expected
    thresholds_of(["int4"], refused.value.accepting)["int4"].check("int4", found)
    with pytest.raises(VerificationError) as refused:
        bounds.check("int4", replace(found, mean_kl=math.nan))
    assert not refused.value.accepting


def test_help_loads_no_torch() -> None:
    code = "import sys, convert.__main__ as m; assert 'torch' not in sys.modules; m.main(['-h'])"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], timeout=60, check=True)


def test_a_checkpoint_of_either_generation_of_transformers_is_converted(tmp_path: Path) -> None:
    """transformers 5 writes the base of the rotary angles into `rope_parameters`, transformers 4 beside.

    A licence in its folder travels with the weights.
    """
    folder = write_tiny_qwen(tmp_path / "source")
    (folder / "LICENSE").write_text("Terms.", encoding="utf-8")
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    rope = config.pop("rope_parameters", None) or {"rope_type": "default", "rope_theta": config["rope_theta"]}
    config.pop("rope_theta", None)
    assert rope["rope_theta"] == 1e6  # not the default
    for index, settings in enumerate(({"rope_parameters": rope}, {"rope_theta": rope["rope_theta"]})):
        path.write_text(json.dumps({**config, **settings}), encoding="utf-8")
        made = run_convert(folder, tmp_path / str(index), variants=["fp32"], threads=1)
        assert "LICENSE" in made.files
