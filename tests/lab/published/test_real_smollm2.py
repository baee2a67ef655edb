"""`make real` with real weights: three published runs of Dream-7B on SmolLM2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="reading GGUF files needs the gguf package")

from cloud_anchor.errors import CloudError
from cloud_anchor.selection.select import EDGE_AWARE, PAPER
from cloud_anchor.selection.translate import Translation
from edge_runtime.bundle.bundle import MANIFEST
from edge_runtime.runtime import EdgeRuntime
from lab.published import real
from lab.published.published_runs import DEFAULT_TOKENIZER, TraceTokenizer, read_traces, recorded_run
from lab.published.qwen_ranks import published_tokenizer
from lab.published.recorded import dream_form

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dream() -> TraceTokenizer:
    try:
        return TraceTokenizer(published_tokenizer(real.EXAMPLE.parent / DEFAULT_TOKENIZER))
    except CloudError as error:
        pytest.skip(str(error))


def test_the_bundle_of_the_users_cache_is_made_where_it_is_not_there(
    smollm2_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def convert(source: Path, out: Path, **options: Any) -> None:
        assert source.samefile(smollm2_source)
        assert out == tmp_path / "bundles" / real.BUNDLE
        assert out.parent.is_dir()
        out.mkdir(exist_ok=True)
        (out / MANIFEST).touch()
        asked.append({name: options[name] for name in ("variants", "thresholds")})

    monkeypatch.setattr(real, "convert", convert)
    monkeypatch.setattr(real, "cache_root", lambda: tmp_path)
    for _ in range(2):
        assert (real.bundle_of_smollm2() / MANIFEST).is_file()
    assert asked == [{"variants": real.VARIANTS, "thresholds": real.BOUNDS}]


def test_the_device_writes_dreams_text(smollm2_bundle: Path, dream: TraceTokenizer, tmp_path: Path) -> None:
    edge = EdgeRuntime.open(smollm2_bundle, threads=1)
    assert edge.bundle.variant_name == real.VARIANTS[0], "as without fp32 beside"
    translation = Translation(dream_form(dream), edge.bundle.form)
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
