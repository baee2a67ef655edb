"""ShortEnding: a short way to end an answer as a sentence of its grammar, known at every place of it.

Responsible for the bytes that end it and for the promise that they do. Not responsible for tokens or for when
an answer has to end (see `decode.constrained`).

An answer that runs out of tokens ends with them. What guarantees that it can: an ending is known before the
first token, and a token is written only where an ending behind it is known too. Most endings are found
without a search: what is left of the one before where the token is its beginning; that one again, or a part
of it, where it still ends the answer, as within a string or a number. Otherwise a search goes from byte to
byte over the engine's own masks, what closes first, until a part of the ending before fits, and shortens what
it finds where that is too long. It is not exhaustive: an ending is a sentence, and short, but not proven the
shortest; in a grammar whose only endings are far off none may be found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edge_runtime.errors import GrammarError
from edge_runtime.grammar.grammar import Grammar, library

if TYPE_CHECKING:
    import llguidance

END = 256
"""The end token of the vocabulary of single bytes."""

CLOSING = b'"}],0123456789ntfabcdeghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .'
"""Bytes in the order in which an ending tries them; all others, those that open something last, follow."""
_OPENING = b"-\\\n\t\r[{"
_ORDER = np.array([*CLOSING, *(byte for byte in range(256) if byte not in CLOSING + _OPENING), *_OPENING])
_TEXT = np.where(_ORDER > 127, 1 << 20, 0)
"""Of bytes that are part of a character, by how much later they are tried where one is taken often."""

QUOTE = ord('"')
LONGEST = 1 << 14
"""Bytes of the longest ending that is looked for."""
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

    def __init__(self, start: llguidance.LLMatcher, most: int = LONGEST, enough: int = LONGEST) -> None:
        self._state = start
        self._most = most
        self._ahead: tuple[bytes, bytes | None] | None = None
        self._shortest: bytes | None = None  # what a search has left of an ending, while that still ends
        self.rest: bytes | None = _search(start, most, enough)

    def copy(self, most: int, enough: int) -> ShortEnding:
        """The same place in another answer, with other bounds."""
        other = copy(self)
        other._state, other._most = self._state.deep_copy(), most
        if other.rest is not None and len(other.rest) > enough:
            other.rest = _shortened(other._state, other.rest)
        if other.rest is not None and len(other.rest) > most:
            other.rest = None
        return other

    def behind(self, data: bytes, enough: int) -> bytes | None:
        """An ending behind `data`, which the grammar allows here; None where none was found.

        enough: bytes that are few enough; a longer ending is searched for a shorter one.
        """
        if not data and self.rest is not None:
            return self.rest
        if self._ahead is None or self._ahead[0] != data:
            self._ahead = data, self._found(data, enough)
        return self._ahead[1]

    def _found(self, data: bytes, enough: int) -> bytes | None:
        before = self.rest
        if before is not None:
            if before.startswith(data):
                return before[len(data) :]
            for rest in _parts(before, len(data)):
                if _ends(self._state, data + rest):
                    if len(rest) <= enough or rest == self._shortest:
                        return rest
                    break
        state = self._state.deep_copy()
        if not state.consume_tokens(list(data)):
            return None
        if before is not None and _ends(state, before):
            self._shortest = _shortened(state, before)
            return self._shortest
        return _search(state, self._most, enough, () if before is None else list(_parts(before, len(data))))

    def take(self, data: bytes) -> None:
        """The answer goes on with `data`."""
        if not data:
            return
        self.rest = self.behind(data, self._most)  # None behind some tokens that were given
        self._state.consume_tokens(list(data))
        self._ahead = None


def _ends(state: llguidance.LLMatcher, rest: bytes) -> bool:
    return bool(state.validate_tokens([*rest, END]) == len(rest) + 1)


def _parts(before: bytes, written: int) -> Iterable[bytes]:
    """An ending, and the parts of it that may end the answer behind as many bytes of another text: without as
    many, and from its next quotation mark, comma or bracket on.
    """
    found = [before, before[written:]]
    found += [before[at:] for mark in b'",}]' if (at := before.find(mark)) > 0]
    return dict.fromkeys(found)


def _search(start: llguidance.LLMatcher, most: int, enough: int, parts: Sequence[bytes] = ()) -> bytes | None:
    """An ending of at most `most` bytes behind a state of the matcher. parts: that may be its end."""
    for strings in (True, False):
        found = _ahead(start.deep_copy(), most, strings, parts)
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


def _ahead(
    state: llguidance.LLMatcher, most: int, strings: bool, parts: Sequence[bytes] = ()
) -> bytes | None:
    """One path, by the first allowed byte of the order, a byte that was taken often behind the others: so it
    leaves what it would repeat, such as any text before a certain letter. strings: the count begins anew with
    every quotation mark and every part that is forced, as suits JSON.
    """
    path = bytearray()
    taken = np.zeros(256, np.int64)  # in the order of `_ORDER`
    for _ in range(MOST_CHOICES):
        if state.is_accepting():
            return bytes(path)
        for part in parts:
            if len(path) + len(part) <= most and _ends(state, part):
                return bytes(path) + part
        forced = state.compute_ff_bytes()
        if not forced:
            allowed = _allowed(state)
            place = int(allowed.argmax())
            if not allowed[place]:
                return None
            if taken[place] >= OFTEN:
                place = int(np.where(allowed, _TEXT + taken // OFTEN, 1 << 30).argmin())
            taken[place] += 1
            forced = bytes([_ORDER[place]])
            if strings and forced[0] == QUOTE:
                taken[:] = 0
        elif strings:
            taken[:] = 0
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
        for byte in map(int, _ORDER[_allowed(state)]):
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


def _allowed(state: llguidance.LLMatcher) -> NDArray[np.bool_]:
    """Whether each byte of `_ORDER` may follow."""
    mask = np.frombuffer(state.compute_bitmask(), np.uint8)
    allowed: NDArray[np.bool_] = np.unpackbits(mask, bitorder="little")[_ORDER].astype(bool)
    return allowed
