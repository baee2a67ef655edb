"""Tokenizer: text to token ids and back, for vocabularies of byte-level BPE, and of SentencePiece's BPE with
a token for every byte (Gemma's).

Responsible for the `tokenizers` library, the bytes of each token, and streaming of text whose characters are
split over several tokens. Not responsible for chat templates or models.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import tokenizers

from edge_runtime.errors import BundleSchemaError, UsageError
from edge_runtime.text.splits import require_known


def _byte_alphabet() -> dict[str, int]:
    """The character that byte-level BPE writes for each byte, as a table back to the byte.

    Printable Latin-1 bytes stand for themselves; the 68 others take the code points from 256 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + rank): byte for rank, byte in enumerate(others)})
    return table


_BYTE_OF = _byte_alphabet()
_SPACE = "\u2581"
"""What SentencePiece writes for a space."""
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
"""Its token of a single byte."""

_NOT_UTF8 = re.compile("[\udc80-\udcff]+")
"""Bytes that are not UTF-8, as Python's error handler `surrogateescape` writes them."""


class Tokenizer:
    """A `tokenizer.json`; satisfies `payload.TokenBytes`."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        if not isinstance(backend.model, tokenizers.models.BPE):
            raise BundleSchemaError(
                f"tokenizer: expected a vocabulary of BPE, found {type(backend.model).__name__}. "
                "Use a model with such a vocabulary: Qwen2.5, SmolLM2, Llama 3, Gemma 3."
            )
        self._sentencepiece = bool(getattr(backend.model, "byte_fallback", False))
        decoder = backend.decoder
        if not (
            decoder.decode([f"{_SPACE}a", "<0xC3>", "<0xA9>"]) == " a\u00e9"
            if self._sentencepiece and decoder
            else isinstance(decoder, tokenizers.decoders.ByteLevel)
        ):
            raise BundleSchemaError(
                "tokenizer: expected a byte-level decoder, or one of byte tokens that keeps a first space, "
                f"found {decoder}. Use a model with such a vocabulary: Qwen2.5, SmolLM2, Llama 3, Gemma 3."
            )
        unknown = getattr(backend.model, "unk_token", None)
        if unknown is not None and backend.model.token_to_id(unknown) is None:
            raise BundleSchemaError(
                f"tokenizer: expected unk_token in the vocabulary, found {unknown!r:.80}, which is not. "
                "Use the tokenizer.json that was published with the model."
            )
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        names = {id_: token.content.encode("utf-8") for id_, token in added.items()}
        # SentencePiece's symbols of the user are text: Gemma's runs of spaces.
        self._symbols = {
            id_: token.content
            for id_, token in added.items()
            if self._sentencepiece and not token.special and backend.model.token_to_id(token.content) == id_
        }
        self._added = {id_: name for id_, name in names.items() if id_ not in self._symbols}
        self._special = frozenset(id_ for id_, token in added.items() if token.special)

    @classmethod
    def from_file(cls, path: Path) -> Tokenizer:
        """Reads a stranger's `tokenizer.json`.

        Raises BundleSchemaError where the file is not one, or has an expression that is not known.
        """
        try:
            text = path.read_text(encoding="utf-8")
            require_known(json.loads(text))
            return cls(tokenizers.Tokenizer.from_str(text))
        except BaseException as error:
            _raise_if_not_the_library_s(error)
            raise BundleSchemaError(f"{path}: expected a tokenizer file, found: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The same from the text of a file that is trusted: any expression is run."""
        try:
            return cls(tokenizers.Tokenizer.from_str(text))
        except BaseException as error:
            _raise_if_not_the_library_s(error)
            raise BundleSchemaError(f"expected the text of a tokenizer file, found: {error}") from error

    @property
    def size(self) -> int:
        """Number of ids, special and other added tokens included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of special tokens, which are not part of an answer's text."""
        return self._special

    def encode(self, text: str) -> list[int]:
        """Token ids of a text. Names of special tokens in it become special tokens; no token is added.

        Raises UsageError for a text that is not Unicode: one with half of a surrogate pair.
        """
        return list(self._encoding(text).ids)

    def _encoding(self, text: str) -> tokenizers.Encoding:
        return _encoded(self._backend, _unicode(text))

    def encode_pieces(self, pieces: Iterable[tuple[str, bool]]) -> list[int]:
        """Token ids of texts in a row, of which those marked True are contents: names of added tokens in a
        content are text.

        Added tokens are found in each other text by itself. What stands between two of them is tokenised as
        one text, so the ids are those of `encode` for the joined texts where no content has such a name.
        Raises what `encode` does.
        """
        ids: list[int] = []
        text = ""
        for piece, is_content in pieces:
            at = 0
            found = self._encoding("" if is_content else piece)
            for id_, (begin, end) in zip(found.ids, found.offsets, strict=True):
                if id_ in self._added:
                    ids += [*self._merged(self._normalised(text + piece[at:begin])), id_]
                    text, at = "", end
            text += piece[at:]
        return ids + self._merged(self._normalised(text))

    def _normalised(self, text: str) -> str:
        if self._sentencepiece:  # `_plain` does it, behind the runs of spaces
            return _unicode(text)
        normalizer = self._backend.normalizer
        return _unicode(text) if normalizer is None else str(normalizer.normalize_str(_unicode(text)))

    def _merged(self, text: str) -> list[int]:
        """Ids of ordinary tokens: names of added tokens are text. Bytes without a token are left out."""
        ids: list[int] = []
        for id_ in _encoded(self._plain, text).ids:
            # A vocabulary may hold an added token as an ordinary one too, and its merges may lead there.
            name = self._added.get(id_)
            ids += [id_] if name is None else [self._of_byte[b] for b in name if b in self._of_byte]
        return ids

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids of ordinary tokens whose `token_bytes`, joined, are exactly `data`.

        As `encode`, but the text is not normalised (NFC would change its bytes), names of added tokens in it
        are text, and bytes that are not UTF-8 get the tokens of single bytes. Raises BundleSchemaError where
        the vocabulary has no tokens for some byte.
        """
        text = data.decode("utf-8", "surrogateescape")
        ids: list[int] = []
        begin = 0
        for broken in _NOT_UTF8.finditer(text):
            ids += self._encode_plain(text[begin : broken.start()])
            ids += self._encode_bytewise(broken.group().encode("utf-8", "surrogateescape"))
            begin = broken.end()
        return ids + self._encode_plain(text[begin:])

    def _encode_plain(self, text: str) -> list[int]:
        ids = self._merged(text)
        data = text.encode("utf-8")
        # The library leaves characters out that the vocabulary lacks, and may put a space before the text.
        return ids if b"".join(map(self.token_bytes, ids)) == data else self._encode_bytewise(data)

    def _encode_bytewise(self, data: bytes) -> list[int]:
        missing = set(data) - self._of_byte.keys()
        if missing:
            raise BundleSchemaError(
                f"tokenizer: expected a token for every byte, found none for 0x{min(missing):02x}. "
                "Use a byte-level vocabulary with all 256 bytes."
            )
        return [self._of_byte[byte] for byte in data]

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """The same merges without added tokens that are no text, or a normaliser that changes bytes."""
        plain = tokenizers.Tokenizer(self._backend.model)
        plain.pre_tokenizer = self._backend.pre_tokenizer
        if self._sentencepiece:
            plain.normalizer = self._backend.normalizer
        plain.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in self._symbols.values()])
        return plain

    @cached_property
    def _of_byte(self) -> dict[int, int]:
        """The ordinary token of each single byte, where no other token has its id."""
        names = {byte: character for character, byte in _BYTE_OF.items()}
        if self._sentencepiece:
            names = {byte: f"<0x{byte:02X}>" for byte in range(256)}
        found = {byte: self._backend.token_to_id(name) for byte, name in names.items()}
        return {
            byte: id_
            for byte, id_ in found.items()
            if id_ is not None and id_ not in self._added and self.token_bytes(id_) == bytes([byte])
        }

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids without special tokens; bytes that are not UTF-8 become U+FFFD."""
        stream = TextStream(self)
        return "".join([stream.push(id_) for id_ in ids]) + stream.flush()

    def token_bytes(self, id: int) -> bytes:
        """The bytes of a token: the name in UTF-8 of an added token, empty for an id without a token.

        A model's embedding may have more rows than its vocabulary has tokens, so such ids do occur. Raises
        BundleSchemaError for a token that is not byte-level.
        """
        if id in self._added:
            return self._added[id]
        token = self._backend.id_to_token(id) if 0 <= id < 2**32 else None
        if token is None:
            return b""
        if not self._sentencepiece:
            try:
                return bytes(_BYTE_OF[character] for character in token)
            except KeyError as error:
                raise BundleSchemaError(
                    f"tokenizer: expected byte-level tokens, found {token!r:.80} (id {id}). "
                    "Use a model with a byte-level BPE vocabulary."
                ) from error
        byte = _BYTE_TOKEN.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE, " ").encode("utf-8")


def _raise_if_not_the_library_s(error: BaseException) -> None:
    """The library raises bare Exception for every kind of failure, and for a fault of its own what Rust's
    panics become, which is no Exception.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error


def _encoded(backend: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    try:
        return backend.encode(text, add_special_tokens=False)
    except BaseException as error:  # for faults of a file that the library finds only here
        _raise_if_not_the_library_s(error)
        raise BundleSchemaError(
            f"tokenizer: expected one that encodes any text, found: {error}. "
            "Use the tokenizer.json that was published with the model."
        ) from error


def _unicode(text: str) -> str:
    """The text; raises UsageError where it is not Unicode, which the library would refuse as another type."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"text: expected Unicode, found half of a surrogate pair in {text!r:.80}") from None
    return text


class TextStream:
    """Incremental decoding: returns each character with the token that completes it.

    The texts of `push` and `flush` joined are `Tokenizer.decode` of the same ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        """The text completed by this token; empty inside a character and for special tokens."""
        if id in self._tokenizer.special_ids:
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(id))

    def flush(self) -> str:
        """The text of bytes that are left at the end: U+FFFD inside a character, else empty."""
        return self._decoder.decode(b"", final=True)
