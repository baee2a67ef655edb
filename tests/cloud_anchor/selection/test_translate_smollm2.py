"""Published runs of Dream-7B in the vocabulary of a real edge model, SmolLM2: nothing of the text is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.selection.select import committed
from cloud_anchor.selection.translate import Translation
from lab.published.published_runs import read_traces, recorded_run
from tests.cloud_anchor.selection.test_translate import TRACES, form_of, published, qwen, text_of

pytest.importorskip("gguf", reason="reading GGUF files needs the gguf package")
WHY = "needs the converter's GGUF reader"
checkpoints = pytest.importorskip("convert.source.gguf", reason=WHY)
tokenizers = pytest.importorskip("edge_runtime.text.gguf", reason=WHY)

pytestmark = [pytest.mark.slow, published]


@pytest.fixture(scope="module")
def pair(smollm2_source: Path) -> Translation:
    metadata = checkpoints.GgufFile(smollm2_source).metadata
    return Translation(
        qwen()[1], form_of(tokenizers.tokenizer_files(metadata, str(smollm2_source))["tokenizer.json"])
    )


@pytest.mark.parametrize("fraction", ["0.1", "0.5"])
def test_committed_text_stays_committed(pair: Translation, fraction: str) -> None:
    tokenizer, dream = qwen()
    whole = kept = left_out = 0
    for trace in read_traces(TRACES):
        try:
            run = recorded_run(trace, fraction, tokenizer)
        except RequestError:
            left_out += 1
            continue
        found = pair.translate(run, ())
        assert text_of(pair.edge, found.predicted_answer) == text_of(dream, run.predicted_answer)
        assert not pair.edge.contract.reserved & set(found.predicted_answer)
        sent = text_of(pair.edge, list(committed(found, pair.edge.contract).ids))
        had = text_of(dream, run.answer)
        assert len(sent) <= len(had)
        whole, kept = whole + len(had), kept + len(sent)
    assert left_out <= 6
    assert kept >= 0.99 * whole, "tokens of both vocabularies mostly end where words do"
