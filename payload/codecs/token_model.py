"""The token model of codec compact: a log-linear context model in integers.

Responsible for the probability of the next token, given the prompt, the tokens coded so far and a `Prior`:
every candidate has a score, a sum of weights in 1/16 bits, and a mass of 2^(score/16). Not responsible for
runs or bytes. SPEC.md defines the same model.

Candidates, in the order of their intervals:
  END          where allowed;
  context      tokens that a context predicts: they follow the last one or two tokens in the prior's pairs and
               triples, or followed the last token at an earlier place in the prompt or the answer;
  slots        every common token of the prior and every token of prompt and answer;
  escape       any id, by its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from payload.codecs.prior import END, START, Prior, mass
from payload.codecs.range_coder import Coder

GAP = -3
"""Marks one or more positions without a token: no context reaches across."""

MAX_PROMPT_IDS = 4096
"""Last ids of the prompt that are used: bounds the time."""
MAX_OCCURRENCES = 24
MAX_MATCH = 6
_COUNT_CLASS = (0, 1, 2, 2, 3, 3, 3)
"""Class of a count in the prompt; 4 from 7 on. In the answer: at most 3."""


class ContextCandidate(NamedTuple):
    """A candidate that a context predicts: classes of its pair, its triple and its matches.

    prompt_match, answer_match: class of its longest match in the prompt and in the answer. For END,
    `prompt_match` is the best match in the prompt of a token that ends a line.
    """

    id: int
    pair: int
    triple: int
    prompt_match: int
    answer_match: int

    @property
    def source(self) -> int:
        """The sources of the prediction: 1 statistics, 2 matches, 3 both."""
        return (1 if self.pair or self.triple else 0) + (2 if self.prompt_match or self.answer_match else 0)


class TokenModel:
    """Codes one answer's tokens in ascending position."""

    def __init__(self, prior: Prior, vocab_size: int, prompt_ids: Sequence[int]) -> None:
        self._weights = prior.weights
        self._words = prior.words
        self._vocab_size = vocab_size
        self._coded = 0
        self._tokens: list[int] = []
        self._alike: list[int] = []
        self._places: dict[int, list[int]] = {}
        common = prior.common
        self._slot = dict(common.slot)
        self._slots = list(common.slot)
        self._base = list(common.scores)
        self._masses = common.masses.copy()
        self._prompt_count: dict[int, int] = {}
        self._answer_count: dict[int, int] = {}
        for token in prompt_ids[-MAX_PROMPT_IDS:]:
            self._append(token)
            if 0 <= token < vocab_size:
                self._prompt_count[token] = self._prompt_count.get(token, 0) + 1
        for token in self._prompt_count:
            self._update_slot(token)
        self._answer = len(self._tokens)
        self._append(START)

    def gap(self) -> None:
        """The next positions hold no token."""
        if self._tokens[-1] != GAP:
            self._append(GAP)

    def push(self, token: int) -> None:
        """The next position holds a token that a base gives."""
        self._append(token)
        self._answer_count[token] = self._answer_count.get(token, 0) + 1
        self._update_slot(token)

    def code(self, coder: Coder, token: int, *, may_end: bool) -> int:
        """Code the token at the next position, or END, and adapt to it."""
        candidates, longest = self.context_candidates()
        if not may_end:
            del candidates[0]
        ids = [candidate.id for candidate in candidates]
        starts = list(accumulate([mass(self.score(each)) for each in candidates], initial=0))
        masses = self._masses.numbers
        excluded = [self._slot[each] for each in ids if each in self._slot]
        slots_at = starts[-1]
        escape_at = slots_at + self._masses.total - sum([masses[slot] for slot in excluded])
        escape = mass(self._weights.escape[self.escape_class(longest)])
        total = escape_at + escape
        if coder.encoder:
            if token in ids:
                index = ids.index(token)
                coder.encoder.put(starts[index], starts[index + 1] - starts[index], total)
            elif token in self._slot:
                slot = self._slot[token]
                before = self._masses.before(slot) - sum(masses[h] for h in excluded if h < slot)
                coder.encoder.put(slots_at + before, masses[slot], total)
            else:
                coder.encoder.put(escape_at, escape, total)
                self._rank(coder, token)
        else:
            assert coder.decoder
            target = coder.decoder.target(total)
            if target < slots_at:
                index = 0
                while starts[index + 1] <= target:
                    index += 1
                coder.decoder.take(starts[index], starts[index + 1] - starts[index], total)
                token = ids[index]
            elif target < escape_at:
                # `skipped` is what the excluded slots before the target would take.
                skipped = 0
                for slot in sorted(excluded):
                    if self._masses.before(slot) > target - slots_at + skipped:
                        break
                    skipped += masses[slot]
                slot = self._masses.find(target - slots_at + skipped)
                coder.decoder.take(slots_at + self._masses.before(slot) - skipped, masses[slot], total)
                token = self._slots[slot]
            else:
                coder.decoder.take(escape_at, escape, total)
                token = self._rank(coder, 0)
        self._coded += 1
        if token != END:
            self.push(token)
        return token

    def escape_class(self, longest: int) -> int:
        """Class of an escape: by the longest match, and whether a token precedes."""
        return min(longest, 4) + (5 if self._tokens[-1] >= 0 else 0)

    def _rank(self, coder: Coder, token: int) -> int:
        """Code any id: the bit length of id + 1, then its index among the ids of that length."""
        bits = self._vocab_size.bit_length()
        length = coder.choice((token + 1).bit_length() - 1, self._weights.escape_bits[:bits])
        first = (1 << length) - 1
        many = min(1 << length, self._vocab_size - first)
        return first + coder.uniform(token - first if coder.encoder else 0, many)

    def _append(self, token: int) -> None:
        alike = self._words.alike.get(token, token)
        self._places.setdefault(alike, []).append(len(self._tokens))
        self._tokens.append(token)
        self._alike.append(alike)

    def features(self, token: int) -> tuple[int, bool, int, int, int]:
        """The features of a token that no context changes: frequency class, presence, rank, two counts."""
        known = self._words.classes.get(token, 0)
        in_prompt = self._prompt_count.get(token, 0)
        in_answer = self._answer_count.get(token, 0)
        return (
            known,
            in_prompt > 0 or in_answer > 0,
            0 if known else min(17, (token + 1).bit_length()),
            _COUNT_CLASS[in_prompt] if in_prompt < 7 else 4,
            min(3, in_answer),
        )

    def _score(self, token: int) -> int:
        """The score of a token that no context predicts."""
        weights = self._weights
        known, present, rank, in_prompt, in_answer = self.features(token)
        return (
            (weights.seen if present else weights.unseen)[known]
            + weights.rank[rank]
            + weights.prompt_count[in_prompt]
            + weights.answer_count[in_answer]
        )

    def _update_slot(self, token: int) -> None:
        """Give a token a slot, or update the mass of its slot."""
        score = self._score(token)
        slot = self._slot.get(token)
        if slot is None:
            self._slot[token] = len(self._slots)
            self._slots.append(token)
            self._base.append(score)
            self._masses.append(mass(score))
        else:
            self._base[slot] = score
            self._masses[slot] = mass(score)

    def context_candidates(self) -> tuple[list[ContextCandidate], int]:
        """END, then the tokens that a context predicts; and the length of the longest match."""
        words, last = self._words, self._tokens[-1]
        pairs = words.pairs.get(last, {})
        triples = words.triples.get((self._tokens[-2], last), {}) if last >= 0 else {}
        in_prompt, in_answer = self._matches()
        prompt_longest = max(in_prompt.values(), default=0)
        answer_longest = max(in_answer.values(), default=0)
        prompt_alone = sum(length == prompt_longest for length in in_prompt.values()) == 1
        answer_alone = sum(length == answer_longest for length in in_answer.values()) == 1
        out = []
        line = 0
        for token in dict.fromkeys((*pairs, *triples, *in_prompt, *in_answer)):
            if token == END:
                continue
            prompt_match = _match(in_prompt[token], prompt_longest, prompt_alone) if token in in_prompt else 0
            answer_match = _match(in_answer[token], answer_longest, answer_alone) if token in in_answer else 0
            pair, triple = pairs.get(token, 0), triples.get(token, 0)
            out.append(ContextCandidate(token, pair, triple, prompt_match, answer_match))
            if prompt_match > line and token in words.breaks:
                line = prompt_match
        end = ContextCandidate(END, pairs.get(END, 0), triples.get(END, 0), line, 0)
        return [end, *out], max(prompt_longest, answer_longest)

    def score(self, token: ContextCandidate) -> int:
        weights = self._weights
        if token.id == END:
            return (
                weights.end_pair[token.pair]
                + weights.triple[token.triple]
                + weights.end_line[token.prompt_match]
                + weights.end_age[min(6, (self._coded + 1).bit_length())]
            )
        slot = self._slot.get(token.id)
        base = self._score(token.id) if slot is None else self._base[slot]
        source = token.source
        return (
            base
            + (base * weights.scale[source] >> 4)
            + weights.source[source]
            + weights.pair[token.pair]
            + weights.triple[token.triple]
            + weights.prompt_match[token.prompt_match]
            + weights.answer_match[token.answer_match]
        )

    def _matches(self) -> tuple[dict[int, int], dict[int, int]]:
        """Tokens that followed earlier occurrences of the last one, with the length of the longest common
        context: in the prompt, in the answer.
        """
        in_prompt: dict[int, int] = {}
        in_answer: dict[int, int] = {}
        tokens, alike, end = self._tokens, self._alike, len(self._tokens) - 1
        if tokens[end] < 0:
            return in_prompt, in_answer
        places = self._places[alike[end]]
        for place in places[-2 : -2 - MAX_OCCURRENCES : -1]:
            token = tokens[place + 1]
            if not 0 <= token < self._vocab_size:
                continue
            length = 1
            while (
                length < MAX_MATCH
                and length <= place
                and alike[place - length] == alike[end - length]
                and alike[end - length] >= 0
            ):
                length += 1
            found = in_prompt if place < self._answer else in_answer
            if length > found.get(token, 0):
                found[token] = length
        return in_prompt, in_answer


def _match(length: int, longest: int, alone: bool) -> int:
    """Class of a match, 0 being for none: by length, and whether it is the longest and the only one."""
    return 1 + (length - 1) * 3 + (0 if length < longest else 2 if alone else 1)
