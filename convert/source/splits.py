"""A published tokenizer.json with its shorthands of how to split text in the form that every device reads.

Not responsible for checking that ids stay the same (see `tokenizer`).
"""

from __future__ import annotations

import json

from edge_runtime.text.splits import SPLITS, pre_tokenizer


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
