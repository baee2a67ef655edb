"""Teaching by adapters: what is trained is what runs, what is merged is what was trained, and the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import load_model, weight_files
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.row_weights import open_qwen2, round_checkpoint
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from lab.__main__ import main
from lab.distil import cost, with_adapters
from lab.distil.adapter_run import AdapterRun
from lab.distil.adapters import PROJECTIONS, check_source, insert, merge
from lab.distil.answers import read
from lab.distil.canvases import Canvases, FinishedRow
from lab.distil.loss import FLOOR, uncertainty
from lab.pairs.pair import TrainingRecipe
from lab.pairs.trainer import TAIL, train
from tests.checkpoints import write_tiny_qwen
from tests.cloud_anchor.cloud_checkpoints import make_block_model, make_dream, make_llada

CANVAS, END, PAD = 12, 302, 300
ROWS = [
    FinishedRow((1, 2, 3), (7, 8, 9), (2, 1, 3), END),
    FinishedRow((4, 5, 6, 7, 8, 9), (11, 12, 13, 14, 15), (1, 1, 2, 3, 3), END),
    FinishedRow((5,), (), (), END),
    FinishedRow((9, 8, 7, 6), tuple(range(20, 31)), tuple(range(1, 12)), PAD),
]


def dream_that_ends(folder: Path, **options: Any) -> Path:
    """A random checkpoint whose answers end somewhere."""
    make_dream(folder, **options)
    for path in weight_files(folder):
        state = load_file(path)
        if "lm_head.weight" in state:
            state["lm_head.weight"][END] *= 5
            save_file(state, path, metadata={"format": "pt"})
    return folder


def model_of(folder: Path, dtype: str = "float32") -> DreamModel:
    model = load_model(str(folder), device="cpu", dtype=dtype)
    assert isinstance(model, DreamModel)
    return model


def canvases(tokens: int = 64, rows: list[FinishedRow] = ROWS) -> Canvases:
    return Canvases(rows, CANVAS, PAD, tokens=tokens, seed=1)


def run_of(source: Path, folder: Path, steps: int = 4, tokens: int = 64, **named: Any) -> AdapterRun:
    folder.mkdir(exist_ok=True)
    recipe = TrainingRecipe("dream", steps, causal_steps=0, knows=True, adam_rate=0.3, diffusion=True)
    return AdapterRun(model_of(source), canvases(tokens), recipe, folder, **{"rank": 4, "seed": 0} | named)


def logits_of(model: DreamModel) -> torch.Tensor:
    with torch.no_grad():
        return model.forward(torch.arange(20, 50)[None])


def taught(run: AdapterRun) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in run.adapters.items()}


@pytest.mark.parametrize("make", [make_dream, make_llada])
def test_what_is_trained_is_what_runs(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    source = make(tmp_path / "source")
    run, runs = run_of(source, tmp_path / "run"), model_of(source)
    (state, *rest) = run._rows.at(0, 10_000)
    assert not rest
    shown = state.shown(runs.mask_id)
    run.model.net.train()  # as in a step
    trained = run.logits(state)
    assert trained.requires_grad
    inference = runs.logits(runs.batch(state.prompts, CANVAS), shown, state.masked)
    assert torch.equal(trained, inference)
    # The same of each row alone, unpadded, and without `hidden`: shifted where the family is.
    alone = []
    for prompt, canvas, masked in zip(state.prompts, shown, state.masked, strict=True):
        ids = torch.tensor([*prompt, *canvas.tolist()])[None]
        states = runs.net.model(
            input_ids=ids, attention_mask={"full_attention": None}, is_causal=False, use_cache=False
        ).last_hidden_state[0]
        begin = len(prompt) - (1 if runs.family.shifted else 0)
        alone.append(runs.net.lm_head(states[begin : begin + CANVAS][masked]))
    assert torch.allclose(trained, torch.cat(alone), atol=1e-4)


def test_a_canvas_is_as_the_sampler_leaves_it(tmp_path: Path) -> None:
    pipeline = Pipeline.open(str(dream_that_ends(tmp_path / "source")), device="cpu", dtype="float32")
    model, prompts = pipeline.model, [pipeline.model_form.ids(f"Question {n}?") for n in range(8)]
    runs = denoise(model, prompts, DenoiseConfig(canvas=CANVAS, total_steps=CANVAS))
    ended = [run for run in runs if 0 < run.first_end < CANVAS]
    assert ended
    for run in ended:
        row = FinishedRow(run.prompt_ids, tuple(run.answer), (), run.ids[run.first_end])
        ((state, *_), *_) = [canvases(rows=[row]).at(step, 64) for step in range(3)]
        assert state.prompts[0] == run.prompt_ids
        canvas = state.canvas[0].tolist()
        assert canvas[: run.first_end + 1] == run.ids[: run.first_end + 1]
        assert {*canvas[run.first_end :]} <= run.eos_ids
        mask_id = pipeline.masked_model.mask_id
        assert set(state.shown(mask_id)[0].tolist()) <= {mask_id, *canvas}
        assert state.weights[0].tolist() == [1.0] * (run.first_end + 1) + [pytest.approx(TAIL)] * (
            CANVAS - run.first_end - 1
        )


def test_all_rows_come_before_any_comes_again_and_passes_are_small() -> None:
    rows = canvases(tokens=32)
    assert rows.rows_a_step == 2
    assert rows.steps(6) == 12
    for epoch in range(3):
        steps = [rows.at(2 * epoch + step, 32) for step in range(2)]
        seen = [prompt for step in steps for state in step for prompt in state.prompts]
        assert sorted(seen) == sorted(row.prompt for row in ROWS)
        assert all(state.tokens <= 32 or len(state.prompts) == 1 for step in steps for state in step)
    again = canvases(tokens=32).at(3, 32)
    for one, other in zip(rows.at(3, 32), again, strict=True):
        assert torch.equal(one.masked, other.masked)
        assert torch.equal(one.canvas, other.canvas)


def test_a_step_of_several_passes_is_that_of_one(tmp_path: Path) -> None:
    source, found = make_dream(tmp_path / "source"), []
    for most in (10_000, 1):
        run = run_of(source, tmp_path / f"{most}", pass_tokens=most, certainty=0.5)
        run.recipe = run.recipe.__class__(**vars(run.recipe) | {"steps": 10})
        # The passes' states are drawn one after the other, so that they are the same rows in the same order.
        loss, tokens = run.take()
        found.append((loss, tokens, taught(run)))
    (one, _, whole), (other, _, parts) = found
    assert one == pytest.approx(other, rel=1e-5)
    for name, weight in whole.items():
        assert torch.allclose(weight, parts[name], atol=1e-4), name


def test_the_loss_is_weighed_cross_entropy_with_certainty_where_it_is_right(tmp_path: Path) -> None:
    source = make_dream(tmp_path / "source")
    run = run_of(source, tmp_path / "run")
    (state,) = run._rows.at(0, 10_000)
    logits, targets = run.logits(state).double(), state.canvas[state.masked]
    weights = state.weights[state.masked].double()
    picked = -logits.log_softmax(-1)[torch.arange(len(targets)), targets]
    assert float(run.loss(state).detach()) == pytest.approx(
        float((picked * weights).sum().detach()), rel=1e-4
    )
    sure = F.one_hot(targets, logits.shape[1]).float() * 3
    sharp = torch.distributions.Categorical(logits=2 * sure).entropy()
    assert torch.allclose(uncertainty(sure, targets, weights.float()), (sharp * weights).sum().float())
    assert float(uncertainty(-sure, targets, weights.float())) == 0
    run._certainty = 2.0
    more = run.loss(state) - (picked * weights).sum()
    assert torch.allclose(more, 2 * uncertainty(logits.float(), targets, weights.float()).double(), atol=1e-2)


def test_what_the_edge_model_would_write_by_itself_weighs_less(tmp_path: Path) -> None:
    edge = open_qwen2(write_tiny_qwen(tmp_path / "edge", padding=5)).float().eval()
    run = run_of(make_dream(tmp_path / "source"), tmp_path / "run", edge=edge)
    (state,) = run._rows.at(0, 10_000)
    weights = run._surprise(state)
    assert weights.shape == state.canvas.shape
    for row, (prompt, canvas) in enumerate(zip(state.prompts, state.canvas.tolist(), strict=True)):
        with torch.no_grad():
            chance = edge(torch.tensor([[*prompt, *canvas]])).logits[0, len(prompt) - 1 : -1].softmax(-1)
        sure = chance[torch.arange(CANVAS), torch.tensor(canvas)]
        assert torch.allclose(weights[row], 1 - (1 - FLOOR) * sure, atol=1e-5)
    assert run.take()[0] > 0


def test_the_loss_falls_and_only_adapters_change(tmp_path: Path) -> None:
    run = run_of(make_dream(tmp_path / "source"), tmp_path / "run", steps=12)
    frozen = {n: w.clone() for n, w in run.model.net.named_parameters() if n not in run.adapters}
    assert len(run.adapters) == 2 * 2 * len(PROJECTIONS)
    assert {weight.dtype for weight in run.adapters.values()} == {torch.float32}
    losses = []
    for _ in range(12):
        loss, tokens = run.take()
        losses.append(loss)
        assert tokens >= 2 * (CANVAS + 1)
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:4])
    assert all(torch.equal(w, frozen[n]) for n, w in run.model.net.named_parameters() if n in frozen)
    assert not run.model.net.training


def test_an_interrupted_run_goes_on_to_the_same_adapters(tmp_path: Path) -> None:
    source = make_dream(tmp_path / "source")
    whole = run_of(source, tmp_path / "whole")
    train(whole, quiet=True)

    def interrupt() -> None:
        if first.step == 2:
            raise KeyboardInterrupt

    first = run_of(source, tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        train(first, quiet=True, watch=interrupt)
    second = run_of(source, tmp_path / "parts", seed=7)  # other random adapters, which are replaced
    second.seed = 0
    second.resume()
    assert second.step == 2
    train(second, quiet=True)
    for name, weight in taught(whole).items():
        assert torch.equal(weight, taught(second)[name]), name


@pytest.mark.parametrize(
    ("make", "dtype"), [("one", "float32"), ("shards", "float32"), ("one", "bfloat16"), ("llada", "float32")]
)
def test_a_merged_checkpoint_is_base_and_adapters(tmp_path: Path, make: str, dtype: str) -> None:
    source = tmp_path / "source"
    make_llada(source) if make == "llada" else make_dream(source, sharded=make == "shards")
    if dtype == "bfloat16":
        state = load_file(source / "model.safetensors")
        save_file({n: v.bfloat16() for n, v in state.items()}, source / "model.safetensors")
    (source / "modeling_dream.py").write_text("code\n")
    run = run_of(source, tmp_path / "run")
    before = logits_of(run.model)
    run.take()
    folder = tmp_path / "merged"
    rename = run.model.family.rename
    check_source(source, rename)
    merge(run.model.net, source, folder, rename)
    merge(run.model.net, source, folder, rename)  # replaces it
    expected = logits_of(run.model)
    assert not torch.allclose(expected, before, atol=1e-2)
    found = Pipeline.open(str(folder), device="cpu", dtype="float32").model
    assert isinstance(found, DreamModel)
    close = 1e-3 if dtype == "float32" else 1.0  # sums are rounded to bfloat16 as its weights were
    assert torch.allclose(logits_of(found), expected, atol=close)
    changed = set()
    for path in weight_files(source):
        with safe_open(path, "pt") as old, safe_open(folder / path.name, "pt") as new:
            assert old.metadata() == new.metadata()
            assert [*old.keys()] == [*new.keys()]
            for name in old.keys():  # noqa: SIM118
                one, other = old.get_tensor(name), new.get_tensor(name)
                assert one.dtype == other.dtype
                if not torch.equal(one, other):
                    changed.add(rename(name))
    layers = {f"{n.partition('.lora_')[0]}.weight" for n in run.adapters}
    assert changed == layers
    for file in source.iterdir():
        if not file.name.endswith(".safetensors"):
            assert (folder / file.name).read_bytes() == file.read_bytes()
    assert not (tmp_path / "merged.new").exists()


def test_a_share_of_the_untaught_weights_is_kept_and_a_probability_stated(tmp_path: Path) -> None:
    source = make_dream(tmp_path / "source")
    run, rename = run_of(source, tmp_path / "run"), str
    run.take()
    for share in (0.0, 0.5, 1.0):
        merge(run.model.net, source, tmp_path / f"{share}", rename, share=share, stated={"commit": 0.7})
    none, half, all_ = (load_file(tmp_path / f"{share}/model.safetensors") for share in (0.0, 0.5, 1.0))
    before = load_file(source / "model.safetensors")
    for name, value in half.items():
        assert torch.equal(none[name], before[name])
        assert torch.allclose(value, (none[name] + all_[name]) / 2, atol=1e-5)
    assert Pipeline.open(str(tmp_path / "1.0"), device="cpu").plan().parallel == 0.7


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    source = make_dream(tmp_path / "source")
    round_checkpoint(source)
    with pytest.raises(CheckpointError, match="expected BF16, F16 or F32, found I8"):
        check_source(source, str)


def prompts(folder: Path, count: int = 9) -> str:
    rows = [json.dumps({"prompt": f"What of {number}?"}) + "\n" for number in range(count)]
    (folder / "prompts.jsonl").write_text("".join(rows))
    return f"prompts={folder / 'prompts.jsonl'}"


def test_the_command_writes_answers_teaches_resumes_and_merges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = dream_that_ends(tmp_path / "dream"), tmp_path / "run"
    options = ["--watched", "2", "--canvas", "16", "--tokens", "150", "--every", "2", "--rate", "0.05"]
    options += ["--edge", str(write_tiny_qwen(tmp_path / "edge")), "--pass-tokens", "60"]
    options += ["--certainty", "1", "--commit", "0.7", "--device", "cpu", "--threads", "1", "--batch", "4"]
    common = ["distil", str(source), "--data", prompts(tmp_path), "--lora", "4", "-o", str(out), *options]

    point = with_adapters.watch_point

    def interrupt(file: Path, step: int, *given: Any) -> None:
        point(file, step, *given)
        if step == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(with_adapters, "watch_point", interrupt)
    assert main([*common, "--steps", "4"]) == 130
    monkeypatch.undo()
    answers = read(out / "answers.jsonl")
    assert len(answers) == 7
    assert sum(each.end is not None for each in answers) >= 2
    assert main([*common, "--steps", "4"]) == 0
    assert "step 4 of 4" in capsys.readouterr().err
    assert read(out / "answers.jsonl") == answers
    assert torch.load(out / "dream.pt", weights_only=True)["step"] == 4
    curve = [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
    assert [(row["step"], row["commit"]) for row in curve] == [(s, c) for s in (0, 2, 4) for c in (0.9, 0.7)]
    assert {"tokens_a_pass", "f1 5%", "f1 10%", "f1 25%"} == set(curve[0]) - {"step", "commit"}
    assert not {each.problem.prompt for each in answers} & set(_held(tmp_path))

    base = model_of(source)
    weights = insert(base.net, 4)
    for name, value in torch.load(out / "dream.pt", weights_only=True)["adapters"].items():
        weights[name].data.copy_(value)
    merged = Pipeline.open(str(out / "dream"), device="cpu", dtype="float32")
    assert isinstance(merged.model, DreamModel)
    assert torch.allclose(logits_of(merged.model), logits_of(base), atol=1e-3)
    assert not torch.allclose(logits_of(merged.model), logits_of(model_of(source)), atol=1e-2)
    assert merged.plan().parallel == 0.7

    assert main([*common, "--steps", "4", "--lora", "8"]) == 2
    assert "holds a run with another lora" in capsys.readouterr().err


def _held(folder: Path) -> list[str]:
    found = with_adapters.DistilOptions(lora=4, data=(prompts(folder),), watched=2)
    return [item.prompt for item in with_adapters.questions(found)[0]]


def test_wrong_answers_are_dropped_where_the_source_can_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = dream_that_ends(tmp_path / "dream")
    options = ["--watched", "1", "--answers", "3", "--canvas", "8", "--device", "cpu"]
    out = tmp_path / "out"
    assert main(["distil", str(source), "--data", "tiny", "--lora", "4", "-o", str(out), *options]) == 2
    assert "expected answers that are right" in capsys.readouterr().err
    assert {each.right for each in read(out / "answers.jsonl")} == {False}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--lora", "4"], "--lora: expected sources of prompts (--data gsm8k=FILE.jsonl), found none"),
        (["--lora", "0", "--data", "tiny"], "--lora: expected at least 1, found 0"),
        (["--lora", "4", "--data", "trivia"], "--data trivia: expected tiny, testbed, or gsm8k"),
        (["--lora", "4", "--data", "tiny", "--hold", "0.4"], "--hold: expected without --lora only"),
        (["--data", "tiny"], "--data: expected with --lora only"),
        (["--lora", "4", "--data", "PROMPTS", "--watched", "9"], "expected more than the 9 prompts"),
        (
            ["--lora", "4", "--data", "PROMPTS", "-o", "SOURCE/.."],
            "expected another folder than the model's own",
        ),
        (["--pair", "tiny"], "give --lora 32 and --data for adapters"),
    ],
)
def test_wrong_values_are_told(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, named = make_dream(tmp_path / "dream"), prompts(tmp_path)
    capsys.readouterr()  # of the checkpoint's own making
    words = [word.replace("PROMPTS", named).replace("SOURCE", str(source)) for word in arguments]
    assert main(["distil", str(source), "-o", str(tmp_path / "out"), *words]) in (2, 4)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert says in line


def test_other_kinds_of_models_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_block_model(tmp_path / "block", "Fast_dLLM_Qwen")
    common = ["--data", prompts(tmp_path), "--lora", "4", "--watched", "1", "-o", str(tmp_path / "out")]
    assert main(["distil", str(source), *common]) == 2
    assert "expected a model with full attention" in capsys.readouterr().err


def test_an_edge_model_of_another_vocabulary_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = dream_that_ends(tmp_path / "dream")
    common = ["--data", prompts(tmp_path), "--lora", "4", "--watched", "1", "--canvas", "16"]
    edge = write_tiny_qwen(tmp_path / "edge", vocab_size=290)
    assert main(["distil", str(source), *common, "--edge", str(edge), "-o", str(tmp_path / "out")]) == 2
    assert "expected a model of the vocabulary of the one that is taught" in capsys.readouterr().err


def test_without_the_package_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("with_adapters", "adapter_run", "adapters"):
        monkeypatch.delitem(sys.modules, f"lab.distil.{name}")
        monkeypatch.delattr(f"lab.distil.{name}")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SystemExit) as end:
        main(["distil", "tiny", "--lora", "4", "--data", "tiny"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "lab: expected the package peft, found none: pip install '.[lora]'\n"


def test_the_cost_of_a_step_is_measured_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--length", "32", "--canvas", "16", "--tokens", "64", "--steps", "1", "--device", "cpu"]
    assert cost.main(["small", *sizes]) == 0
    said = capsys.readouterr().out
    assert "| 64 |" in said
    assert "hours" in said
    model = cost.random_model(cost.SHAPES["small"], "cpu")
    found = cost.measure(model, cost.CostOptions(length=32, canvas=16, tokens=64, steps=1))
    assert found.tokens == 64
    # What the formula leaves out: the adapters' own products, and attention.
    assert 1 < found.flop / found.by_formula < 1.5
    assert cost.main([str(make_dream(tmp_path / "dream")), *sizes]) == 0
    assert cost.main(["small", "--length", "8", "--canvas", "16"]) == 2
    assert "--length: expected more than the canvas, 16, found 8" in capsys.readouterr().err
