"""The prior of the token model: weights, and for one vocabulary word statistics.

Responsible for the file `model.bin` (made by `lab.formats.train_token_model`, described in SPEC.md). The
file is part of the format: two sides with different files cannot read each other's payloads, so every check
covers its hash. Not responsible for coding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from payload.bytesio import Reader
from payload.codecs.fenwick_tree import FenwickTree
from payload.errors import PayloadError

MODEL_FILE = Path(__file__).parents[1] / "model.bin"

START = -1
"""Precedes the first token of a response, as a context."""
END = -2
"""Follows the last token of a response, as a token of its own."""

MAX_SCORE = 384

# fmt: off
_FRACTIONS = (
    32768, 34219, 35734, 37316, 38968, 40693, 42495, 44376,
    46341, 48393, 50535, 52773, 55109, 57549, 60097, 62757,
)
# fmt: on
"""round(2^15 * 2^(i/16)): literal, because they are part of the format."""

_MASS = tuple((_FRACTIONS[s & 15] << (s >> 4)) >> 15 for s in range(MAX_SCORE + 1))


def mass(score: int) -> int:
    """2^(score/16), with the score clamped to 0..MAX_SCORE."""
    return _MASS[0 if score < 0 else MAX_SCORE if score > MAX_SCORE else score]


class Weights(NamedTuple):
    """One number per value of each feature, in 1/16 bit (SPEC.md); escape_bits are interval sizes."""

    seen: Sequence[int]
    unseen: Sequence[int]
    rank: Sequence[int]
    prompt_count: Sequence[int]
    answer_count: Sequence[int]
    scale: Sequence[int]
    source: Sequence[int]
    pair: Sequence[int]
    triple: Sequence[int]
    prompt_match: Sequence[int]
    answer_match: Sequence[int]
    end_pair: Sequence[int]
    end_line: Sequence[int]
    end_age: Sequence[int]
    escape: Sequence[int]
    escape_bits: Sequence[int]


WEIGHT_SIZES: Mapping[str, int] = dict(
    zip(Weights._fields, (16, 16, 18, 5, 4, 4, 4, 17, 13, 19, 19, 17, 19, 7, 10, 24), strict=True)
)
"""Name and number of weights, in the order of the file."""


@dataclass(frozen=True)
class Words:
    """Statistics of one vocabulary's tokens; empty for a vocabulary without any.

    classes: frequency class of a token, 1 to 15, in order of id.
    pairs:   context token -> its followers: token (or END) -> class, 1 (nearly certain) to 16.
    triples: the same for the two tokens before, 1 to 12.
    alike:   token -> the token it is compared as, so that "The" and " the" match.
    breaks:  tokens that end a line.
    """

    classes: Mapping[int, int] = field(default_factory=dict)
    pairs: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    triples: Mapping[tuple[int, int], Mapping[int, int]] = field(default_factory=dict)
    alike: Mapping[int, int] = field(default_factory=dict)
    breaks: frozenset[int] = frozenset()


class Common(NamedTuple):
    """Slots of the tokens with a class, before any prompt: token -> slot, scores and masses."""

    slot: Mapping[int, int]
    scores: Sequence[int]
    masses: FenwickTree


@dataclass(frozen=True)
class Prior:
    """Weights and words for one vocabulary."""

    weights: Weights
    words: Words

    @cached_property
    def common(self) -> Common:
        """The slots that every payload starts from, computed once."""
        weights = self.weights
        rest = weights.rank[0] + weights.prompt_count[0] + weights.answer_count[0]
        scores = [weights.unseen[known] + rest for known in self.words.classes.values()]
        slot = {token: at for at, token in enumerate(self.words.classes)}
        return Common(slot, scores, FenwickTree(map(mass, scores)))


def prior_of(vocab_size: int) -> Prior:
    """The prior of a vocabulary, chosen by its size: a wrong choice costs bytes, never correctness."""
    known, plain, trained = _load()
    return trained if vocab_size == known else plain


@cache
def _load() -> tuple[int, Prior, Prior]:
    known, plain, trained, words = parse(_file())
    return known, Prior(plain, Words()), Prior(trained, words)


@cache
def _file() -> bytes:
    try:
        return MODEL_FILE.read_bytes()
    except OSError as error:
        raise PayloadError(
            f"{MODEL_FILE.name}: expected the model file beside the code, found {error}; install again"
        ) from None


@cache
def model_hash() -> bytes:
    """SHA-256 of the model file, which the check of every compact payload covers."""
    return hashlib.sha256(_file()).digest()


def parse(data: bytes) -> tuple[int, Weights, Weights, Words]:
    """Vocabulary size, weights without words, weights with them, and the words of a model file."""
    reader = Reader(data)
    plain, trained = _weights(reader), _weights(reader)
    vocab_size = reader.varint("vocabulary size", 1 << 24)
    lexicon, classes, breaks, alike = [], {}, set(), {}
    token = -1
    for _ in range(reader.varint("lexicon", 1 << 16)):
        token += reader.varint("distance", 1 << 24)
        flags = reader.take(1, "class")[0]
        lexicon.append(token)
        if flags & 15:
            classes[token] = flags & 15
        if flags & 16:
            breaks.add(token)
        if flags & 32:
            alike[token] = lexicon[reader.varint("alike", 1 << 16)]
    order = [END, *lexicon]
    pairs: dict[int, Mapping[int, int]] = {}
    for index in range(len(order)):
        followers = _followers(reader, order)
        if followers:
            pairs[lexicon[index - 1] if index else START] = followers
    triples: dict[tuple[int, int], Mapping[int, int]] = {}
    first = 0
    for _ in range(reader.varint("triples", 1 << 16)):
        first += reader.varint("first", 1 << 16)
        second = reader.varint("second", 1 << 16)
        triples[lexicon[first - 1] if first else START, lexicon[second - 1]] = _followers(reader, order)
    return vocab_size, plain, trained, Words(classes, pairs, triples, alike, frozenset(breaks))


def _weights(reader: Reader) -> Weights:
    sets = {
        name: tuple(int.from_bytes(reader.take(2, name), "little", signed=True) for _ in range(size))
        for name, size in WEIGHT_SIZES.items()
    }
    return Weights(**sets)


def _followers(reader: Reader, order: Sequence[int]) -> dict[int, int]:
    """Pairs of (distance in the lexicon, class - 1) in one varint each, ascending."""
    followers, at = {}, 0
    for _ in range(reader.varint("followers", 1 << 12)):
        entry = reader.varint("follower", 1 << 24)
        at += entry >> 4
        followers[order[at]] = (entry & 15) + 1
    return followers
