"""The whole cloud side with an edge bundle: what is sent makes the device write what was intended."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_anchor.anchor import main
from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import Selection
from cloud_anchor.selection.translate import TranslatedRun
from edge_runtime.errors import ContextError
from edge_runtime.runtime import EdgeRuntime
from payload import Codec

PROMPTS = ["Where does the river end?", "How many loaves did she sell in the morning?", "Why?"]
CONFIG = DenoiseConfig(canvas=24, total_steps=16, steps=6)
EVERY_PREDICTION = Selection("edge-aware", EdgeAwareConfig(threshold=0))


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.9])
def test_the_device_writes_what_the_cloud_intended(
    pipeline: Pipeline, edge: EdgeRuntime, threshold: float
) -> None:
    selection = Selection(config=EdgeAwareConfig(threshold, 0.05, 20))
    for made in pipeline.make(PROMPTS, CONFIG, selection):
        request = edge.read(pipeline.payload(made, "template-gzip", embed_prompt=True))
        assert request.prompt_ids == list(made.run.prompt_ids)
        tokens = list(edge.fill(request))
        assert made.walk is not None
        assert [token.id for token in tokens] == made.walk.text
        predictive = edge.read(pipeline.payload(made, "predictive", embed_prompt=True))
        assert predictive.anchors == edge.read(pipeline.payload(made, embed_prompt=True)).anchors
        assert [token.id for token in edge.fill(predictive)] == made.walk.text


def test_portable_anchors_are_few_and_for_the_portable_graph(pipeline: Pipeline, edge: EdgeRuntime) -> None:
    selection = Selection(config=EdgeAwareConfig(0.2))
    few, many = (pipeline.make(PROMPTS, CONFIG, selection, codec) for codec in ("portable", "compact"))
    assert sum(len(made.anchors) for made in few) <= sum(len(made.anchors) for made in many)
    assert pipeline.default_codec(EVERY_PREDICTION) is Codec.PORTABLE
    assert pipeline.default_codec(Selection("paper")) is Codec.COMPACT
    for made in few:
        sizes = [len(pipeline.payload(made, codec)) for codec in ("portable", "predictive", "auto")]
        assert min(sizes) == sizes[-1]
        request = edge.read(pipeline.payload(made, "portable"), made.prompt)
        assert request.portable
        assert [token.id for token in edge.fill(request)] == made.draft
        with pytest.raises(RequestError, match="selected for it"):
            pipeline.payload(made, "compact")


def test_a_span_beyond_the_context_is_refused(pipeline: Pipeline) -> None:
    assert pipeline.scorer is not None
    context = pipeline.scorer.context
    with pytest.raises(ContextError, match=str(context)):
        pipeline.scorer.score([5] * context, [6, 7, 8])


def test_selections_and_the_dial_between_bytes_and_fidelity(pipeline: Pipeline) -> None:
    runs = [made.run for made in pipeline.make(PROMPTS, CONFIG)]
    paper = pipeline.select(PROMPTS, runs, Selection("paper"))
    committed = [sum(token != run.mask_id for token in run.answer) for run in runs]
    assert [len(made.anchors) for made in paper] == committed
    everything = pipeline.select(PROMPTS, runs, Selection("confidence", EdgeAwareConfig(threshold=0)))
    assert [list(made.anchors.ids) for made in everything] == [run.predicted_answer for run in runs]
    told = [
        sum(
            len(made.anchors)
            for made in pipeline.select(PROMPTS, runs, Selection(config=EdgeAwareConfig(t, 0.0, 50)))
        )
        for t in (0.0, 1.0)
    ]
    assert told[0] > told[1]


def test_a_byte_budget_holds_for_what_is_written(
    dream_folder: Path,
    edge_bundle: Path,
    edge: EdgeRuntime,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "payload.bin"
    base = ["--model", str(dream_folder), "--edge", str(edge_bundle), "--device", "cpu", "--canvas", "48"]
    base += ["--total-steps", "16", "--steps", "4", "--prompt", "Why?", "--json", "-o", str(file)]
    base += ["--codec", "template-gzip"]
    assert main([*base, "--max-bytes", "70"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert file.stat().st_size <= 70
    assert len(report["anchors"]) > 0
    tokens = edge.fill(edge.read(file.read_bytes()))
    text = edge.bundle.tokenizer.decode([t.id for t in tokens])
    assert report["edge"]["text"] == text, "what the device writes with the tokens that are left"
    assert main(base) == 0
    whole = json.loads(capsys.readouterr().out)
    assert len(whole["anchors"]) > len(report["anchors"])
    assert whole["edge"]["passes"] >= 1
    assert main([*base, "--max-bytes", "5"]) == 2
    assert main([*base, "--max-bytes", "60", "--select", "paper"]) == 2


def test_edge_aware_needs_an_edge(dream_folder: Path) -> None:
    pipeline = Pipeline.open(str(dream_folder), device="cpu")
    (made,) = pipeline.make(PROMPTS[:1], CONFIG)
    assert made.walk is None, "the paper's selection is what is left"
    with pytest.raises(RequestError):
        pipeline.select(PROMPTS[:1], [made.run], Selection("edge-aware"))
    with pytest.raises(RequestError):
        Selection("best")


@pytest.mark.parametrize("codec", ["compact", "template-gzip", "predictive", "portable", "auto"])
def test_a_device_with_another_vocabulary_writes_the_same_text(
    across: Pipeline, other_edge: EdgeRuntime, codec: str
) -> None:
    cloud = across.model_form
    for made in across.make(PROMPTS, CONFIG, EVERY_PREDICTION, codec):
        assert isinstance(made.run, TranslatedRun)
        assert made.anchors.contract == across.form.contract == other_edge.bundle.contract
        assert list(made.run.original.prompt_ids) == cloud.ids(made.prompt)
        request = other_edge.read(across.payload(made, codec, embed_prompt=True))
        assert request.prompt_ids == list(made.run.prompt_ids)
        ids = [token.id for token in other_edge.fill(request)]
        draft = made.run.original.predicted_answer
        assert other_edge.bundle.tokenizer.decode(ids) == cloud.tokenizer.decode(draft) != ""
        assert ids == made.run.predicted_answer != draft


def test_every_selection_in_another_vocabulary(across: Pipeline, other_edge: EdgeRuntime) -> None:
    for selection in (
        Selection("paper"),
        Selection("confidence", EdgeAwareConfig(threshold=0.1)),
        Selection(),
    ):
        for made in across.make(PROMPTS, CONFIG, selection):
            request = other_edge.read(across.payload(made, embed_prompt=True))
            filled = {token.position: token.id for token in other_edge.fill(request)}
            assert {p: filled[p] for p in made.anchors.positions} == made.anchors.by_position
    runs = [made.run for made in across.make(PROMPTS, CONFIG)]
    assert all(isinstance(run, TranslatedRun) for run in runs)
    again = across.select(PROMPTS, runs, Selection())
    assert [made.run for made in again] == runs, "translated once"


@pytest.mark.parametrize("codec", ["compact", "predictive", "portable"])
def test_a_byte_budget_in_another_vocabulary(across: Pipeline, other_edge: EdgeRuntime, codec: str) -> None:
    (whole,) = across.make(PROMPTS[:1], CONFIG, EVERY_PREDICTION, codec)
    most = len(across.payload(whole, codec)) - 3
    (made,) = across.make(PROMPTS[:1], CONFIG, replace(EVERY_PREDICTION, max_bytes=most), codec)
    data = across.payload(made, codec)
    assert len(data) <= most
    assert 0 < len(made.anchors) < len(whole.anchors)
    assert made.walk is not None
    ids = [token.id for token in other_edge.fill(other_edge.read(data, PROMPTS[0]))]
    assert ids == made.walk.text


def test_a_diffusion_model_with_markers_of_its_own(
    dream_folder: Path, other_edge_bundle: Path, other_edge: EdgeRuntime, tmp_path: Path
) -> None:
    """LLaDA's form: other names of the special tokens, and a chat template of headers."""
    folder = tmp_path / "llada-form"
    shutil.copytree(dream_folder, folder)
    tokenizer = (folder / "tokenizer.json").read_text("utf-8")
    names = {"endoftext": "eot_id", "im_start": "start_header_id", "im_end": "end_header_id"}
    for old, new in names.items():
        tokenizer = tokenizer.replace(f"<|{old}|>", f"<|{new}|>")
    (folder / "tokenizer.json").write_text(tokenizer, "utf-8")
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    settings["chat_template"] = (
        "{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' "
        "+ message['content'] + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    found = Pipeline.open(str(folder), edge=other_edge_bundle, device="cpu")
    assert found.model_form.contract.end_names == ("<|eot_id|>",)
    (made,) = found.make(PROMPTS[:1], CONFIG, EVERY_PREDICTION)
    assert isinstance(made.run, TranslatedRun)
    asked = found.model_form.tokenizer.encode(found.model_form.template.render(PROMPTS[0]))
    assert list(made.run.original.prompt_ids) == asked
    ids = [token.id for token in other_edge.fill(other_edge.read(found.payload(made), PROMPTS[0]))]
    draft = found.model_form.tokenizer.decode(made.run.original.predicted_answer)
    assert other_edge.bundle.tokenizer.decode(ids) == draft != ""
