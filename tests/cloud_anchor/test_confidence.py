"""How sure the diffusion model is, from the pass that commits a token to the device's doubt."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cloud_anchor.anchor import main as anchor
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.select import Selection
from edge_runtime import fill as fill_command
from edge_runtime.bundle.manifest import MANIFEST, Manifest
from edge_runtime.chat import Chat
from edge_runtime.client.client import Client as EdgeClient
from edge_runtime.cloud import CloudQuestion
from edge_runtime.endpoint.app import _report
from edge_runtime.errors import BundleSchemaError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from lab.experiments.doubt import keep
from lab.runs import denoise_steps
from payload import confidence_level, doubt, peek
from tests.cloud_anchor.serve.service_runner import PLAN, Client

PROMPT = "Where does the river end?"
CONFIG = DenoiseConfig(canvas=24, total_steps=16, steps=6)


@pytest.mark.parametrize("order", ["confidence", "entropy"])
def test_certainty_is_the_probability_in_the_pass_that_commits(pipeline: Pipeline, order: str) -> None:
    model = pipeline.model
    prompts = [pipeline.form.ids(PROMPT), pipeline.form.ids("Why?")]
    config = replace(CONFIG, order=order, temperature=0.5, seed=3, commit="quota")
    expected = torch.zeros(len(prompts), config.canvas)
    before = torch.full((len(prompts), config.canvas), model.mask_id)
    for state in denoise_steps(model, prompts, config):
        assert state.last is not None
        chances = torch.zeros(*before.shape, model.without_unusable(state.last.logits).shape[-1])
        chances[before == model.mask_id] = model.without_unusable(state.last.logits).float().softmax(-1)
        new = (before == model.mask_id) & (state.ids != model.mask_id)
        expected[new] = chances.gather(-1, state.ids[..., None])[..., 0][new]
        before = state.ids.clone()
    for row, run in enumerate(state.results()):
        committed = [bool(when) for when in run.when]
        assert any(committed)
        assert not all(committed)
        for position, done in enumerate(committed):
            wanted = float(expected[row, position]) if done else run.confidence[position]
            assert run.certainty[position] == pytest.approx(wanted, abs=1e-5)


def test_certainty_goes_with_its_row(pipeline: Pipeline) -> None:
    prompts = [pipeline.form.ids(text) for text in (PROMPT, "Why?", "How many loaves?")]
    config = replace(CONFIG, steps=16, commit=0.02, stop="complete")
    together = denoise(pipeline.model, prompts, config, batch=2)
    for prompt, run in zip(prompts, together, strict=True):
        (alone,) = denoise(pipeline.model, [prompt], config)
        assert run.certainty == pytest.approx(alone.certainty, abs=1e-4)


@pytest.mark.parametrize("select", ["edge-aware", "paper", "confidence"])
@pytest.mark.parametrize("codec", ["compact", "predictive", "template-gzip"])
def test_a_payload_carries_it_unless_it_is_left_out(
    pipeline: Pipeline, edge: EdgeRuntime, select: str, codec: str
) -> None:
    (made,) = pipeline.make([PROMPT], CONFIG, Selection(select))
    plain, sure = pipeline.payload(made, codec, confidence=False), pipeline.payload(made, codec)
    count = len(made.anchors)
    assert count
    levels = [confidence_level(made.run.certainty[position]) for position in made.anchors.positions]
    assert peek(plain).extras.confidence == ()
    assert list(peek(sure).extras.confidence) == levels
    assert len(sure) - len(plain) in (1 + (count + 3) // 4, 2 + (count + 3) // 4)
    assert edge.fill(edge.read(plain, PROMPT)).doubt is None
    answer = edge.fill(edge.read(sure, PROMPT))
    assert [t.id for t in answer] == [t.id for t in edge.fill(edge.read(plain, PROMPT))]
    assert answer.doubt == doubt(levels)


def test_a_text_that_no_run_has_made_has_no_doubt_to_tell(pipeline: Pipeline) -> None:
    (made,) = pipeline.make([PROMPT], CONFIG)
    text = replace(made, run=replace(made.run, certainty=[]))
    assert peek(pipeline.payload(text)).extras.confidence == ()


def test_a_budget_counts_it(pipeline: Pipeline) -> None:
    whole = Selection(max_bytes=1000)
    (made,) = pipeline.make([PROMPT], CONFIG, whole)
    budget = len(pipeline.payload(made)) - 4
    (cut,) = pipeline.make([PROMPT], CONFIG, replace(whole, max_bytes=budget))
    assert len(pipeline.payload(cut)) <= budget


def test_a_run_in_another_vocabulary(across: Pipeline) -> None:
    (made,) = across.make([PROMPT], CONFIG)
    assert len(made.run.certainty) == made.run.canvas
    assert all(0 <= sure <= 1 for sure in made.run.certainty)
    levels = peek(across.payload(made)).extras.confidence
    assert len(levels) == len(made.anchors) > 0


def test_the_service_sends_it_unless_asked_not_to(
    client: Client, pipeline: Pipeline, edge: EdgeRuntime
) -> None:
    (made,) = pipeline.make([PROMPT], PLAN)
    for with_it in ({}, {"confidence": True}):
        assert client.anchors(prompt=PROMPT, **with_it).body == pipeline.payload(made)
    assert client.anchors(prompt=PROMPT, confidence=False).body == pipeline.payload(made, confidence=False)
    assert client.anchors(prompt=PROMPT, confidence="yes").code == "invalid_request"
    asked = EdgeClient(client.url, fields={"fraction": 0.5})
    for stream in (False, True):
        answer = CloudQuestion(asked, edge, PROMPT, stream=stream).answer()
        list(answer)
        assert answer.doubt is not None
        assert 0.025 <= answer.doubt <= 0.75


def test_the_command_lines_show_it(
    dream_folder: Path,
    edge_bundle: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGE_MODEL", str(edge_bundle))
    made = ["--model", str(dream_folder), "--edge", str(edge_bundle), "--device", "cpu", "--prompt", PROMPT]
    made += ["--canvas", "24", "--total-steps", "16", "--steps", "6"]
    for options in (["--no-confidence"], []):
        file = str(tmp_path / "payload.bin")
        assert anchor([*made, *options, "-o", file]) == 0
        capfd.readouterr()
        assert fill_command.main([file, "--threads", "1"]) == 0
        (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("doubt")]
        assert fill_command.main([file, "--threads", "1", "--json"]) == 0
        found = json.loads(capfd.readouterr().out)["doubt"]
        if not options:
            assert line.startswith(f"doubt      {found:.2f} (")
        else:
            assert found is None
            assert line.startswith("doubt      unknown")


@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_words_precede_an_answer_in_doubt(
    pipeline: Pipeline,
    edge_bundle: Path,
    client: Client,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    limit: float,
) -> None:
    bundle, file = Path(shutil.copytree(edge_bundle, tmp_path / "bundle")), tmp_path / "payload.bin"
    keep(bundle, not_sure_from=limit)
    (made,) = pipeline.make([PROMPT], CONFIG)
    file.write_bytes(pipeline.payload(made, embed_prompt=True))
    asked = ["--url", client.url, "--prompt", PROMPT]
    for source in ([str(file)], [*asked, "--no-stream"], [*asked, "--stream"]):
        source += ["--edge", str(bundle), "--threads", "1"]
        assert fill_command.main(source) == 0
        shown = capfd.readouterr().out
        assert fill_command.main([*source, "--json"]) == 0
        told = json.loads(capfd.readouterr().out)
        assert shown.removesuffix("\n") == "The cloud is not sure: " * told["not_sure"] + told["text"]
        assert (told["not_sure"], told["alone"]) == (limit == 0, False)
    edge, cloud = EdgeRuntime.open(bundle, threads=1), EdgeClient(client.url)
    Chat(EdgeSession(edge), cloud, mode="prefer_in_cloud", max_tokens=8).do(PROMPT)
    assert capfd.readouterr().out.startswith("The cloud is not sure: ") == (limit == 0)
    report = _report(CloudQuestion(cloud, edge, PROMPT, stream=False).answer())
    assert (report["not_sure"], report["alone"]) == (limit == 0, False)


@pytest.mark.parametrize(
    ("limit", "sent", "code"), [(1.0, True, 0), (0.0, True, 6), (None, True, 2), (1.0, False, 6)]
)
def test_an_answer_is_declined_from_the_bundle_s_limit_on_and_where_its_doubt_is_unknown(
    pipeline: Pipeline,
    edge_bundle: Path,
    client: Client,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    limit: float | None,
    sent: bool,
    code: int,
) -> None:
    bundle, file = Path(shutil.copytree(edge_bundle, tmp_path / "bundle")), tmp_path / "payload.bin"
    if limit is not None:
        keep(bundle, not_sure_from=limit)
    (made,) = pipeline.make([PROMPT], CONFIG)
    file.write_bytes(pipeline.payload(made, embed_prompt=True, confidence=sent))
    sources = [[str(file)], [str(file), "--json"], *([["--url", client.url, "--prompt", PROMPT]] * sent)]
    for source in sources:
        assert fill_command.main([*source, "--edge", str(bundle), "--threads", "1", "--decline"]) == code
        said = capfd.readouterr()
        if code == 6:
            assert "fill: declined; doubt" in said.err
            assert json.loads(said.out)["declined"] if "--json" in source else not said.out
        elif code == 0:
            assert said.out.strip()


@pytest.mark.parametrize("limit", [-0.1, 1.1, "much", True])
def test_a_bundle_s_limit_is_a_probability(edge_bundle: Path, limit: object) -> None:
    data = json.loads((edge_bundle / MANIFEST).read_text()) | {"not_sure_from": limit}
    with pytest.raises(BundleSchemaError, match="not_sure_from"):
        Manifest.from_json(data)
