"""`tokenizer.json` and `chat_template.json` of a bundle, then text through them and back.

A NUL byte stands between the two.
"""

from __future__ import annotations

import json

from edge_runtime.bundle.bundle import TEMPLATE, TOKENIZER, Bundle, contract_of
from edge_runtime.errors import EdgeError
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.tokenizer import TextStream
from tests.checkpoints import tokenizer_json
from tests.fuzz.json_mutator import OfBytes
from tests.fuzz.json_mutator import mutated as mutated_json
from tests.fuzz.scratch import folder

ALLOWED = (EdgeError,)
INSTRUMENTED = ("edge_runtime.bundle.bundle", "edge_runtime.text", "payload.contract")
MAX_BYTES = 1 << 15

TEXTS = ("Hello, world 12 <|im_start|>user\n", "naïve – 日本語 🎈\0")


def run(data: bytes) -> None:
    for name, part in zip((TOKENIZER, TEMPLATE), data.partition(b"\0")[::2], strict=True):
        (folder() / name).write_bytes(part)
    bundle = Bundle(folder(), None, "")  # type: ignore[arg-type]
    template, tokenizer = bundle.template, bundle.tokenizer
    stream = TextStream(tokenizer)
    for text in (*TEXTS, template.render(TEXTS[0])):
        for id in tokenizer.encode(text):
            stream.push(id)
    ids = tokenizer.encode_bytes(TEXTS[1].encode() + b"\xff")
    assert b"".join(map(tokenizer.token_bytes, ids)) == TEXTS[1].encode() + b"\xff"
    for id in (-1, 0, 5, tokenizer.size, 1 << 40):
        tokenizer.token_bytes(id)
    PromptForm(tokenizer, template, contract_of(folder())).ids(TEXTS[0])


def seeds() -> list[bytes]:
    """A vocabulary of every byte and some merges, in the forms that are written of it."""
    tokenizer = tokenizer_json(270)
    template = {
        "default_system": "Be brief.",
        **{role: [f"<|im_start|>{role}\n", "<|im_end|>\n"] for role in ("system", "user", "assistant")},
        "generation": "<|im_start|>assistant\n",
    }
    joined = {**tokenizer["model"], "merges": [" ".join(each) for each in tokenizer["model"]["merges"]]}
    forms = [
        (tokenizer, template),
        ({**tokenizer, "model": joined}, {**template, "default_system": None}),
        ({**tokenizer, "normalizer": {"type": "NFC"}}, template),
    ]
    return [b"\0".join(json.dumps(part).encode() for part in parts) for parts in forms]


def mutated(data: bytes, most: int, seed: int, of_bytes: OfBytes) -> bytes:
    """As of JSON, in one of the two."""
    parts = list(data.partition(b"\0")[::2])
    place = seed % 2
    left = most - 1 - len(parts[1 - place])
    if left <= 0:
        return of_bytes(data, most)
    parts[place] = mutated_json(parts[place], left, seed, of_bytes)
    return b"\0".join(parts)
