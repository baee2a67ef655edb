"""python -m lab.structured.calls: function calls of a small model, with and without a grammar.

A dozen tools and two requests for each. The tools stand in the system message; the answer is to be one call
as JSON. Counted: whether an answer is a call that is valid against its tool's schema, whether it calls the
right tool, whether its arguments are the expected ones, and the passes of the model.

Responsible for the tools, the requests and the counts. Not responsible for grammars.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.cli import CommandParser, option, run_command
from edge_runtime.decode.forced import FillOptions
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.runtime import EdgeRuntime, FillRequest
from edge_runtime.text.chat import Message
from lab.machine import machine
from lab.report import write_tables
from lab.store import Store
from lab.tables import Row, Table
from payload import AnchorSet

_STRING, _WHOLE = {"type": "string"}, {"type": "integer"}


def _tool(name: str, about: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": parameters,
        "required": list(parameters),
        "additionalProperties": False,
    }
    return {"name": name, "description": about, "parameters": schema}


TOOLS = [
    _tool("weather", "The weather in a city", city=_STRING),
    _tool("timer", "Start a timer", minutes=_WHOLE),
    _tool("alarm", "Set an alarm", hour={"type": "integer", "minimum": 0, "maximum": 23}, minute=_WHOLE),
    _tool("call", "Call a person", person=_STRING),
    _tool("message", "Send a message", person=_STRING, text=_STRING),
    _tool("light", "Switch a light", room=_STRING, state={"enum": ["on", "off"]}),
    _tool(
        "heating", "Set the heating", room=_STRING, degrees={"type": "integer", "minimum": 5, "maximum": 30}
    ),
    _tool("play", "Play music", artist=_STRING),
    _tool("volume", "Set the volume", percent={"type": "integer", "minimum": 0, "maximum": 100}),
    _tool("route", "The way to a place", place=_STRING, by={"enum": ["car", "train", "foot"]}),
    _tool(
        "convert", "Convert money", amount={"type": "number"}, to={"type": "string", "pattern": "^[A-Z]{3}$"}
    ),
    _tool("note", "Write a note", text=_STRING),
]

REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("What is the weather in Oslo?", "weather", {"city": "Oslo"}),
    ("Will it rain in Madrid?", "weather", {"city": "Madrid"}),
    ("Start a timer of 10 minutes.", "timer", {"minutes": 10}),
    ("Tell me when 25 minutes are over.", "timer", {"minutes": 25}),
    ("Set an alarm for 7:30.", "alarm", {"hour": 7, "minute": 30}),
    ("Wake me at 6:15.", "alarm", {"hour": 6, "minute": 15}),
    ("Call Anna.", "call", {"person": "Anna"}),
    ("I want to talk to Peter on the phone.", "call", {"person": "Peter"}),
    ("Send Maria the message: I am late", "message", {"person": "Maria", "text": "I am late"}),
    ("Write to Tom: see you at eight", "message", {"person": "Tom", "text": "see you at eight"}),
    ("Switch on the light in the kitchen.", "light", {"room": "kitchen", "state": "on"}),
    ("Turn the bedroom light off.", "light", {"room": "bedroom", "state": "off"}),
    ("Heat the bathroom to 22 degrees.", "heating", {"room": "bathroom", "degrees": 22}),
    ("Set the heating in the office to 19.", "heating", {"room": "office", "degrees": 19}),
    ("Play something by Mozart.", "play", {"artist": "Mozart"}),
    ("I want to hear Abba.", "play", {"artist": "Abba"}),
    ("Set the volume to 40 percent.", "volume", {"percent": 40}),
    ("Make it as loud as 80 percent.", "volume", {"percent": 80}),
    ("How do I get to Vienna by train?", "route", {"place": "Vienna", "by": "train"}),
    ("Show me the way to the museum on foot.", "route", {"place": "museum", "by": "foot"}),
    ("How much is 50 in USD?", "convert", {"amount": 50, "to": "USD"}),
    ("Convert 12.5 to EUR.", "convert", {"amount": 12.5, "to": "EUR"}),
    ("Note: buy milk", "note", {"text": "buy milk"}),
    ("Write down: the code is 4711", "note", {"text": "the code is 4711"}),
]

SYSTEM = (
    "Answer with one call of a tool as JSON, such as "
    '{"name": "call", "arguments": {"person": "Eve"}}, and nothing else. The tools: '
)


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    edge: Path = option(
        None,
        "the bundle, with a context of 512 tokens or more",
        Path,
        metavar="BUNDLE",
        required=True,
    )
    requests: int = option(len(REQUESTS), "the first N requests (default: all)", metavar="N")
    max_tokens: int = option(96, "most tokens of an answer (default 96)", metavar="N")
    output: Path | None = option(
        None, "also write tables.json here, for publish", Path, metavar="FOLDER", flags=("-o", "--output")
    )


def described(tool: dict[str, Any]) -> str:
    """A tool in a line: its call, and what it does."""
    return f"{tool['name']}({', '.join(tool['parameters']['properties'])}): {tool['description']}"


def judged(text: str, tool: str, arguments: dict[str, Any]) -> dict[str, bool]:
    """Whether a text is a valid call, of the right tool, with the expected arguments."""
    import jsonschema

    by_name = {each["name"]: each["parameters"] for each in TOOLS}
    try:
        call = json.loads(text)
        valid = isinstance(call, dict) and set(call) == {"name", "arguments"} and call["name"] in by_name
        if valid:
            jsonschema.validate(call["arguments"], by_name[call["name"]])
    except (ValueError, TypeError, jsonschema.ValidationError):
        valid = False
    right = valid and call["name"] == tool
    return {"valid": valid, "tool": right, "arguments": right and call["arguments"] == arguments}


def measured(edge: EdgeRuntime, options: CallOptions) -> dict[str, dict[str, float]]:
    """Shares and mean passes, free and within the grammar."""
    grammar = edge.compiled(Grammar.tools(TOOLS), trusted=True)
    system = SYSTEM + "; ".join(map(described, TOOLS))
    report: dict[str, dict[str, float]] = {}
    for name, held in (("free", None), ("grammar", grammar)):
        sums: dict[str, float] = dict.fromkeys(("valid", "tool", "arguments", "passes", "tokens"), 0.0)
        for said, tool, arguments in REQUESTS[: options.requests]:
            ids = edge.prompt_ids((Message("system", system), Message("user", said)))
            nothing = AnchorSet.empty(options.max_tokens, edge.bundle.contract)
            answer = edge.fill(
                FillRequest(ids, nothing), FillOptions(max_tokens=options.max_tokens, grammar=held)
            )
            tokens = [token.id for token in answer]
            found: dict[str, float] = {
                **judged(edge.bundle.tokenizer.decode(tokens).strip(), tool, arguments)
            }
            found |= {"passes": answer.stats.passes, "tokens": len(tokens)}
            for key, value in found.items():
                sums[key] += value
        report[name] = {key: value / min(options.requests, len(REQUESTS)) for key, value in sums.items()}
    return report


def _run(options: CallOptions) -> int:
    edge = EdgeRuntime.open(options.edge)
    asked = min(options.requests, len(REQUESTS))
    model = f"{edge.bundle.manifest.model.id}, {edge.bundle.variant_name}"
    settings = {"edge": model, "requests": asked, "most": options.max_tokens}
    store = Store(options.output, settings) if options.output else None
    found = measured(edge, options)
    print(json.dumps(found, indent=1))
    said = (
        f"{asked} requests to {len(TOOLS)} tools, which stand in the system message; at most "
        f"{options.max_tokens} tokens. Model: {model}. valid: a call that is valid against its tool's "
        f"schema; tool: and of the right tool; arguments: and with the expected ones. Machine: {machine()}."
    )
    if store is not None:
        title = "Function calls, free and within the grammar"
        rows: list[Row] = [{"answers": name, **each} for name, each in found.items()]
        write_tables(store, title, [said], [Table.of("calls", title, rows)])
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.structured.calls",
        description=__doc__,
        epilog="example:\n  python -m lab.structured.calls --edge bundles/qwen2.5-0.5b   # a few minutes",
    )
    parser.declare(CallOptions)
    options = parser.parse(CallOptions, argv)
    return run_command("calls", lambda: _run(options))


if __name__ == "__main__":
    sys.exit(main())
