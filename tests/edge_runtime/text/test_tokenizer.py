"""Text to ids and back: against the tokenizers library, published test vectors, and itself in a stream."""

from __future__ import annotations

import gzip
import json
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import BundleSchemaError, UsageError
from edge_runtime.text.chat import ChatTemplate
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.splits import SPLITS
from edge_runtime.text.tokenizer import TextStream, Tokenizer
from lab.benches.random_checkpoint import SPECIALS
from payload import Contract
from tests.checkpoints import tokenizer_json

VECTORS = Path(__file__).parents[2] / "vectors"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "tokenizer"


@pytest.fixture(scope="session")
def small() -> Tokenizer:
    return Tokenizer.from_json(json.dumps(tokenizer_json()))


@pytest.fixture(scope="session")
def library() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json()))


@pytest.fixture(scope="session")
def full() -> Tokenizer:
    path = SHARED / "qwen2.5_tokenizer.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return Tokenizer.from_json(gzip.decompress(path.read_bytes()).decode("utf-8"))


def test_only_known_splits_of_a_bundle_are_run_in_time_in_proportion_to_the_text(tmp_path: Path) -> None:
    """Three languages run the same expressions; another one may never end."""
    vectors = json.loads((VECTORS / "split_vectors.json").read_text())
    assert vectors["known"] == SPLITS
    file, document = tmp_path / "tokenizer.json", tokenizer_json()
    pattern = document["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    text = "".join(5_000 * each for each in ("a", "Ab", "A", "\u0300", "1", " ", "\n", "!"))
    for pattern["Regex"] in SPLITS.values():
        file.write_text(json.dumps(document))
        tokenizer, began = Tokenizer.from_file(file), time.process_time()
        assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)
        assert time.process_time() - began < 5
    for pattern["Regex"] in vectors["hostile"]:
        file.write_text(json.dumps(document))
        with pytest.raises(BundleSchemaError):
            Tokenizer.from_file(file)
    hidden = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}
    file.write_text(json.dumps({**tokenizer_json(), "normalizer": hidden}))
    with pytest.raises(BundleSchemaError):
        Tokenizer.from_file(file)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_not_the_library_s_passes(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupted(self: Tokenizer, backend: object) -> None:
        raise error

    monkeypatch.setattr(Tokenizer, "__init__", interrupted)
    with pytest.raises(error):
        Tokenizer.from_json(json.dumps(tokenizer_json()))


def test_a_token_that_is_not_byte_level_is_refused_where_it_is_read() -> None:
    document = tokenizer_json()
    vocab = document["model"]["vocab"]
    name = next(name for name, id in vocab.items() if id == 5)
    del vocab[name]
    vocab["\n"] = 5
    tokenizer = Tokenizer.from_json(json.dumps(document))
    with pytest.raises(BundleSchemaError):
        tokenizer.token_bytes(5)


METASPACE = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"}
UNIGRAM = {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0]], "byte_fallback": False}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.clear(),
        lambda d: d.update(decoder=METASPACE),
        lambda d: d.update(model=UNIGRAM),  # the library would raise at the first text that needs a piece
        lambda d: d["model"].update(unk_token="BPE"),  # or that needs an unknown token
        # The library cuts a prefix off a token without a check, and panics.
        lambda d: d["model"].update(continuing_subword_prefix="a" * 300),
        # An id of two tokens stands for neither byte.
        lambda d: d["model"]["vocab"].update({"!": d["model"]["vocab"]['"']}),
    ],
)
def test_what_is_no_tokenizer_of_ours_is_refused(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    document = tokenizer_json(270)
    change(document)
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(BundleSchemaError):
        Tokenizer.from_file(tmp_path / "tokenizer.json").encode_bytes(b'Hello!"')
    with pytest.raises(BundleSchemaError):
        Tokenizer.from_json("[]")


# Hypothesis also draws strings from the sources, and the text of a special token decodes to nothing.
@given(st.text().filter(lambda text: not any(special in text for special in SPECIALS)))
def test_text_comes_back_in_normal_form(small: Tokenizer, text: str) -> None:
    ids = small.encode(text)
    assert small.decode(ids) == unicodedata.normalize("NFC", text)


@given(st.binary() | st.text().map(str.encode))
def test_bytes_come_back_as_they_are(small: Tokenizer, data: bytes) -> None:
    ids = small.encode_bytes(data)
    assert b"".join(map(small.token_bytes, ids)) == data
    assert not set(ids) & small.special_ids


def test_bytes_are_tokenised_as_text_is(small: Tokenizer) -> None:
    text = "Where does the river end? 24 loaves, naïve\n\n\tréturn"
    assert small.encode_bytes(text.encode()) == small.encode(text)
    name = b"<|im_end|>"
    assert not set(small.encode_bytes(name)) & small.special_ids
    composed, apart = "\xe9", "e\u0301"
    assert small.encode(apart) == small.encode(composed) != small.encode_bytes(apart.encode())


@given(st.lists(st.integers(0, 319)))
def test_any_ids_decode_as_the_library_does(
    small: Tokenizer, library: tokenizers.Tokenizer, ids: list[int]
) -> None:
    assert small.decode(ids) == library.decode(ids, skip_special_tokens=True)


@given(st.lists(st.integers(0, 319)))
def test_a_stream_gives_the_whole_text_and_never_half_a_character(small: Tokenizer, ids: list[int]) -> None:
    stream = TextStream(small)
    pieces = [stream.push(id_) for id_ in ids]
    assert "".join(pieces) + stream.flush() == small.decode(ids)


def test_a_character_of_several_tokens_comes_with_its_last(small: Tokenizer) -> None:
    stream = TextStream(small)
    ids = small.encode("€")
    assert len(ids) == 3
    assert [stream.push(id_) for id_ in ids] == ["", "", "€"]
    stream.push(ids[0])
    assert stream.flush() == "\N{REPLACEMENT CHARACTER}"


def test_names_of_special_tokens_become_special_tokens_and_no_text(small: Tokenizer) -> None:
    ids = small.encode("a<|im_end|>")
    assert ids[-1] in small.special_ids
    assert small.decode(ids) == "a"
    assert small.token_bytes(ids[-1]) == b"<|im_end|>"


def test_ids_without_a_token_have_no_bytes(small: Tokenizer) -> None:
    assert small.token_bytes(small.size) == small.token_bytes(-1) == small.token_bytes(1 << 40) == b""


def test_the_bytes_of_every_token_make_up_the_text(full: Tokenizer) -> None:
    text = "Täglich 3 Brötchen für 你好 🎉\r\n\t\x00 end"
    assert b"".join(full.token_bytes(id_) for id_ in full.encode(text)) == text.encode("utf-8")


def test_published_vectors(full: Tokenizer) -> None:
    texts = (SHARED / "qwen2_vectors.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    ids = (SHARED / "qwen2_vectors.out").read_text(encoding="utf-8").splitlines()
    assert len(ids) >= 40
    for text, line in zip(texts, ids, strict=False):
        expected = [int(part) for part in line.split()]
        assert full.encode(text) == expected
        assert full.decode(expected) == text


def test_half_of_a_surrogate_pair_is_refused(small: Tokenizer) -> None:
    """As an argument of a command has where it is not UTF-8."""
    with pytest.raises(UsageError):
        small.encode("river \udc80")


def test_a_vocabulary_of_characters_and_bytes_gives_the_ids_of_the_vectors() -> None:
    document = json.loads((VECTORS / "sentencepiece_vectors.json").read_text())
    data = document["tokenizer"]
    tokenizer, template = Tokenizer.from_json(json.dumps(data)), ChatTemplate.from_json(document["template"])
    for row in document["texts"]:
        assert tokenizer.encode(row["text"]) == row["ids"], row
        # Names of special tokens are theirs; the sign of a space is one.
        joined = b"".join(map(tokenizer.token_bytes, row["ids"])).decode()
        assert joined == row["text"].replace("\u2581", " "), row
    form = PromptForm(tokenizer, template, Contract.of(data, document["template"]))
    for row in document["conversations"]:
        assert form.ids(row["messages"]) == row["ids"], row
    assert (len(document["texts"]), len(document["conversations"])) == (213, 60)
