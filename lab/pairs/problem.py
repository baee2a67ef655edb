"""The record of a problem, and the split into training and test problems.

Responsible for the fields that all families share and for the split by hash. Not responsible for the
families.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")

DRILL = "drill"
"""Family of exercises for training only, which are never tested."""

TEST_SHARE = 10
"""One problem in so many is held out for testing."""


@dataclass(frozen=True)
class Problem:
    """One question with a checkable answer.

    prompt, answer: the user's message and a correct answer, as text.
    expected: words that a correct answer contains, in this order (see `check`); for code, the function's name
              and its results.
    key:      content of the problem without its phrasing, which the split hashes.
    split:    False where every problem may be trained on, and only phrasings are held out.
    subject:  the (first) entity that it is about, where there is one.
    """

    family: str
    difficulty: Difficulty
    prompt: str
    answer: str
    expected: tuple[str, ...]
    key: str
    split: bool = True
    subject: str | None = None

    @property
    def held_out(self) -> bool:
        """True for test problems, of which no phrasing is trained on."""
        if not self.split:
            return False
        digest = hashlib.sha256(f"{self.family}|{self.key}".encode()).digest()
        return int.from_bytes(digest[:4], "big") % TEST_SHARE == 0


Draw = Callable[[random.Random, bool], Problem]
"""Draws a problem of one kind: with True its answer is true, with False of the same form and random facts."""
