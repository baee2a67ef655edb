"""A sketch in words that the device expands to a text (as in PICE, arXiv 2501.09367).

Responsible for the words of a sketch and for expanding it. Not responsible for the model or for bytes.

PICE's device model is told to expand a sketch. A tiny model follows no such instruction, so here it is made
to: the sketch is the words of the finished answer that carry a fact, without positions; the device writes
greedily and has to use them in their order. A word is taken where the model finds its first token likely
enough, where it would end the answer, and where it has waited long enough. That is generous: no word is lost,
and no instruction is misread.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from edge_runtime.decode.sampling import Sampling, distribution
from edge_runtime.engine.base import Engine

LIKELY = 0.05
"""Share of the likeliest token's probability from which a word's first token is likely enough."""
PATIENCE = 8
"""Tokens after which the next word is taken."""


STRUCTURE = frozenset(
    "a an the and or but if then so because as of in on at to from by for with without into over under is "
    "are was were be been has have had do does did it its this that these those there here each every all "
    "any some no not i you he she we they his her their our your my which who what when where how than also "
    "let us can will would should may def return else elif while import lambda".split()
)
"""Function words of sentences and programs, which carry no fact."""


def structural(text: str) -> bool:
    """True for punctuation, white space and words of `STRUCTURE`."""
    word = text.strip().strip(string.punctuation).lower()
    return not word or word in STRUCTURE


def sketch_words(text: str) -> list[str]:
    """The words of a text that carry a fact, with the white space before them."""
    return [word for word in re.findall(r"\s*\S+", text) if not structural(word)]


def expand(
    engine: Engine,
    words: Sequence[Sequence[int]],
    prompt_ids: Sequence[int],
    ends: frozenset[int],
    room: int,
) -> tuple[list[int], list[bool]]:
    """The answer of at most `room` tokens, and which of its tokens are the sketch's.

    words: token ids of each word, in order, at least one each.
    """
    ids: list[int] = []
    given: list[bool] = []
    left = list(words)
    engine.rewind(0)
    pending, waited = list(prompt_ids), 0
    while len(ids) < room:
        chances = distribution(engine.append(pending, [len(pending) - 1])[0], Sampling())
        own = int(chances.argmax())
        if left and (
            own in ends or waited >= PATIENCE or chances[left[0][0]] >= LIKELY * float(chances[own])
        ):
            pending, waited = list(left.pop(0))[: room - len(ids)], 0
        elif own in ends:
            break
        else:
            pending, waited = [own], waited + 1
        # The device's own token may be the word's: then it is the word.
        given += [waited == 0] * len(pending)
        ids += pending
    return ids, given
