"""Merges from ranks: those of a trained tokenizer, and of Qwen2.5's own file where both are at hand."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from transformers.convert_slow_tokenizer import bytes_to_unicode

from cloud_anchor.errors import CloudError
from lab.published.qwen_ranks import tokenizer_of, tokenizer_of_ranks
from lab.published.wheel_files import QWEN_RANKS
from payload import Contract
from tests.checkpoints import tokenizer_json

QWEN = Path(__file__).resolve().parents[4] / "shared" / "tokenizer" / "qwen2.5_tokenizer.json.gz"


def test_the_merges_of_a_trained_tokenizer_follow_from_its_order(tmp_path: Path) -> None:
    data = tokenizer_json(1000)
    bytes_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    ranks = {
        bytes(bytes_of[letter] for letter in piece): id_ for piece, id_ in data["model"]["vocab"].items()
    }
    found = tokenizer_of(ranks)
    assert found["model"]["vocab"] == data["model"]["vocab"]
    expected = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    assert found["model"]["merges"] == expected
    assert len(expected) > 100

    file = tmp_path / "small.tiktoken"
    lines = [base64.b64encode(token) + b" " + str(rank).encode() for token, rank in ranks.items()]
    file.write_bytes(b"\n".join(lines) + b"\n")
    target = tokenizer_of_ranks(file, tmp_path / "tokenizer.json")
    assert json.loads(target.read_text(encoding="utf-8")) == found
    file.write_text("no ranks\n")
    assert tokenizer_of_ranks(file, target) == target, "made once"
    with pytest.raises(CloudError):
        tokenizer_of_ranks(file, tmp_path / "other.json")


@pytest.mark.skipif(not QWEN.exists(), reason="Qwen2.5's tokenizer.json is not beside this repository")
@pytest.mark.skipif(not QWEN_RANKS.path.exists(), reason="the rank file is not in the cache (make real)")
def test_the_rank_file_gives_the_published_tokenizer(tmp_path: Path) -> None:
    made = json.loads(tokenizer_of_ranks(QWEN_RANKS.path, tmp_path / "t.json").read_text(encoding="utf-8"))
    published = json.loads(gzip.decompress(QWEN.read_bytes()))
    for field in ("vocab", "merges"):
        assert made["model"][field] == published["model"][field]
    assert made["pre_tokenizer"] == published["pre_tokenizer"]
    assert Contract.of(made, {}).identity == Contract.of(published, {}).identity
