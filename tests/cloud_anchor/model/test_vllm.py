"""A vLLM server: what it is asked, what is made of its canvas, and each of its failures."""

from __future__ import annotations

import importlib.util
import os
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cloud_anchor.anchor import main
from cloud_anchor.errors import (
    CheckpointError,
    NothingToSendError,
    RequestError,
    ServerBusyError,
    ServerError,
)
from cloud_anchor.model.checkpoint import load_model
from cloud_anchor.model.diffusion_gemma import Block, DiffusionGemma, GemmaRow
from cloud_anchor.model.served import open_server
from cloud_anchor.model.vllm import VllmServer, canvas_request
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.selection.select import Selection
from edge_runtime.runtime import EdgeRuntime
from tests.cloud_anchor.cloud_checkpoints import make_diffusion_gemma
from tests.cloud_anchor.fake_vllm import FakeVllm, canvas_of

PLAN = DenoiseConfig(canvas=16, total_steps=12, steps=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_diffusion_gemma(tmp_path_factory.mktemp("served") / "dg", weights=False)


def opened(fake: FakeVllm, folder: Path, edge: Path | None = None, **options: Any) -> Pipeline:
    return Pipeline.open(str(folder), edge=edge, backend=f"vllm:{fake.url}", **options)


def patient(url: str, sleep: Callable[[float], None] = lambda _: None) -> VllmServer:
    server = VllmServer(url)
    server.client = replace(server.client, sleep=sleep)
    return server


def test_a_request_is_what_vllm_takes() -> None:
    """Against the package's own classes and checks, where it is installed."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    from types import SimpleNamespace

    completion = pytest.importorskip("vllm.entrypoints.openai.completion.protocol", exc_type=ImportError)
    from vllm.exceptions import VLLMValidationError  # type: ignore[import-not-found]
    from vllm.utils.diffusion import validate_diffusion_sampling_params  # type: ignore[import-not-found]

    def checked(body: dict[str, Any]) -> Any:
        request = completion.CompletionRequest.model_validate(body)
        assert not request.model_extra, "fields that it does not know"
        # generation_config.json of the served model may state other defaults
        params = request.to_sampling_params(body["max_tokens"], {"temperature": 0.7, "top_k": 64})
        params._validate_diffusion(SimpleNamespace(is_diffusion=True))
        validate_diffusion_sampling_params(params, canvas_length=256, vocab_size=262_144)
        return params

    body = canvas_request("dg", [2, 105, 7], 5, 200)
    params = checked(body)
    extra = {"diffusion_max_steps": 5, "diffusion_read_only": 1, "diffusion_canvas_length": 200}
    assert params.extra_args == extra
    assert (params.max_tokens, params.ignore_eos, params.logprobs) == (200, True, 0)
    assert (params.temperature, params.top_p, params.top_k) == (1.0, 1.0, 0)
    for wrong in ({"diffusion_canvas_length": 257}, {"diffusion_max_steps": 0}):
        with pytest.raises(VLLMValidationError):
            checked(body | {"vllm_xargs": body["vllm_xargs"] | wrong})
    choice = completion.CompletionResponseChoice.model_fields
    assert {"token_ids", "logprobs"} <= choice.keys()
    assert "token_logprobs" in completion.CompletionLogProbs.model_fields


def write_for_vllm(folder: Path) -> Path:
    """A checkpoint that vLLM serves on a processor: sizes of its kernels, and the sampler's options."""
    names = ("hidden_size", "intermediate_size", "moe_intermediate_size", "global_head_dim", "sliding_window")
    sampler = {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1}
    stated = {"t_min": 0.4, "t_max": 0.8, "stability_threshold": 1, "confidence_threshold": 0.005}
    sizes = dict.fromkeys(names, 64) | {"head_dim": 32}
    return make_diffusion_gemma(folder, rows=320, sizes=sizes, sampler_config=sampler, **stated)


def test_a_real_server_predicts_what_is_predicted_here(edge_bundle: Path) -> None:
    """VLLM_SERVER: the address of a server, 0.32 or later, of a folder here that `write_for_vllm` made.

    Given the same noise it has the same tokens and log-probabilities. Prompt and canvas fit the sliding
    window; beyond its edge vLLM's canvas sees another part of the prompt than transformers'.
    """
    if "VLLM_SERVER" not in os.environ:
        pytest.skip("no vLLM server: set VLLM_SERVER")
    server = VllmServer(os.environ["VLLM_SERVER"])
    (served,) = server.models()
    model = load_model(str(served.root), device="cpu")
    assert isinstance(model, DiffusionGemma)
    draw = random.Random("real server")
    for length in range(1, 49):
        ids, noise = ([draw.randrange(300) for _ in range(count)] for count in (length, 16))
        body = canvas_request(served.id, ids, 1, 16)
        body["vllm_xargs"]["diffusion_seed_canvas"] = noise
        (choice,) = server.ask("/v1/completions", body, 60)["choices"]
        row = GemmaRow(tuple(ids), torch.Generator())
        row = replace(row, cache=model.encoded(row))
        expected = model.logits([row], [Block(torch.tensor(noise))])[0].log_softmax(-1).max(-1)
        assert choice["token_ids"] == expected.indices.tolist()
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected.values.tolist(), abs=1e-4)
    pipeline = Pipeline.open(str(served.root), edge=edge_bundle, backend=f"vllm:{server.url}", answers=4)
    config = DenoiseConfig(canvas=16, total_steps=12, steps=6)
    runtime = EdgeRuntime.open(edge_bundle, threads=1)
    filled = 0
    for prompt in (f"Question {n}" for n in range(8)):
        with suppress(NothingToSendError):  # some random answers end at once
            (result,) = pipeline.make([prompt], config)
            received = runtime.read(pipeline.payload(result), prompt)
            found = [token.id for token in runtime.fill(received)]
            assert all(found[at] == token for at, token in received.anchors.by_position.items())
            filled += len(received.anchors) > 0
    assert filled


