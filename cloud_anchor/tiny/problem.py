"""A problem of the tiny world: what is asked, what a right answer says, and whether it may be trained on.

Knows the record that all families share and the split by hash. Does not know the families.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")

TEST_SHARE = 10
"""One problem in this many is held out for testing."""


@dataclass(frozen=True)
class Problem:
    """One question with a checkable answer.

    prompt, answer: the user's words and a right answer, as text.
    expected: what a right answer must contain, in this order (see `check`); for code, the calls and results.
    key: the content of the problem without its phrasing; the split hashes this.
    """

    family: str
    difficulty: Difficulty
    prompt: str
    answer: str
    expected: tuple[str, ...]
    key: str

    @property
    def held_out(self) -> bool:
        """True for test problems: no phrasing of them is ever trained on."""
        digest = hashlib.sha256(f"{self.family}|{self.key}".encode()).digest()
        return int.from_bytes(digest[:4], "big") % TEST_SHARE == 0
