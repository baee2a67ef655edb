"""Matcher: which tokens may follow in an answer, and which must.

Responsible for a bundle's vocabulary as the engine of grammars reads it, and for the state of one answer in
tokens. Not responsible for how an answer ends (see `ending`) or for passes of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edge_runtime.grammar.ending import ShortEnding, byte_matcher, check, limits
from edge_runtime.grammar.grammar import Grammar, Kind, library
from edge_runtime.text.tokenizer import Tokenizer
from payload import Contract

if TYPE_CHECKING:
    import llguidance

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_PENALTY = np.where(_BITS == 1, np.float32(0), np.float32(-np.inf))
"""float32[256, 8]: of the eight tokens of a mask's byte, what is added to their logits."""


class GrammarVocabulary:
    """A bundle's tokens as llguidance reads them; made once for all grammars of a bundle.

    At 151,665 tokens that takes about half a second and 100 MB.
    """

    def __init__(self, tokens: Tokenizer, contract: Contract) -> None:
        self.tokens = tokens
        self.eos = sorted(contract.eos_ids)
        self.size = max(tokens.size, *(id_ + 1 for id_ in self.eos))
        self._words = _Words(tokens, contract, self.size, self.eos)
        self._made: dict[bool, Any] = {}

    def token_bytes(self, id_: int) -> bytes:
        return self._words.tokens[id_]

    def tokenizer(self, json: bool) -> llguidance.LLTokenizer:
        """The engine's tables. json: with those that make strings fast."""
        if json not in self._made:
            kind = library().LLTokenizer
            slices = kind.json_slices() if json else kind.general_slices()
            self._made[json] = kind(self._words, n_vocab=self.size, eos_token=self.eos, slices=slices)
        return self._made[json]  # type: ignore[no-any-return]


class _Words:
    """A vocabulary, as llguidance asks for one. Only ordinary tokens are text."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: Tokenizer, contract: Contract, size: int, eos: Sequence[int]) -> None:
        self.eos_token_id = eos[0]
        self.tokens = [tokens.token_bytes(id_) for id_ in range(size)]
        self.special_token_ids = [id_ for id_ in range(size) if not contract.is_ordinary(id_)]
        self._encode = lru_cache(4096)(tokens.encode_bytes)  # of what is forced, the same again and again

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)


class CompiledGrammar:
    """A grammar for one vocabulary; every answer begins with a matcher of its own.

    Raises GrammarError for a grammar that cannot be used. The engine's limits bound every step of an answer,
    but not all of what it does before the first: patterns that multiply may take minutes.
    """

    def __init__(self, grammar: Grammar, vocabulary: GrammarVocabulary) -> None:
        self.grammar = grammar
        self.vocabulary = vocabulary
        tokenizer = vocabulary.tokenizer(grammar.kind is Kind.JSON_SCHEMA)
        self._start = library().LLMatcher(tokenizer, grammar.rules(), limits=limits(), log_level=0)
        check(self._start, grammar)
        self._ending = ShortEnding(byte_matcher(grammar))

    def matcher(self) -> Matcher:
        """The start of an answer."""
        return Matcher(self._start.deep_copy(), self.vocabulary)

    def ending(self, most: int, enough: int = 0) -> ShortEnding:
        """The endings of an answer, of at most `most` bytes each; one of `enough` need not be shorter."""
        return self._ending.copy(most, enough)


class Matcher:
    """The place of an answer in its grammar, in tokens."""

    def __init__(self, state: llguidance.LLMatcher, vocabulary: GrammarVocabulary) -> None:
        self._state = state
        self._vocabulary = vocabulary
        self._eos = np.asarray(vocabulary.eos)
        self._mask: NDArray[np.uint8] | None = None
        self._forced: list[int] | None = None

    @property
    def gave_up(self) -> bool:
        """Whether a step was beyond the engine's limits: nothing more is known of this answer."""
        return bool(self._state.is_error())

    @property
    def mask(self) -> NDArray[np.uint8]:
        """The tokens that may follow, bit i of byte i / 8 from the lowest; all zero where it gave up."""
        if self._mask is None:
            self._mask = np.frombuffer(self._state.compute_bitmask(), np.uint8)
            if self.gave_up:
                self._mask = np.zeros_like(self._mask)
        return self._mask

    def allows(self, id_: int) -> bool:
        """Whether a token may follow; of end tokens, whether the answer may end here."""
        if not 0 <= id_ < self._vocabulary.size:
            return False
        if self._mask is not None:
            return bool(self._mask[id_ >> 3] >> (id_ & 7) & 1)
        if self._state.is_stopped():
            return not self.gave_up and id_ in self._vocabulary.eos
        # What the mask has, at a hundredth of its cost.
        forced = self.forced()
        return id_ == forced[0] if forced else bool(self._state.validate_tokens([id_]))

    @property
    def accepts(self) -> bool:
        """Whether the answer may end here."""
        return not self.gave_up and bool(self._state.is_accepting())

    @property
    def over(self) -> bool:
        """Whether the answer may end here and nothing else may follow."""
        if not self.accepts:
            return False
        if self._state.is_stopped():
            return True
        mask = self.mask.copy()
        np.bitwise_and.at(mask, self._eos >> 3, ~(1 << (self._eos & 7)).astype(np.uint8))
        return not mask.any()

    def forced(self) -> list[int]:
        """The tokens that must follow, in the vocabulary's own splitting; empty where there is a choice."""
        if self._forced is None:
            over = self.gave_up or self._state.is_stopped()
            self._forced = [] if over else self._state.compute_ff_tokens()
        return self._forced

    def take(self, id_: int) -> bool:
        """The answer goes on with a token; False, and nothing more is known, where that is not allowed."""
        self._mask = self._forced = None
        return bool(self._state.consume_token(id_))

    def masked(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[vocab] logits, minus infinity where the token may not follow."""
        size = min(len(logits), self._vocabulary.size)
        held = np.empty_like(logits)
        held[size:] = -np.inf
        np.add(_PENALTY.take(self.mask, axis=0).reshape(-1)[:size], logits[:size], out=held[:size])
        return held
