"""Where a vocabulary splits text before merging, as every device reads it: expressions, then bytes.

Responsible for that form, and for putting the shorthands of a published tokenizer.json into it. Not
responsible for checking that ids stay the same (see `tokenizer`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edge_runtime.text.splits import SPLITS

Json = dict[str, Any]


def pre_tokenizer(expressions: Sequence[str]) -> Json:
    """The `pre_tokenizer` of a tokenizer.json: split by each expression in turn, then to bytes."""
    splits = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, byte_level()]}


def byte_level() -> Json:
    """The step that writes each byte as a character, without a split of its own."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def with_plain_splits(text: str) -> str:
    """A tokenizer.json with single digits and GPT-2's own split written as expressions; else unchanged."""
    data = json.loads(text)
    given = data.get("pre_tokenizer") or {}
    steps = given.get("pretokenizers", []) if given.get("type") == "Sequence" else [given]
    expressions: list[str] = []
    for step in steps[:-1]:
        if step.get("type") != "Digits" or not step.get("individual_digits"):
            return text
        expressions.append(SPLITS["digits"])
    last = steps[-1] if steps else {}
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space") or not last.get("use_regex", True):
        return text
    data["pre_tokenizer"] = pre_tokenizer([*expressions, SPLITS["gpt2"]])
    return json.dumps(data, ensure_ascii=False)
