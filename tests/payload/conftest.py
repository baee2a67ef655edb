"""What the payload's tests share: a toy vocabulary, sealed payloads, the published traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.published.published_runs import DEFAULT_TOKENIZER, Trace, TraceTokenizer, read_traces
from payload import Contract
from tests.vectors.toy_vocabulary import ToyTokens, contract

REPO = Path(__file__).resolve().parents[2]
TRACES = REPO.parent / "shared" / "traces" / "dream7b_dev.jsonl"


@pytest.fixture(scope="session")
def tokens() -> ToyTokens:
    return ToyTokens()


@pytest.fixture(scope="session")
def toy() -> Contract:
    return contract()


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
