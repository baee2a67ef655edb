"""Tokenizer: text to token ids and back, for byte-level BPE vocabularies of the Qwen2 family.

Responsible for the `tokenizers` library, the bytes of each token, and streaming of text whose characters are
split over several tokens. Not responsible for chat templates or models.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from pathlib import Path

import tokenizers

from edge_runtime.errors import BundleSchemaError

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where the Qwen2 vocabulary family splits text before merging, as in tokenizer.json: digits stand alone."""


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


class Tokenizer:
    """A `tokenizer.json`; satisfies `payload.TokenBytes`."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        if not isinstance(backend.decoder, tokenizers.decoders.ByteLevel):
            raise BundleSchemaError(
                f"tokenizer: expected a byte-level decoder, found {backend.decoder}. "
                "Use a model of the Qwen2 vocabulary family."
            )
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self._added: dict[int, bytes] = {id_: token.content.encode("utf-8") for id_, token in added.items()}
        self._special = frozenset(id_ for id_, token in added.items() if token.special)

    @classmethod
    def from_file(cls, path: Path) -> Tokenizer:
        """Reads a `tokenizer.json`; raises BundleSchemaError where the file is not one."""
        try:
            return cls(tokenizers.Tokenizer.from_file(str(path)))
        except Exception as error:  # the library raises bare Exception for every kind of failure
            raise BundleSchemaError(f"{path}: expected a tokenizer file, found: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The same from the file's text."""
        try:
            return cls(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # as above
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
        """Token ids of a text. Names of special tokens in it become special tokens; no token is added."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of token ids without special tokens; bytes that are not UTF-8 become U+FFFD."""
        stream = TextStream(self)
        return "".join([stream.push(id_) for id_ in ids]) + stream.flush()

    def token_bytes(self, id: int) -> bytes:
        """The bytes of a token: the name in UTF-8 of an added token, empty for an id without a token.

        A model's embedding may have more rows than its vocabulary has tokens, so such ids do occur.
        """
        if id in self._added:
            return self._added[id]
        token = self._backend.id_to_token(id) if 0 <= id < 2**32 else None
        return b"" if token is None else bytes(_BYTE_OF[character] for character in token)


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
