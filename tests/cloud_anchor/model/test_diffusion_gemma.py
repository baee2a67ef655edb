"""DiffusionGemma: every canvas as transformers' `generate` has it, alone and in a batch."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

pytest.importorskip("transformers.models.diffusion_gemma")

from cloud_anchor.anchor import main
from cloud_anchor.errors import CheckpointError, RequestError
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.diffusion_gemma import Block, DiffusionGemma, GemmaRow, gemma_sizes, within_entropy
from cloud_anchor.model.memory import MemoryNeeds
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.denoised import OPEN
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import Selection, committed
from cloud_anchor.selection.translate import TranslatedRun
from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import EdgeRuntime
from tests.cloud_anchor.cloud_checkpoints import make_diffusion_gemma

BLOCK, BLOCKS, STEPS, COUNT = 8, 2, 6, 50
CONFIG = DenoiseConfig(canvas=BLOCK * BLOCKS, total_steps=STEPS * BLOCKS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gemma") / "model"
    return make_diffusion_gemma(made, canvas=BLOCK, max_denoising_steps=STEPS, max_new_tokens=CONFIG.canvas)


def opened(folder: Path) -> DiffusionGemma:
    model = load_model(str(folder), device="cpu")
    assert isinstance(model, DiffusionGemma)
    return model


@pytest.fixture(scope="module")
def model(folder: Path) -> DiffusionGemma:
    return opened(folder)


def prompts(count: int = COUNT) -> list[list[int]]:
    """Of 1 to 40 tokens: shorter and longer than the window of the sliding layers, which is 12."""
    draw = random.Random("gemma prompts")
    return [[draw.randrange(300) for _ in range(draw.randint(1, 40))] for _ in range(count)]


@contextmanager
def canvases(model: DiffusionGemma) -> Iterator[list[list[list[int]]]]:
    """Of each pass of the decoder, the canvases that it is given."""
    seen: list[list[list[int]]] = []
    forward = model.net.forward

    def spy(*args: Any, **options: Any) -> Any:
        seen.append(options["decoder_input_ids"].tolist())
        return forward(*args, **options)

    with patch.object(model.net, "forward", spy):
        yield seen


class Drafts:
    """A streamer of `generate`: the drafts of each step of each block, and the noise that a batch drew."""

    def __init__(self) -> None:
        self.drafts: list[list[torch.Tensor]] = []
        self.noise: list[list[torch.Tensor]] = []

    def put(self, value: torch.Tensor) -> None:
        """Called with the prompts, and with each block when it is done."""
        self.drafts.append([])
        self.noise.append([])

    def put_draft(self, value: torch.Tensor) -> None:
        self.drafts[-1].append(value.clone())

    def end(self) -> None: ...


def greedy() -> AbstractContextManager[Any]:
    """`generate` takes the likeliest token in place of a drawn one."""
    return patch.object(torch, "multinomial", lambda shares, num_samples: shares.argmax(-1, True))


def published(model: DiffusionGemma, prompt: list[int], *, drawn: bool) -> tuple[Any, Any, list[int]]:
    """What `generate` gives the decoder, its drafts, and its answer up to the end."""
    streamer = Drafts()
    torch.manual_seed(CONFIG.seed)
    with canvases(model) as seen, nullcontext() if drawn else greedy():
        ids = model.net.generate(torch.tensor([prompt]), streamer=streamer).sequences[0].tolist()
    drafts = [draft[0].tolist() for block in streamer.drafts for draft in block]
    return seen, drafts, up_to_end(model, ids[len(prompt) :])


def ours(model: DiffusionGemma, prompt: list[int], config: DenoiseConfig) -> tuple[Any, Any, list[int]]:
    answers, drafts = model.start([prompt], config), []
    with canvases(model) as seen:
        while not answers.done([config.total_steps]):
            answers.advance()
            drafts.append(drafted(answers.rows[0]))
    (run,) = answers.results(answers.done([config.total_steps]))
    return seen, drafts, up_to_end(model, run.ids)


def drafted(row: GemmaRow) -> list[int]:
    """The draft of a row's last step."""
    block = row.block
    return (
        list(row.written.ids[-BLOCK:]) if block is None or block.last is None else block.last.tokens.tolist()
    )


def up_to_end(model: DiffusionGemma, ids: Sequence[int]) -> list[int]:
    size = next((at + 1 for at, token in enumerate(ids) if token in model.eos_ids), len(ids))
    return list(ids[:size])


def test_what_is_accepted_is_within_the_bound() -> None:
    entropy = torch.tensor([0.5, 9.0, 0.1, 0.2, 0.4])  # lowest first: 0.1, 0.2, 0.4, 0.5, 9.0
    for bound, expected in ((0.0, [2]), (0.1, [2, 3]), (0.3, [2, 3, 4]), (0.71, [0, 2, 3, 4])):
        found = within_entropy(entropy, bound + 1e-6)
        assert found.nonzero()[:, 0].tolist() == expected
    assert within_entropy(entropy, 2.0).all()


