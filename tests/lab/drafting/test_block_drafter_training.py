"""A block drafter's model, its answers, its training and what it is worth."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from cloud_anchor.errors import CheckpointError, RequestError
from cloud_anchor.shipped import PAIRS
from edge_runtime.engine.base import Engine, Logits
from lab.__main__ import main as lab
from lab.drafting import experiment
from lab.drafting.accepted import drafts_everywhere, pass_lengths, tokens_a_pass
from lab.drafting.answers import (
    Target,
    TargetAnswer,
    block_batch,
    training_prompts,
    write_answers,
)
from lab.drafting.block_model import STATES, BlockForm, block_logits, build_drafter
from lab.drafting.speculation import speculate
from lab.drafting.torch_engine import TorchEngine
from lab.drafting.training import DrafterOptions, DrafterTrainer, load_target
from lab.experiment import About
from lab.pairs.testbed.library import SourceMissingError
from lab.pairs.tokens import special_ids
from lab.pairs.trainer import train
from tests.checkpoints import write_tiny_qwen
from tests.lab.pairs import tiny_pair

FORM = BlockForm(4, 303)
QWEN = PAIRS["tiny"].weights / "tiny-qwen"
shipped = pytest.mark.skipif(not QWEN.is_dir(), reason="the shipped weights are missing")


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_qwen(tmp_path_factory.mktemp("target") / "checkpoint", positions=96)


@pytest.fixture(scope="module")
def target(target_folder: Path) -> Target:
    return load_target(target_folder, FORM.block, "cpu")


def drafter(target: Target, seed: int = 0) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    net = build_drafter(target.net, 2)
    for each in net.parameters():
        torch.nn.init.normal_(each, std=0.3)
    return net.eval()


def one_draft(net: Any, form: BlockForm, text: list[int], target: Target) -> torch.Tensor:
    """The logits of one block after a text, with every row of the mask spelt out."""
    ids = torch.tensor([[*text, *[form.mask] * (form.block - 1)]])
    size, known = ids.shape[1], len(text) - 1
    mask = torch.zeros(1, 1, size, size)
    for row in range(known):
        mask[..., row, row + 1 :] = -torch.inf
    embedded = net.model.embed_tokens(ids)
    states = target.states(torch.tensor([text]))
    embedded[:, :known] += getattr(net, STATES)(states[:, :known])
    hidden = net.model(
        inputs_embeds=embedded, attention_mask={"full_attention": mask}, use_cache=False
    ).last_hidden_state
    return net.lm_head(hidden[0, known:])


@torch.no_grad()
def test_many_blocks_in_one_pass_are_each_block_alone(target: Target) -> None:
    net = drafter(target)
    text = torch.from_numpy(np.random.default_rng(0).integers(0, 299, (2, 20)))
    starts = torch.tensor([[1, 5, 19], [20, 2, 2]])
    found = block_logits(net, FORM, text, starts, target.states(text))
    assert found.shape == (2, 3, 4, 320)
    for row in range(2):
        for index, start in enumerate(starts[row].tolist()):
            expected = one_draft(net, FORM, text[row, :start].tolist(), target)
            torch.testing.assert_close(found[row, index], expected, rtol=1e-4, atol=1e-4)


class Cycle(Engine):
    """A target that repeats the last token of a prompt of two and the next two, and no other."""

    def __init__(self) -> None:
        super().__init__(context=96, vocab=320)

    def _run(self, ids: Any, rows: Any) -> Logits:
        text = [*self.tokens, *ids]
        logits = np.zeros((len(rows), 320), np.float32)
        for index, row in enumerate(rows):
            logits[index, text[1] + (self.length + row - 1) % 3] = 1
        return logits


def test_accepted_lengths_are_the_passes_of_decoding(trained: Qwen2ForCausalLM, target: Target) -> None:
    """The passes that the walk along the answer predicts, against decoding with the drafter."""

    @torch.no_grad()
    def draft(text: Sequence[int], wanted: int) -> list[int]:
        logits = one_draft(trained, FORM, list(text), target)
        logits[:, FORM.mask] = -torch.inf
        return logits.argmax(-1).tolist()[:wanted]

    accepted = drafted = 0
    for item in memorised():
        found = speculate(Cycle(), item.prompt, (), 15, draft, FORM.block)
        assert found.ids == item.answer
        lengths = pass_lengths(drafts_everywhere(trained, item, target), found.ids)
        assert sum(lengths) == len(found.ids)
        assert len(lengths) == found.passes
        accepted, drafted = accepted + found.accepted, drafted + found.drafted
    assert 0 < accepted < drafted, "drafts are right and wrong"


def test_lengths_count_the_targets_own_token() -> None:
    answer = [1, 2, 3, 4, 5]
    drafts = [[1, 2, 9], [0, 0, 0], [0, 0, 0], [4, 5, 6], [5, 5, 5]]
    assert pass_lengths(drafts, answer) == [3, 2]
    assert pass_lengths([[9, 9]] * 5, answer) == [1] * 5
    assert pass_lengths([answer[i : i + 2] for i in range(5)], answer) == [3, 2]
    assert pass_lengths([], []) == []


def test_answers_are_the_targets_greedy_ones_and_kept(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = training_prompts("tiny", 5)
    assert len(set(prompts)) == 5
    short = replace(target, ids=lambda prompt: target.ids(prompt)[-30:])
    file = tmp_path / "answers.jsonl"
    first = short.answers(prompts[:3], file)
    engine = TorchEngine(target.net)
    for item in first:
        expected = speculate(engine, item.prompt, short.ends, 62).ids
        kept = item.answer[:-1] if item.answer[-1] in short.ends else item.answer
        assert kept == expected[: len(kept)]
    file.write_text(file.read_text() + '{"prompt": [1, 2')  # cut by an interruption
    assert short.answers(prompts, file)[:3] == first
    monkeypatch.setattr("lab.drafting.answers.write_answers", lambda *_: pytest.fail("again"))
    assert len(short.answers(prompts, file)) == 5


def test_prompts_of_one_kind() -> None:
    with pytest.raises(RequestError):
        training_prompts("gsm8k=file.jsonl", 1)
    try:
        whole, profiles = training_prompts("testbed", 14), training_prompts("testbed:profile", 14)
    except SourceMissingError as error:
        pytest.skip(str(error))
    assert len(set(whole) & set(profiles)) <= 2


def test_answers_do_not_depend_on_their_batch(target: Target) -> None:
    prompts = [[3, 4, 5, 6, 7, 8, 9], [20, 21], [100, 101, 102, 103]]
    together = write_answers(target.net, prompts, [300], 12)
    assert together == [write_answers(target.net, [prompt], [300], 12)[0] for prompt in prompts]


def test_places_of_a_batch_are_in_its_answers() -> None:
    lengths = sorted(np.random.default_rng(0).integers(3, 40, 50).tolist())
    answers = [TargetAnswer([1, 2, 3], [4] * size) for size in lengths]
    for step in range(20):
        batch = block_batch(answers, 6, 200, random.Random(step))
        assert batch.starts.shape == (len(batch.ids), 6)
        assert bool((batch.starts >= 3).all())
        assert bool((batch.starts <= batch.end[:, None]).all())
        assert batch.ids.gather(1, batch.end[:, None]).unique().tolist() == [4]


def memorised() -> list[TargetAnswer]:
    """Answers that repeat their prompt's last token and the next two."""
    return [TargetAnswer([5, i], [i, i + 1, i + 2] * 5) for i in range(20, 40)]


