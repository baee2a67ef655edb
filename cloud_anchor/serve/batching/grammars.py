"""Grammars of requests, which are strangers' programs: tried, compiled and kept.

Responsible for how many are tried at once and how many wait. Not responsible for the limits of a trial (see
`edge_runtime.grammar.trial`) or for what is done with a grammar (see `engine`).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.serve.errors import INVALID_SCHEMA, overloaded, refused, too_late
from cloud_anchor.serve.settings import Limits
from edge_runtime.grammar.errors import GrammarError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar

TRIALS = 2
"""At once, each a process; a trial goes on where its client has left."""
KEPT = 64
"""Compiled grammars, those that were asked for last."""


class Grammars:
    """The grammars of a service; to be used in one event loop."""

    def __init__(self, pipeline: Pipeline, limits: Limits) -> None:
        self._pipeline = pipeline
        self._most = limits.schemas
        self._pool = ThreadPoolExecutor(TRIALS, "grammar")
        self._kept: dict[Grammar, CompiledGrammar] = {}
        self._waiting = 0

    async def compiled(self, grammar: Grammar, seconds: float) -> CompiledGrammar:
        """A grammar in the payloads' vocabulary; raises ServiceError where it cannot be used, or not now."""
        found = self._kept.pop(grammar, None) or await self._tried(grammar, seconds)
        self._kept[grammar] = found
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    async def _tried(self, grammar: Grammar, seconds: float) -> CompiledGrammar:
        if self._waiting >= self._most:
            raise overloaded(f"fewer than {self._most} schemas to be tried", f"{self._waiting} of them", 5.0)
        self._waiting += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, self._made, grammar)
            return await asyncio.wait_for(work, seconds)
        except TimeoutError:
            raise too_late(seconds) from None
        except GrammarError as error:
            raise refused(error, 400, INVALID_SCHEMA) from None
        finally:
            self._waiting -= 1

    def _made(self, grammar: Grammar) -> CompiledGrammar:
        return CompiledGrammar(grammar, self._pipeline.grammar_vocabulary)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
