"""`make real` with real weights: three published runs of Dream-7B on SmolLM2."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="reading GGUF files needs the gguf package")

from cloud_anchor.errors import CloudError
from cloud_anchor.model.prompt_form import PromptForm
from cloud_anchor.selection.select import EDGE_AWARE, PAPER
from cloud_anchor.selection.translate import Translation
from edge_runtime.runtime import EdgeRuntime
from lab.published import real
from lab.published.published_runs import TraceTokenizer, read_traces
from lab.published.recorded import dream_form
from lab.published.recorded_tables import published_tokenizer
from lab.published.traces import recorded_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dream() -> TraceTokenizer:
    try:
        return TraceTokenizer(published_tokenizer())
    except CloudError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def edge() -> EdgeRuntime:
    """The bundle of the user's cache, made where it is not there."""
    try:
        return EdgeRuntime.open(real.bundle_of_smollm2())
    except CloudError as error:
        pytest.skip(str(error))


def test_the_device_writes_dreams_text(edge: EdgeRuntime, dream: TraceTokenizer, tmp_path: Path) -> None:
    assert set(edge.bundle.manifest.variants) == set(real.VARIANTS)
    translation = Translation(dream_form(dream), PromptForm.of_bundle(edge.bundle))
    for trace in read_traces(real.EXAMPLE):
        early = recorded_run(trace, "0.1", dream)
        run = translation.translate(early, edge.prompt_ids(trace.prompt))
        path = tmp_path / "payload.bin"
        aware, size, answer = real.send(edge, run, EDGE_AWARE, path, trace.prompt)
        assert answer.text.strip() == trace.output.strip()
        assert len(aware) < len(answer.tokens)
        assert size == path.stat().st_size < len(trace.output)
        paper, _, filled = real.send(edge, run, PAPER, path, trace.prompt)
        assert len(paper) > 0
        written = {token.position: token.id for token in filled.tokens}
        assert written.items() >= paper.by_position.items(), "every anchor stands at its place"