def test_a_drafter_begins_as_its_target(target: Target) -> None:
    begun, own = build_drafter(target.net, 1), target.net.state_dict()
    assert len(begun.model.layers) == 1 < len(target.net.model.layers)
    for name, value in begun.state_dict().items():
        assert STATES in name or torch.equal(value, own[name]), name


@pytest.fixture(scope="module")
def trained(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Qwen2ForCausalLM:
    """A drafter after 120 steps on `memorised`."""
    options = DrafterOptions(block=4, layers=1, blocks=4, tokens=256, steps=120)
    terms, folder = experiment.losses(4)[experiment.ALL], tmp_path_factory.mktemp("trained")
    trainer = DrafterTrainer(options, terms, target, memorised(), folder, seed=0, device="cpu")
    train(trainer)
    return trainer.averaged().eval()


def test_training_raises_the_accepted_length(target: Target, trained: Qwen2ForCausalLM) -> None:
    before, after = (
        np.mean([tokens_a_pass(net, item, target) for item in memorised()])
        for net in (drafter(target), trained)
    )
    assert before < 1.1 < 1.4 < after


def test_the_mask_is_a_row_that_no_token_has(target: Target, tmp_path: Path) -> None:
    assert target.form == FORM
    full = write_tiny_qwen(tmp_path / "full", padding=0)
    with pytest.raises(CheckpointError):
        load_target(full, 4, "cpu")


@shipped
def test_the_shipped_models_mask_and_a_diffusion_target() -> None:
    assert load_target(QWEN, 8, "cpu").form == BlockForm(8, special_ids(tiny_pair.TOKENS)[3])
    with pytest.raises(CheckpointError):
        load_target(PAIRS["tiny"].checkpoint, 8, "cpu")


def record(loss: str, lengths: list[float]) -> dict[str, Any]:
    rows = enumerate(zip("xxy", [3, 60, 59], lengths, strict=True))
    return {
        "loss": loss,
        "answers": [
            {"question": number, "family": family, "tokens": tokens, "tokens a pass": length}
            for number, (family, tokens, length) in rows
        ],
    }


def test_the_losses_are_paired_with_base() -> None:
    records = [
        record("base", [1, 2, 3]),
        record("all", [2, 3, 4]),
        record("base", [2, 2, 3]),
        record("all", [3, 3, 4]),
    ]
    (table,) = experiment.tables(records, About(own=experiment.ComparisonOptions()))
    found = {row["answers"]: row["number"] for row in table.rows}
    assert found == {"every answer": 3, "60 tokens and more": 1, "x": 2, "y": 1}
    whole: Any = table.rows[0]
    assert whole["all"].mean == pytest.approx((2.5 + 3 + 4) / 3)
    less = whole["all less base"]
    assert (less.mean, less.low, less.high) == pytest.approx((1, 1, 1))


@shipped
def test_the_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["--answers", "8", "--prompts", "4", "--steps", "2", "--tokens", "128"]
    common += ["--layers", "1", "--device", "cpu", "--threads", "1"]
    out = tmp_path / "losses"
    arguments = ["run", "losses", *common, "-o", str(out), "--seeds", "1"]
    assert lab(arguments) == 0
    found = json.loads((out / "tables.json").read_text())["tables"]
    columns = found["losses"]["columns"]
    assert columns == ["answers", "number", "base", "+weights", "+focal", "+chain", "all", "all less base"]
    assert {row["answers"] for row in found["losses"]["rows"]} >= {"every answer", "code"}
    assert all(row["base"]["mean"] >= 1 for row in found["losses"]["rows"])
    monkeypatch.setattr(experiment, "tokens_a_pass", lambda *_: pytest.fail("measured again"))
    assert lab(arguments) == 0
    assert "every answer" in capsys.readouterr().out
    assert lab([*arguments, "--block", "1"]) == 2
    assert lab([*arguments[:-4], "-o", str(tmp_path / "deep"), "--layers", "99"]) == 2