def test_every_canvas_of_single_prompts_equals_transformers(model: DiffusionGemma) -> None:
    """Noise, what is accepted, what is taken back, each draft and the answer: 50 prompts, greedy."""
    ended = 0
    for prompt in prompts():
        expected = published(model, prompt, drawn=False)
        assert ours(model, prompt, CONFIG) == expected
        ended += expected[2][-1] in model.eos_ids
    assert 5 < ended < 45, "some end in the first block, some in none"


def test_drawn_answers_equal_transformers(model: DiffusionGemma) -> None:
    """With the same seed and nothing of `generate` replaced."""
    for prompt in prompts(10):
        assert ours(model, prompt, replace(CONFIG, temperature=1.0)) == published(model, prompt, drawn=True)


def unsteady(folder: Path) -> tuple[DiffusionGemma, DenoiseConfig]:
    """A model with bounds so wide that random predictions become stable, and the options for it."""
    from transformers.models.diffusion_gemma import generation_diffusion_gemma as published_code

    model = opened(folder)
    generation = model.net.generation_config
    generation.sampler_config = published_code.EntropyBoundSamplerConfig(entropy_bound=30.0)
    generation.confidence_threshold = 3.0
    model.sampler = type(model.sampler).of(generation)
    return model, CONFIG


def published_batch(model: DiffusionGemma, rows: Sequence[list[int]]) -> tuple[Drafts, list[list[int]]]:
    """What `generate` draws and drafts of prompts given together, and its answers up to the end."""
    from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSampler

    streamer, longest = Drafts(), max(map(len, rows))
    initialize = EntropyBoundSampler.initialize_canvas

    def drawn(self: Any, batch_size: int, device: torch.device) -> torch.Tensor:
        canvas: torch.Tensor = initialize(self, batch_size, device)
        streamer.noise[-1].append(canvas.clone())
        return canvas

    torch.manual_seed(CONFIG.seed)
    with greedy(), patch.object(EntropyBoundSampler, "initialize_canvas", drawn):
        ids = model.net.generate(
            torch.tensor([[0] * (longest - len(row)) + row for row in rows]),
            attention_mask=torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows]),
            streamer=streamer,
        ).sequences[:, longest:]
    return streamer, [up_to_end(model, row) for row in ids.tolist()]


