"""What a device takes back of early payloads, counted by hand on a model that writes the next number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edge_runtime.decode.forced import fill
from edge_runtime.engine.base import BaseEngine, Logits
from lab.experiments.taken_back import taken_back
from payload import AnchorSet, Contract

WORDS = 100
CONTRACT = Contract(WORDS, "0" * 64, {"<|endoftext|>": WORDS, "<|im_end|>": WORDS + 1}, "1" * 64)


class Counting(BaseEngine):
    """Writes the number that follows the last one."""

    def __init__(self) -> None:
        super().__init__(context=64, vocab=WORDS + 2)

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        text = [*self.tokens, *ids]
        return np.eye(self.vocab, dtype=np.float32)[[text[self.length + row] + 1 for row in rows]]


def anchors(length: int, **places: int) -> AnchorSet:
    return AnchorSet.of({int(place[1:]): token for place, token in places.items()}, 16, CONTRACT, length)


def written(payload: AnchorSet) -> list[int]:
    return [token.id for token in fill(Counting(), [9], payload)]


@pytest.mark.parametrize(
    ("payloads", "retracted", "changed"),
    [
        ([anchors(6)], 0, 0),
        ([anchors(6), anchors(6)], 0, 0),
        ([anchors(6), anchors(8)], 0, 0),  # only longer
        ([anchors(6), anchors(4)], 2, 2),  # only shorter
        ([anchors(6), anchors(6, _4=50)], 2, 2),  # 10 .. 13, 50, 51
        ([anchors(6, _2=50), anchors(6, _2=50, _4=52)], 0, 0),  # as the model writes it itself
        ([anchors(6), anchors(6, _1=30), anchors(6)], 10, 10),  # there and back
        ([anchors(6, _1=30, _2=12), anchors(6, _1=40, _2=12)], 5, 1),  # the rest comes again as it was
    ],
)
def test_every_retraction_counts_and_what_comes_again_is_no_change(
    payloads: list[AnchorSet], retracted: int, changed: int
) -> None:
    found = taken_back(Counting(), [9], payloads, 16)
    assert (found.retracted, found.changed) == (retracted, changed)
    assert found.text == written(payloads[-1])
