"""The recipe of the testbed: tokenizer, shapes, batches, and a short run of the command's loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from cloud_anchor.shipped import PAIRS
from lab.pairs import shapes, vocabulary
from lab.pairs.testbed import probe, recipe
from lab.pairs.testbed.grading import is_correct
from lab.pairs.testbed.library import Library
from lab.pairs.testbed.questions import held_out_questions, training_families
from lab.pairs.train import Trainer, train
from lab.pairs.training_data import Batches, mask

SIZE = 600
"""Tokens of the tests' tokenizer, which is trained in a second."""


@pytest.fixture(scope="module")
def small(library: Library) -> Tokenizer:
    return vocabulary.train_on(recipe.texts(library, 60), SIZE)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def configuration(name: str) -> dict[str, object]:
    return recipe.CONFIGURATIONS[name] | {
        "vocab_size": SIZE + 4,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "pad_token_id": SIZE,
        "bos_token_id": SIZE,
    }


def test_the_tokenizer_keeps_results_of_sums_whole(small: Tokenizer) -> None:
    """One piece each, which becomes one token where the corpus has it often enough (below)."""
    for number in range(1, 100):
        pieces = [piece for piece, _ in small.pre_tokenizer.pre_tokenize_str(f"6 * 8 = {number}.")]
        assert pieces[-2:] == [f"Ġ{number}", "."]
    assert small.decode(small.encode("Côte d'Ivoire: 7.2 million").ids) == "Côte d'Ivoire: 7.2 million"
    assert [small.token_to_id(t) for t in vocabulary.SPECIALS] == list(shapes.special_ids(SIZE))


@pytest.mark.slow
def test_the_real_tokenizer_has_its_size_and_a_token_for_each_result(library: Library) -> None:
    if len(library.entities) < 1000:
        pytest.skip("a made library has too few words for the vocabulary")
    tokenizer = recipe.tokenizer(library, 2000)
    assert tokenizer.get_vocab_size() == recipe.TOKENS + 4
    assert all(len(tokenizer.encode(f" {number}").ids) == 1 for number in range(1, 100))


def test_the_models_have_the_sizes_that_they_should() -> None:
    sizes = {name: shapes.parameters(shapes.build(c)) for name, c in recipe.CONFIGURATIONS.items()}
    assert 5e6 < sizes["testbed-dream"] < 20e6
    assert 0.05 < sizes["testbed-qwen"] / sizes["testbed-dream"] < 0.15
    shipped = sum(f.stat().st_size for f in PAIRS["tiny"].weights.rglob("*.safetensors"))
    # The causal model has the size of the diffusion model; two bytes a weight.
    assert shipped + 2 * (2 * sizes["testbed-dream"] + sizes["testbed-qwen"]) < 40e6


def test_a_batch_is_a_function_of_its_step(library: Library, small: Tokenizer) -> None:
    families, mixes = training_families(library), recipe.curriculum(library)
    first, second = (Batches(small, knows=True, seed=1, families=families) for _ in range(2))
    first.at(3, 512, mixes.causal)
    assert torch.equal(first.at(7, 512, mixes.masked).ids, second.at(7, 512, mixes.masked).ids)
    assert not torch.equal(
        first.at(7, 512, mixes.causal).ids[0, :20], first.at(8, 512, mixes.causal).ids[0, :20]
    )


def test_rows_are_full_and_end_with_their_markers(library: Library, small: Tokenizer) -> None:
    batches = Batches(small, knows=False, seed=0, families=training_families(library))
    end_of_text, _, im_end, mask_id = shapes.special_ids(SIZE)
    mix = recipe.curriculum(library).causal
    filled = []
    for step in range(4):
        batch = batches.at(step, 1024, mix)
        for row, end in zip(batch.ids.tolist(), batch.end.tolist(), strict=True):
            assert row[end] == im_end
            assert set(row[end + 1 :]) <= {end_of_text}
            filled.append((end + 1) / len(row))
    assert sum(filled) / len(filled) > 0.6
    masked, hit = mask(batch, np.random.default_rng(0), mask_id)
    assert bool((masked[hit] == mask_id).all())


def trainer_of(library: Library, folder: Path, **changes: Any) -> Trainer:
    """A trainer of a small testbed-dream, not started, with these changes of its recipe."""
    return Trainer(
        replace(recipe.TESTBED_RECIPES["testbed-dream"], **changes),
        folder,
        seed=3,
        device="cpu",
        compiled=False,
        configuration=configuration("testbed-dream"),
        curriculum=recipe.curriculum(library),
    )


