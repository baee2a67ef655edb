"""Errors of grammars: one that cannot be used, and one whose sentences are too long for the answer."""

from __future__ import annotations

from edge_runtime.errors import ContextError, UsageError


class GrammarError(UsageError):
    """A schema, a regular expression or a grammar that cannot be used."""


class GrammarRoomError(ContextError):
    """No sentence of the grammar was found that the answer has room for."""