def steps_as_in_a_batch(model: DiffusionGemma, rows: Sequence[list[int]], config: DenoiseConfig) -> set[int]:
    """The numbers of steps of the blocks of these rows, each draft and answer of which is the published one.

    `generate` draws the noise of a batch at once: each row here is given its part of that.
    """
    theirs, expected = published_batch(model, rows)
    place = {tuple(row): at for at, row in enumerate(rows)}
    assert len(place) == len(rows)

    def part(of: list[list[torch.Tensor]], row: GemmaRow, at: int) -> torch.Tensor:
        return of[len(row.written.ids) // BLOCK][at][place[row.prompt]]

    def noise(row: GemmaRow, size: int) -> torch.Tensor:
        return part(theirs.noise, row, 0 if row.block is None else row.block.steps + 1)

    found: dict[tuple[int, ...], list[int]] = {}
    steps: set[int] = set()
    answers = model.start(rows, config)
    with patch.object(model, "noise", noise):
        while answers.rows:
            before = answers.rows
            answers.advance()
            for old, row in zip(before, answers.rows, strict=True):
                at = 0 if old.block is None else old.block.steps
                assert drafted(row) == part(theirs.drafts, old, at).tolist()
                steps |= {at + 1} if row.block is None else set()
            done = answers.done([config.total_steps] * len(answers.rows))
            found |= {answers.rows[at].prompt: up_to_end(model, answers.rows[at].written.ids) for at in done}
            answers = answers.select_rows([at for at in range(len(answers.rows)) if at not in done])
    assert [found[tuple(row)] for row in rows] == expected
    return steps


@pytest.mark.parametrize("early", [False, True], ids=["all steps", "blocks that end early"])
def test_batches_equal_those_of_transformers(folder: Path, early: bool) -> None:
    """50 prompts, ten together there and here, of lengths from 1 to 40: every draft and answer, greedy."""
    model, config = unsteady(folder) if early else (opened(folder), CONFIG)
    rows = prompts()
    steps = [steps_as_in_a_batch(model, rows[at : at + 10], config) for at in range(0, COUNT, 10)]
    assert (min(set().union(*steps)) < STEPS) is early


def test_the_cache_is_exact(model: DiffusionGemma) -> None:
    """Each block's logits are those with a cache that is made of the whole text at once."""
    encoded, compared = model.encoded, 0

    def anew(row: GemmaRow) -> Any:
        nonlocal compared
        kept, whole = encoded(row), encoded(replace(row, cache=None))
        block = Block(model.noise(replace(row, generator=torch.Generator().manual_seed(1)), BLOCK))
        with_kept, with_whole = (
            model.logits([replace(row, cache=cache)], [block]) for cache in (kept, whole)
        )
        torch.testing.assert_close(with_kept, with_whole, atol=1e-4, rtol=1e-4)
        compared += row.cache is not None
        return whole

    alone = [denoise(model, [prompt], CONFIG)[0] for prompt in prompts(24)]
    with patch.object(model, "encoded", anew):
        again = denoise(model, prompts(24), CONFIG, batch=7)
    assert [(run.ids, run.when) for run in again] == [(run.ids, run.when) for run in alone]
    assert compared > 5, "second blocks"


def test_what_is_accepted_may_be_taken_back(model: DiffusionGemma) -> None:
    taken_back = 0
    for prompt in prompts(8):
        answers = model.start([prompt], CONFIG)
        before: dict[int, int] = {}
        for _ in range(STEPS - 1):
            answers.advance()
            (run,) = answers.results({0: "steps"})
            assert set(run.ids) == {OPEN}, "nothing is committed before its block is done"
            now = {at: run.predicted[at] for at in run.accepted}
            taken_back += any(now.get(at, token) != token or at not in now for at, token in before.items())
            before = now
    assert taken_back > 3


def test_a_draft_breaks_off_at_the_open_block(model: DiffusionGemma) -> None:
    found = denoise(model, prompts(), replace(CONFIG, steps=STEPS - 1), batch=10)
    open_ = [run for run in found if run.predicted_length == BLOCK]
    ended = [run for run in found if run.predicted_length < BLOCK]
    assert open_
    assert ended
    assert not any(run.draft_ends for run in open_)
    assert all(run.draft_ends for run in ended)
    assert all(run.length is None for run in found)


def test_a_finished_answer_is_committed(model: DiffusionGemma) -> None:
    for run in denoise(model, prompts(12), CONFIG):
        assert run.stopped_by in ("complete", "finished")
        assert run.steps <= CONFIG.total_steps
        assert run.length is not None
        assert run.ids[: run.length] == run.predicted_answer
        assert run.accepted == frozenset()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"order": "entropy"}, "order"),
        ({"commit": "quota"}, "commit"),
        ({"temperature": 0.4}, "temperature"),
        ({"top_p": 0.5}, "top-p"),
        ({"stop": "prophet"}, "stop"),
        ({"total_steps": 1}, "total steps"),
        ({"canvas": 600}, ".* 512"),
    ],
)
def test_options_of_other_samplers_are_refused(
    model: DiffusionGemma, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(RequestError, match=f"^{named}"):
        denoise(model, [[1]], replace(CONFIG, **change))


@pytest.mark.parametrize("select", ["paper", "confidence", "edge-aware"])
def test_payloads_of_a_checkpoint_are_filled(
    folder: Path, edge_bundle: Path, edge: EdgeRuntime, tmp_path: Path, select: str
) -> None:
    out = tmp_path / "payload.bin"
    command = ["--model", str(folder), "--edge", str(edge_bundle), "--prompt", "Hi", "--device", "cpu"]
    command += ["--select", select, "--steps", "9", "--confidence", "-o", str(out)]
    assert main(command) == 0
    received = edge.read(out.read_bytes(), "Hi")
    filled = [token.id for token in edge.fill(received, FillOptions(max_tokens=24))]
    assert all(filled[at] == token for at, token in received.anchors.by_position.items())
    (result,) = Pipeline.open(str(folder), edge=edge_bundle, device="cpu").make(
        ["Hi"], replace(CONFIG, steps=9), Selection(select)
    )
    assert received.anchors == result.anchors
    assert received.doubt is not None


def test_the_memory_is_estimated_before_anything_is_loaded(model: DiffusionGemma, folder: Path) -> None:
    settings = json.loads((folder / "config.json").read_text())
    sizes = gemma_sizes(settings, "here")
    assert model.parameters <= sizes.parameters, "its part for images is not kept"
    needs = MemoryNeeds.of(sizes, torch.float32, 2, 16)
    assert needs.weights == 4 * sizes.parameters


def test_broken_checkpoints(folder: Path, tmp_path: Path) -> None:
    for name in folder.iterdir():
        (tmp_path / name.name).write_bytes(name.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError):
        load_model(str(tmp_path), device="cpu")
    settings = json.loads((folder / "config.json").read_text())
    settings["text_config"]["num_hidden_layers"] = "many"
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError):
        load_model(str(tmp_path), device="cpu")


def test_what_is_accepted_stays_so_in_another_vocabulary(folder: Path, other_edge_bundle: Path) -> None:
    pipeline = Pipeline.open(str(folder), edge=other_edge_bundle, device="cpu")
    assert pipeline.translation is not None
    config = replace(CONFIG, steps=STEPS - 1)
    results = pipeline.make(
        [f"Question {n}" for n in range(6)], config, Selection("confidence", EdgeAwareConfig(0))
    )
    assert any(result.run.accepted for result in results)
    for result in results:
        assert isinstance(result.run, TranslatedRun)
        assert not result.run.accepted or result.run.original.accepted
        sent = committed(result.run, result.anchors.contract).by_position
        assert sent.keys() == result.run.accepted
