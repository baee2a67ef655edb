"""What the payload's tests share: a toy vocabulary, sealed payloads, the published traces."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "vectors"))

from toy_vocabulary import ToyTokens, contract  # noqa: E402

from payload import Contract  # noqa: E402
from payload.traces import DEFAULT_TOKENIZER, Tokenizer, Trace, read_traces  # noqa: E402

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
def qwen() -> Tokenizer:
    pytest.importorskip("tokenizers")
    path = TRACES.parent / DEFAULT_TOKENIZER
    if not path.is_file():
        pytest.skip("the Qwen2.5 tokenizer is not beside the repository (../shared/tokenizer)")
    return Tokenizer(path)
