"""The sizes of questions, and the counts that predictive ones begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.shipped import bundle_of
from edge_runtime.runtime import EdgeRuntime
from lab.__main__ import main
from lab.formats import count_codes
from lab.questions.items import load_items
from links.frames import Question, encode_question
from links.frames.question_text import predictive_body, token_ids
from payload.codecs import question_counts
from payload.codecs.adaptive_model import FORMAT_COUNTS, QUESTION_COUNTS, AdaptiveModel, InitialCounts
from payload.codecs.predictive import QUESTION_BOUND, TOLERANCE
from payload.codecs.range_coder import Coder
from tests.lab.conftest import TRACES
from tests.shipped import TINY_BUNDLE

QWEN = TRACES.parent.parent / "tokenizer" / "qwen2.5_tokenizer.json.gz"

shipped = pytest.mark.skipif(not TINY_BUNDLE.exists(), reason="the shipped bundle is missing")


def table(folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The table's rows by benchmark."""
    assert main(["run", "question_bytes", "-o", str(folder), *options]) == 0
    rows = json.loads((folder / "tables.json").read_text())["tables"]["frames"]["rows"]
    return {row["questions of"]: row for row in rows}


@shipped
def test_the_table_is_of_the_frames_that_are_sent(tmp_path: Path) -> None:
    report = table(tmp_path, "--prompts", "8", "--skip", "2", "--decode", "1")
    context = EdgeRuntime.open(TINY_BUNDLE, threads=1).question_context()
    items = load_items(["tiny"], 10, 0)[2:]
    assert sum(row["N"] for row in report.values()) == 8
    for name, row in report.items():
        texts = [item.prompt for item in items if item.benchmark == name]
        for codec in ("utf-8", "compact", "predictive", "auto"):
            sizes = [len(encode_question(Question(0, text), context, codec)) for text in texts]
            assert row[codec] == pytest.approx(sum(sizes) / len(sizes))
        assert row["text"] == pytest.approx(sum(len(text.encode()) for text in texts) / len(texts))
        assert row["fits 51"] == sum(size <= 51 for size in sizes) / len(sizes)


@pytest.mark.parametrize("pair", ["tiny", "testbed"])
def test_a_real_question_has_far_fewer_positions_than_its_bytes_allow(pair: str) -> None:
    context = EdgeRuntime.open(bundle_of(pair, None), threads=1).question_context()
    assert context.tokens is not None
    assert context.predictor is not None
    for item in load_items([pair], 20, 0):
        ids = token_ids(item.prompt, context.tokens, context.contract)
        assert ids is not None
        body, _ = predictive_body(ids, context.contract, context.predictor, TOLERANCE)
        assert 4 * (len(ids) + 1) <= QUESTION_BOUND.most(len(body))


def test_another_tokenizer_and_a_question_that_is_too_long(tmp_path: Path) -> None:
    if not QWEN.is_file():
        pytest.skip("the Qwen2.5 tokenizer is not beside the repository (../shared/tokenizer)")
    file = tmp_path / "asked.jsonl"
    rows = [{"question": "How many legs has an ant?" * n, "answer": "#### 6"} for n in (1, 100)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    row = table(tmp_path / "out", "--data", f"gsm8k={file}", "--prompts", "2", "--tokenizer", str(QWEN))[
        "gsm8k"
    ]
    assert (row["N"], row["too long"]) == (1, 1)
    assert row["predictive"] is None
    assert row["auto"] == row["compact"] < row["text"]


def test_no_questions_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "question_bytes", "-o", str(tmp_path), "--prompts", "0"]) != 0
    assert "expected at least 1" in capsys.readouterr().err


def test_the_module_of_question_counts_is_what_the_program_writes() -> None:
    written = Path(question_counts.__file__).read_text("utf-8")
    assert count_codes.question_module(QUESTION_COUNTS, question_counts.MADE_OF) == written
    assert min(min(sizes) for pair in QUESTION_COUNTS.modes for sizes in pair) >= 1
    assert min(min(sizes) for group in QUESTION_COUNTS.ranks for sizes in group) >= 1
    assert (QUESTION_COUNTS.flags, QUESTION_COUNTS.more) == (FORMAT_COUNTS.flags, FORMAT_COUNTS.more)
    for mode, group in enumerate(FORMAT_COUNTS.ranks):
        assert [len(sizes) for sizes in group] == [len(sizes) for sizes in QUESTION_COUNTS.ranks[mode]]


@shipped
def test_counting_questions_gives_counts_that_shorten_them() -> None:
    edge = EdgeRuntime.open(TINY_BUNDLE, threads=1)
    texts = list(count_codes.observed_questions(edge, load_items(["tiny"], 12, 0)))
    assert len(texts) == 12
    tokens = edge.bundle.contract.vocab_size + 1
    counted = count_codes.count(texts, tokens)

    def size(counts: InitialCounts) -> int:
        total = 0
        for planned in texts:
            coder = Coder(None)
            model = AdaptiveModel(coder, uncertain=False, counts=counts)
            for each in planned:
                model.rank_code(each.codes, model.bucket(each.bucket, each.stable), tokens)
            assert coder.encoder is not None
            total += len(coder.encoder.finish())
        return total

    assert size(counted) < size(FORMAT_COUNTS)