def test_a_resumed_run_equals_one_in_a_piece(library: Library, small: Tokenizer, tmp_path: Path) -> None:
    def trainer(folder: Path) -> Trainer:
        folder.mkdir(exist_ok=True)
        result = trainer_of(
            library, folder, steps=4, causal_steps=2, causal_tokens=512, masked_tokens=512, early_steps=0
        )
        result.resume()
        return result

    straight = trainer(tmp_path / "straight")
    seen: list[int] = []
    train(straight, small, quiet=True, watch=lambda at: seen.append(at.step))
    assert seen == [1, 2, 3, 4]
    broken = trainer(tmp_path / "broken")
    batches = Batches(small, knows=True, seed=3, families=broken.curriculum.families)
    for _ in range(3):
        broken.advance(broken.batch(batches))
    broken.save()
    again = trainer(tmp_path / "broken")
    train(again, small, quiet=True)
    for key, value in straight.ema.items():
        assert torch.equal(value, again.ema[key]), key
    vocabulary.save(small, tmp_path / "tokenizer")
    again.export(tmp_path / "tokenizer", tmp_path / "dream")
    again.export(tmp_path / "tokenizer", tmp_path / "causal", diffusion=False)
    kinds = [
        json.loads((tmp_path / n / "config.json").read_text())["model_type"] for n in ("dream", "causal")
    ]
    assert kinds == ["Dream", "qwen2"]


def test_the_first_steps_are_exercises_alone(library: Library, small: Tokenizer, tmp_path: Path) -> None:
    prompts = ("Repeat:", "List:", "Options:", "Names:", "Who has what?", "More or less:", "Reckon.")
    trainer = trainer_of(library, tmp_path, early_steps=2)
    batches = trainer.batches(small)
    shares = []
    for trainer.step in (0, 1, 2, 3):
        rows = [small.decode(row.tolist()) for row in trainer.batch(batches).ids]
        shares.append(sum(row.removeprefix("user\n").startswith(prompts) for row in rows) / len(rows))
    assert shares[:2] == [1, 1]
    assert max(shares[2:]) < 0.6


def test_the_probe_evaluates_both_stages(library: Library, small: Tokenizer, tmp_path: Path) -> None:
    questions = [q for q in held_out_questions(library, 14) if q.family == "fact"]
    short = replace(recipe.TESTBED_RECIPES["testbed-dream"], causal_steps=1)
    trainer = Trainer(
        short,
        tmp_path,
        seed=0,
        device="cpu",
        compiled=False,
        configuration=configuration("testbed-dream"),
        curriculum=recipe.curriculum(library),
    )
    for step in (1, 2):
        trainer.step = step
        found = probe.probe(trainer, small, questions)
        assert found.keys() == {"fact"}
        assert all(0 <= share <= 1 for share in found.values())
        probe.record(trainer, small, questions, tmp_path / "e.jsonl")
    trainer.step = 1  # a run that went back repeats its evaluation
    probe.record(trainer, small, questions, tmp_path / "e.jsonl")
    assert [json.loads(line)["step"] for line in (tmp_path / "e.jsonl").read_text().splitlines()] == [1]


class _Recites(torch.nn.Module):
    """Stands for a model that predicts one fixed text with full certainty, position by position."""

    def __init__(self, text: list[int], start: int) -> None:
        super().__init__()
        self._text, self._start = text, start
        self.device = torch.device("cpu")

    def model(self, input_ids: torch.Tensor, **_: object) -> object:
        logits = torch.zeros(1, input_ids.shape[1], SIZE + 4)
        for place, token in enumerate(self._text):
            logits[0, self._start - 1 + place, token] = 9
        return type("Out", (), {"last_hidden_state": logits})

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


def test_denoising_reads_the_shifted_logits(library: Library, small: Tokenizer) -> None:
    question = held_out_questions(library, 1)[0]
    prompt = probe.prompt_ids(small, question.prompt)
    text = small.encode(question.answer).ids
    model = _Recites(text, len(prompt))
    said, first = probe.denoise(model, prompt, len(text), SIZE + 3)  # type: ignore[arg-type]
    assert said == first == text
    assert is_correct(question, small.decode(said))


def test_a_causal_model_writes_up_to_the_end_marker(small: Tokenizer) -> None:
    model = Qwen2ForCausalLM(shapes.build(configuration("testbed-qwen")).config).eval()
    said = probe.write_on(model, [1, 2, 3], 7, end=SIZE + 2)
    assert len(said) <= 7
    assert SIZE + 2 not in said
