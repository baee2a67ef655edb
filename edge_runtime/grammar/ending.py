"""ShortEnding: a short way to end an answer as a sentence of its grammar, known at every place of it.

Responsible for the bytes that end it and for the promise that they do. Not responsible for tokens or for when
an answer has to end (see `decode.constrained`).

An answer that runs out of tokens ends with them. What guarantees that it can: an ending is known before the
first token, and a token is written only where an ending behind it is known too. Most endings are found
without a search: what is left of the one before where the token is its beginning, or that one again where it
still ends the answer, as within a string. Otherwise a search goes from byte to byte over the engine's own
masks, what closes first, and shortens what it finds where that is too long. It is not exhaustive: an ending
is a sentence, and short, but not proven the shortest; in a grammar whose only endings are far off none may be
found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edge_runtime.grammar.errors import GrammarError
from edge_runtime.grammar.grammar import Grammar, library

if TYPE_CHECKING:
    import llguidance

END = 256
"""The end token of the vocabulary of single bytes."""

CLOSING = b'"}],0123456789ntfabcdefghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .'
"""Bytes in the order in which an ending tries them; all others, those that open something last, follow."""
_ORDER = (*CLOSING, *(byte for byte in range(256) if byte not in CLOSING + b"-[{\\\n\t\r"), *b"-\\\n\t\r[{")

QUOTE = ord('"')
MOST_CHOICES, OFTEN = 2000, 4
"""Of the search that goes ahead: most bytes that it chooses, and how often one is a reason to try others."""
MOST_STATES = 4000
"""States of the search that goes in breadth, where the other finds nothing."""


class _Bytes:
    """A vocabulary of single bytes, as llguidance asks for one."""

    is_tokenizer_wrapper = True
    eos_token_id = END
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")
    special_token_ids = (END,)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def limits() -> llguidance.LLParserLimits:
    """The engine's limits: what bounds the time and the memory of a step, whatever the grammar."""
    return library().LLParserLimits(  # type: ignore[no-any-return]
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        max_lexer_states=50_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )


def byte_matcher(grammar: Grammar) -> llguidance.LLMatcher:
    """The engine's matcher over bytes, at the start of an answer. Raises GrammarError."""
    found = library()
    tokens = found.LLTokenizer(_Bytes(), n_vocab=END + 1, slices=[])
    matcher = found.LLMatcher(tokens, grammar.rules(), limits=limits(), log_level=0)
    check(matcher, grammar)
    return matcher  # type: ignore[no-any-return]


def check(matcher: llguidance.LLMatcher, grammar: Grammar) -> None:
    """Raises GrammarError where a matcher has given up."""
    if matcher.is_error():
        reason = " ".join(matcher.get_error().replace("<non-verbose/>", "").split())
        reason = "one that no text matches" if reason == "NoExtensionBias" else reason
        raise GrammarError(f"{grammar}: expected one that the engine can follow, found: {reason:.200}")


class ShortEnding:
    """An ending of the answer so far.

    rest: its bytes; they end the answer as a sentence. None where no ending of at most `most` bytes was found
    at the start. enough: see `behind`.
    """

    def __init__(self, start: llguidance.LLMatcher, most: int, enough: int) -> None:
        self._state = start
        self._most = most
        self._ahead: tuple[bytes, llguidance.LLMatcher, bytes] | None = None
        self._shortest: bytes | None = None  # what a search has left of an ending, while that still ends
        self.rest: bytes | None = _search(start, most, enough)

    def behind(self, data: bytes, enough: int) -> bytes | None:
        """An ending behind `data`, which the grammar allows here; None where none was found.

        enough: bytes that are few enough; a longer ending is searched for a shorter one.
        """
        if self._ahead is None or self._ahead[0] != data:
            self._ahead = None
            if not data and self.rest is not None:
                return self.rest
            state = self._state.deep_copy()
            if not state.consume_tokens(list(data)):
                return None
            rest = self._found(data, state, enough)
            if rest is None:
                return None
            self._ahead = (data, state, rest)
        return self._ahead[2]

    def _found(self, data: bytes, state: llguidance.LLMatcher, enough: int) -> bytes | None:
        before = self.rest
        if before is not None:
            if before.startswith(data):
                return before[len(data) :]
            if _ends(state, before):
                if len(before) > enough and before != self._shortest:
                    self._shortest = before = _shortened(state, before)
                return before
        return _search(state, self._most, enough)

    def take(self, data: bytes) -> None:
        """The answer goes on with `data`."""
        if not data:
            return
        self.behind(data, self._most)
        if self._ahead is not None:
            _, self._state, self.rest = self._ahead
        else:  # a token that was given: an ending may be known again behind it
            self._state.consume_tokens(list(data))
            self.rest = None
        self._ahead = None


def _ends(state: llguidance.LLMatcher, rest: bytes) -> bool:
    return bool(state.validate_tokens([*rest, END]) == len(rest) + 1)


def _search(start: llguidance.LLMatcher, most: int, enough: int) -> bytes | None:
    """An ending of at most `most` bytes behind a state of the matcher."""
    for strings in (True, False):
        found = _ahead(start.deep_copy(), most, strings)
        if found is not None:
            return found if len(found) <= enough else _shortened(start, found)
    return _in_breadth(start, most)


def _shortened(start: llguidance.LLMatcher, found: bytes) -> bytes:
    """What is left of an ending without the parts that it needs not have, the longest first."""
    size = len(found) // 2
    while size:
        at = 0
        while at < len(found):
            without = found[:at] + found[at + size :]
            if _ends(start, without):
                found = without
            else:
                at += size
        size //= 2
    return found


def _ahead(state: llguidance.LLMatcher, most: int, strings: bool) -> bytes | None:
    """One path, by the first allowed byte of the order, a byte that was taken often behind the others: so it
    leaves what it would repeat, such as any text before a certain letter. strings: the count begins anew with
    every quotation mark and every part that is forced, as suits JSON.
    """
    path = bytearray()
    taken = [0] * 256
    for _ in range(MOST_CHOICES):
        if state.is_accepting():
            return bytes(path)
        forced = state.compute_ff_bytes()
        if not forced:
            byte = next(_allowed(state), None)
            if byte is None:
                return None
            if taken[byte] >= OFTEN:
                byte = min(_allowed(state), key=lambda each: (each > 127, taken[each] // OFTEN))
            taken[byte] += 1
            if byte == QUOTE and strings:
                taken = [0] * 256
            forced = bytes([byte])
        elif strings:
            taken = [0] * 256
        path += forced
        if len(path) > most or not state.consume_tokens(list(forced)):
            return None
    return None


def _in_breadth(start: llguidance.LLMatcher, most: int) -> bytes | None:
    """The shortest ending within MOST_STATES states."""
    waiting = deque([(b"", start)])
    states = 0
    while waiting:
        path, state = waiting.popleft()
        for byte in _allowed(state):
            states += 1
            after = state.deep_copy()
            if states > MOST_STATES or len(path) == most:
                return None
            if not after.consume_token(byte):
                continue
            if after.is_accepting():
                return path + bytes([byte])
            waiting.append((path + bytes([byte]), after))
    return None


def _allowed(state: llguidance.LLMatcher) -> Iterator[int]:
    """The bytes that may follow, in the order of trial."""
    mask: Any = state.compute_bitmask()
    return (byte for byte in _ORDER if mask[byte >> 3] >> (byte & 7) & 1)
