"""Caches of the conversations that wait for their next turn, while the engine holds another's.

Responsible for which of them a prompt continues, and for the most bytes of all. Not responsible for what is
in a cache (see `engine.caches`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_runtime.decode.tokens import common_prefix
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine

MAX_BYTES = 128 << 20
"""At the shape of Qwen2.5-0.5B some 5,400 tokens."""


class ConversationCaches:
    """Tokens, and their keys and values; the latest is the last. most: bytes of all but the engine's own."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self.most = most
        self._kept: OrderedDict[tuple[int, ...], NDArray[np.float32]] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes of all that wait."""
        return sum(cache.nbytes for cache in self._kept.values())

    def enter(self, engine: Engine, prompt_ids: Sequence[int]) -> None:
        """Gives the engine the cache that has most of a prompt, and keeps the one that this would cut.

        Engines whose cache cannot be read go on with what they hold.
        """
        if not isinstance(engine, OrtEngine):
            return
        shared = {ids: common_prefix(ids, prompt_ids) for ids in self._kept}
        best = max(shared, key=lambda ids: shared[ids], default=())
        here = common_prefix(engine.tokens, prompt_ids)
        found = self._kept.get(best) if shared.get(best, 0) > here else None
        if found is not None:
            self._kept.move_to_end(best)
            if shared[best] == len(best):
                del self._kept[best]  # the engine goes on with it
        if here < engine.length:
            self._keep(engine)
        if found is not None:
            engine.restore(best, found)

    def _keep(self, engine: OrtEngine) -> None:
        """Copies the engine's cache; the oldest go where there are too many bytes."""
        ids = tuple(engine.tokens)
        for earlier in [each for each in self._kept if each == ids[: len(each)]]:
            del self._kept[earlier]
        size = engine.cache_bytes(len(ids))
        while self._kept and self.size + size > self.most:
            self._kept.popitem(last=False)
        if size <= self.most:
            self._kept[ids] = np.concatenate([part.ravel() for part in engine.cached(len(ids))])
