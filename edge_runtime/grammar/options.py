"""The options of commands that ask for an answer in a grammar.

Responsible for the options and for reading their files. Not responsible for what a grammar is (see
`grammar`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from common.cli import option
from common.files import read_text
from edge_runtime.grammar.errors import GrammarError
from edge_runtime.grammar.grammar import Grammar


@dataclass(frozen=True, kw_only=True)
class GrammarOptions:
    """What the answer is to be (see `read_grammar`)."""

    json_schema: Path | None = option(
        None, "answer with JSON for the JSON Schema in this file", either="grammar"
    )
    tools: Path | None = option(None, "answer with a call of a tool in this JSON list", either="grammar")
    grammar: Path | None = option(None, "answer in the Lark grammar in this file", either="grammar")


def read_grammar(args: GrammarOptions) -> Grammar | None:
    """The grammar that is asked for; None where none is. Raises GrammarError."""
    if args.json_schema is not None:
        return Grammar.json_schema(read_text(args.json_schema, GrammarError))
    if args.grammar is not None:
        return Grammar.lark(read_text(args.grammar, GrammarError))
    if args.tools is None:
        return None
    try:
        tools = json.loads(read_text(args.tools, GrammarError))
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"{args.tools}: expected JSON, found: {error}") from None
    if not isinstance(tools, list):
        raise GrammarError(f"{args.tools}: expected a JSON list of tools, found {tools!r:.60}")
    return Grammar.tools(tools)
