"""The options of commands that ask for an answer in a grammar.

Responsible for the options and for reading their files. Not responsible for what a grammar is (see
`grammar`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from common.cli import option
from edge_runtime.grammar.errors import GrammarError
from edge_runtime.grammar.grammar import MAX_GRAMMAR_BYTES, Grammar


@dataclass(frozen=True, kw_only=True)
class GrammarOptions:
    """What the answer is to be (see `read_grammar`)."""

    json_schema: Path | None = option(
        None,
        "answer with JSON for the JSON Schema in this file",
        Path,
        metavar="FILE",
        either="grammar",
    )
    tools: Path | None = option(
        None,
        "answer with a call of a tool in this JSON list",
        Path,
        metavar="FILE",
        either="grammar",
    )
    grammar: Path | None = option(
        None,
        "answer in the Lark grammar in this file",
        Path,
        metavar="FILE",
        either="grammar",
    )


def read_grammar(args: GrammarOptions) -> Grammar | None:
    """The grammar that is asked for; None where none is. Raises GrammarError."""
    if args.json_schema is not None:
        return Grammar.json_schema(_text(args.json_schema))
    if args.grammar is not None:
        return Grammar.lark(_text(args.grammar))
    if args.tools is None:
        return None
    try:
        tools = json.loads(_text(args.tools))
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"{args.tools}: expected JSON, found: {error}") from None
    if not isinstance(tools, list):
        raise GrammarError(f"{args.tools}: expected a JSON list of tools, found {tools!r:.60}")
    return Grammar.tools(tools)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_GRAMMAR_BYTES + 1)
        return data.decode("utf-8")
    except OSError as error:
        raise GrammarError(f"{path}: expected a readable file, found: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise GrammarError(f"{path}: expected UTF-8, found byte {error.object[error.start]:#04x}") from None
