"""SharedModel: one loaded model for any number of callers: threads, tasks and answers that are half read.

Each caller has a KV cache of its own, so none sees another's text; the passes of all take turns in the order
in which they are asked for. A cache that is given back waits for a text that continues it.

Responsible for who has which cache. Not responsible for running the model (see `ort_engine`) or for what is
in a cache (see `caches`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import Lock

from edge_runtime.engine.base import Engine, common_prefix
from edge_runtime.engine.turns import Turns

MAX_BYTES = 128 << 20
"""Most bytes of caches that wait; at the shape of Qwen2.5-0.5B some 5,400 tokens."""
MAX_WAITING = 16
"""Most caches that wait."""
MAX_CUT = 8
"""Most tokens that a cache loses to another text; one that would lose more is copied."""


class SharedModel:
    """A model that gives each caller an engine by `lease`. Thread-safe.

    engine:     the loaded model; its own cache is the first that waits.
    concurrent: passes that may run at once.
    most:       bytes of caches that wait; the latest always does.
    """

    def __init__(self, engine: Engine, concurrent: int = 1, most: int = MAX_BYTES) -> None:
        self.engine, self.context = engine, engine.context
        engine.turns = Turns(concurrent)
        self._most = most
        self._lock = Lock()
        self._waiting = [engine]  # the latest is the last

    @contextmanager
    def lease(self, text: Sequence[int]) -> Generator[Engine]:
        """An engine for one caller, whose cache begins with what any that waits has of the text's start.

        After an error the cache is not used again.
        """
        engine = self._taken(text)
        try:
            yield engine
        except (GeneratorExit, KeyboardInterrupt):  # the caller has left
            self._give_back(engine)
            raise
        self._give_back(engine)

    def _taken(self, text: Sequence[int]) -> Engine:
        with self._lock:
            found = [(common_prefix(each.tokens, text), each) for each in reversed(self._waiting)]
            shared, best = max(found, key=lambda pair: pair[0], default=(0, self.engine))
            if not found or best.length - shared > MAX_CUT:
                return best.fork(shared)  # it belongs to a conversation that may go on
            self._waiting.remove(best)
            return best

    def _give_back(self, engine: Engine) -> None:
        with self._lock:
            self._waiting.append(engine)
            while len(self._waiting) > 1 and (
                len(self._waiting) > MAX_WAITING
                or sum(each.cache_bytes for each in self._waiting) > self._most
            ):
                del self._waiting[0]