def test_a_payload_is_made_of_the_servers_canvas(folder: Path, edge_bundle: Path, edge: EdgeRuntime) -> None:
    with FakeVllm() as fake:
        pipeline = opened(fake, folder, edge_bundle)
        (result,) = pipeline.make(["Hi"], PLAN, Selection("edge-aware"))
        (body,) = fake.requests
    ids = pipeline.form.ids("Hi")
    final, chances = canvas_of(list(ids), 3, 16, fake)
    assert body == canvas_request("dg", ids, 3, 16)
    assert result.run.predicted_answer == final[:9]
    assert result.run.confidence[:9] == pytest.approx(chances[:9])
    assert (result.run.steps, result.run.total_steps, result.run.draft_ends) == (3, 12, True)
    received = edge.read(pipeline.payload(result), "Hi")
    assert [token.id for token in edge.fill(received)] == result.draft


def test_the_command_writes_a_payload(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "payload.bin"
    with FakeVllm(key="secret") as fake:
        command = ["--model", str(folder), "--backend", f"vllm:{fake.url}", "--prompt", "Hi"]
        command += ["--select", "confidence", "-o", str(out)]
        assert main(command) == 5
        monkeypatch.setenv("CLOUD_ANCHOR_BACKEND_KEY", "secret")
        assert main([*command, "--json"]) == 0
        assert [body["vllm_xargs"]["diffusion_max_steps"] for body in fake.requests] == [1]
    assert out.stat().st_size > 8
    assert main(command) == 5, "the server is gone"


def test_prompts_are_asked_for_side_by_side(folder: Path) -> None:
    with FakeVllm(step_seconds=0.01) as fake:
        pipeline = opened(fake, folder, answers=4)
        for _ in range(3):
            results = pipeline.make([f"Question {n}" for n in range(8)], PLAN, Selection("confidence"))
            assert [r.run.predicted_answer for r in results] == [
                canvas_of(list(r.run.prompt_ids), 3, 16, fake)[0][:9] for r in results
            ]
        assert fake.most_running == 4


@pytest.mark.parametrize(
    ("fault", "kind", "asked"),
    [
        ("busy", ServerBusyError, 3),
        ("error", ServerError, 1),
        ("drop", ServerError, 1),
        ("hang", ServerError, 1),
        ("garbage", ServerError, 1),
        ("wrong", ServerError, 1),
    ],
)
def test_failures(fault: str, kind: type[Exception], asked: int) -> None:
    """Each is one error of ours, and only what was not begun is asked again."""
    with FakeVllm(fault=lambda: fault) as fake:
        server = patient(fake.url)
        with pytest.raises(kind) as failed:
            server.canvas("dg", [1], 2, 16, timeout=0.5 if fault == "hang" else 60)
        assert failed.type is kind
        assert "\x1b" not in str(failed.value), "control characters of the server's words"
        assert len(fake.requests) == asked
        assert fake.runs == (0 if fault == "busy" else 1)
        fake.fault = lambda: None
        assert len(server.canvas("dg", [1], 2, 16).ids) == 16


def test_a_busy_server_is_asked_again() -> None:
    with FakeVllm(faults=deque(["busy", "busy"])) as fake:
        waits: list[float] = []
        server = patient(fake.url, waits.append)
        assert len(server.canvas("dg", [1], 2, 16).ids) == 16
        assert (len(fake.requests), fake.runs, len(waits)) == (3, 1, 2)


def test_no_server() -> None:
    with FakeVllm() as fake:
        url = fake.url
    with pytest.raises(ServerError):
        VllmServer(url).models()


def test_a_canvas_cut_off_leaves_the_end_open(folder: Path) -> None:
    with FakeVllm(length=40) as fake:
        pipeline = opened(fake, folder)
        (run,) = [r.run for r in pipeline.make(["Hi"], PLAN, Selection("confidence"))]
        assert (run.predicted_length, run.draft_ends) == (16, False)
        fake.faults.append("short")
        (run,) = [r.run for r in pipeline.make(["Hi"], PLAN, Selection("confidence"))]
        assert (run.predicted_length, run.draft_ends) == (8, False)


def test_a_token_that_no_answer_has_cuts_the_draft_off(folder: Path) -> None:
    with FakeVllm(words=308, length=16) as fake:
        pipeline = opened(fake, folder)
        runs = [r.run for r in pipeline.make([f"Q{n}" for n in range(40)], PLAN, Selection("confidence"))]
        contract = pipeline.form.contract
        assert all(contract.is_ordinary(id_) for run in runs for id_ in run.predicted_answer)
        assert any(run.predicted_length < 16 and not run.draft_ends for run in runs)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("canvas", 17), ("total_steps", 20), ("order", "entropy")),
        *(("commit", 0.9), ("temperature", 0.4), ("stop", "plateau")),
    ],
)
def test_options_of_samplers_here_are_refused(folder: Path, field: str, value: Any) -> None:
    with FakeVllm() as fake:
        pipeline = opened(fake, folder)
        with pytest.raises(RequestError):
            pipeline.make(["Hi"], replace(PLAN, **{field: value}), Selection("confidence"))
        for committed in (Selection("paper"), Selection()):  # without an edge model that is the default
            with pytest.raises(RequestError):
                pipeline.make(["Hi"], PLAN, committed)
        assert not fake.requests


def test_what_cannot_be_opened(folder: Path, dream_folder: Path) -> None:
    with FakeVllm() as fake:
        for address in (fake.url, "vllm:ftp://host"):
            with pytest.raises(RequestError):
                open_server(address, str(folder))
        with pytest.raises(CheckpointError):
            open_server(f"vllm:{fake.url}", str(dream_folder))
    with FakeVllm(key="k") as fake, pytest.raises(ServerError):
        open_server(f"vllm:{fake.url}", str(folder))
