"""What the laboratory's tests share: the published traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.published.published_runs import DEFAULT_TOKENIZER, Trace, TraceTokenizer, read_traces

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "dream7b_dev.jsonl"


@pytest.fixture(scope="session")
def traces() -> list[Trace]:
    if not TRACES.is_file():
        pytest.skip("the published traces are not beside the repository (../shared/traces)")
    return read_traces(TRACES)


@pytest.fixture(scope="session")
def qwen() -> TraceTokenizer:
    pytest.importorskip("tokenizers")
    path = TRACES.parent / DEFAULT_TOKENIZER
    if not path.is_file():
        pytest.skip("the Qwen2.5 tokenizer is not beside the repository (../shared/tokenizer)")
    return TraceTokenizer(path)
