"""Word statistics of one vocabulary: counting them, and writing the model file.

Responsible for counts of tokens, pairs and triples, and for the layout that `prior.parse` reads. Not
responsible for texts or for fitting weights (see `lab.formats.train_token_model`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from payload.bytesio import varint
from payload.codecs.prior import END, START, WEIGHT_SIZES, Weights, Words

MAX_FOLLOWERS = 64
"""Followers kept per context: bounds the time per token."""
MAX_COMMON = 1500

_LEAST_COMMON = 3.0
_LEAST_PAIR = 2.0
_LEAST_TRIPLE = 3.5
_DISCOUNT = 1.5


class Text(NamedTuple):
    """Token ids, with START first and END last where known; other negative ids are gaps."""

    ids: Sequence[int]
    weight: float


def count_words(texts: Iterable[Text], piece: Callable[[int], str]) -> Words:
    """Classes of tokens, pairs and triples from weighted counts.

    piece: the text of a token in the vocabulary's own alphabet, a leading space as "Ġ" and a line end as "Ċ".
    """
    single: Counter[int] = Counter()
    pairs: dict[int, Counter[int]] = defaultdict(Counter)
    triples: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for ids, weight in texts:
        for at, token in enumerate(ids):
            if token < 0 and token != END:
                continue
            if token >= 0:
                single[token] += weight  # type: ignore[assignment]
            if at and (ids[at - 1] >= 0 or ids[at - 1] == START):
                pairs[ids[at - 1]][token] += weight  # type: ignore[assignment]
                if at > 1 and ids[at - 1] >= 0 and (ids[at - 2] >= 0 or ids[at - 2] == START):
                    triples[ids[at - 2], ids[at - 1]][token] += weight  # type: ignore[assignment]
    common = sorted(single, key=lambda token: (-single[token], token))[:MAX_COMMON]
    classes = {
        token: min(15, 1 + int(1.5 * math.log2(single[token])))
        for token in sorted(common)
        if single[token] >= _LEAST_COMMON
    }
    pair_classes = {c: _classes(followers, _LEAST_PAIR, 16) for c, followers in sorted(pairs.items())}
    triple_classes = {c: _classes(followers, _LEAST_TRIPLE, 12) for c, followers in sorted(triples.items())}
    pair_classes = {context: followers for context, followers in pair_classes.items() if followers}
    triple_classes = {context: followers for context, followers in triple_classes.items() if followers}
    lexicon = _lexicon(Words(classes, pair_classes, triple_classes))
    first: dict[str, int] = {}
    alike = {}
    for token in lexicon:
        word = piece(token).lstrip("Ġ").lower()
        if word and first.setdefault(word, token) != token:
            alike[token] = first[word]
    breaks = frozenset(token for token in lexicon if "Ċ" in piece(token))
    return Words(classes, pair_classes, triple_classes, alike, breaks)


def _classes(followers: Counter[int], least: float, most: int) -> dict[int, int]:
    """Classes of the kept followers: their surprisal in half bits, from 1 on; END first, then by id."""
    total = followers.total() + _DISCOUNT
    kept = sorted(followers, key=lambda token: (-followers[token], token))[:MAX_FOLLOWERS]
    return {
        token: 1 + min(most - 1, round(-2 * math.log2(followers[token] / total)))
        for token in sorted(kept)
        if followers[token] >= least
    }


def _lexicon(words: Words) -> list[int]:
    """Every token of the statistics, ascending."""
    tokens = {*words.classes, *words.pairs, *words.breaks, *words.alike, *words.alike.values()}
    tokens.update(token for followers in words.pairs.values() for token in followers)
    tokens.update(token for context in words.triples for token in context)
    tokens.update(token for followers in words.triples.values() for token in followers)
    return sorted(token for token in tokens if token >= 0)


def write_model(vocab_size: int, plain: Weights, trained: Weights, words: Words) -> bytes:
    """The bytes of the model file (SPEC.md, "The model file")."""
    out = bytearray()
    for weights in (plain, trained):
        for name, size in WEIGHT_SIZES.items():
            values = getattr(weights, name)
            if len(values) != size:
                raise ValueError(f"weights {name}: expected {size}, found {len(values)}")
            for value in values:
                out += int(value).to_bytes(2, "little", signed=True)
    lexicon = _lexicon(words)
    index = {token: at for at, token in enumerate(lexicon)}
    out += varint(vocab_size) + varint(len(lexicon))
    previous = -1
    for token in lexicon:
        flags = words.classes.get(token, 0) | 16 * (token in words.breaks) | 32 * (token in words.alike)
        out += varint(token - previous) + bytes([flags])
        if token in words.alike:
            out += varint(index[words.alike[token]])
        previous = token
    for context in (START, *lexicon):
        out += _followers(words.pairs.get(context, {}), index)
    place = {START: 0, **{token: at + 1 for token, at in index.items()}}
    before = 0
    out += varint(len(words.triples))
    for first, second in sorted(words.triples, key=lambda context: (place[context[0]], place[context[1]])):
        out += varint(place[first] - before) + varint(place[second])
        out += _followers(words.triples[first, second], index)
        before = place[first]
    return bytes(out)


def _followers(followers: Mapping[int, int], index: Mapping[int, int]) -> bytes:
    out = bytearray(varint(len(followers)))
    at = 0
    for token, level in followers.items():
        place = 0 if token == END else index[token] + 1
        out += varint((place - at) << 4 | (level - 1))
        at = place
    return bytes(out)
