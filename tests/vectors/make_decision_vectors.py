"""Writes decision_vectors.json: forms with their identity, decisions with what they hold, and broken ones.

Run it again after a change of the format:

    python -m tests.vectors.make_decision_vectors
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edge_runtime.form import Form
from payload.decisions import decode_decisions, encode_decisions

OUTPUT = Path(__file__).with_name("decision_vectors.json")
SCHEMAS: list[dict[str, Any]] = [
    json.loads(Path("edge_runtime/triage.json").read_text()),
    {"type": "object", "properties": {"fine": {"type": "boolean"}}},
    {
        "description": 'Größe, "Maß"\n',
        "properties": {
            "wie groß": {"enum": ["klein", 'sehr "groß"\t', "\u0001🙂"]},
            "stars": {"type": "integer", "minimum": -1, "maximum": 5, "description": "of five"},
            "mixed": {"enum": [None, True, 7, "x"]},
            "rooms": {"type": "array", "items": {"enum": ["küche", 2, None]}, "uniqueItems": True},
        },
    },
    {"properties": {f"q{n}": {"type": "integer", "minimum": 0, "maximum": n % 9 + 1} for n in range(64)}},
]
REFUSED: list[dict[str, Any]] = [
    {"properties": {}},
    {"properties": {"a": {"type": "string"}}},
    {"properties": {"a": {"enum": ["x"]}}},
    {"properties": {"a": {"enum": ["x", "x"]}}},
    {"properties": {"a": {"enum": [0.5, 1]}}},
    {"properties": {"a": {"enum": ["x", "y"], "minLength": 3}}},
    {"properties": {"a": {"type": "integer", "minimum": 0, "maximum": 64}}},
    {"properties": {f"a{n}": {"type": "boolean"} for n in range(65)}},
    {"properties": {"a": {"enum": ["x" * 5000, "y"]}}},
]


def vectors() -> dict[str, Any]:
    random = np.random.default_rng(0)
    forms, decisions = [], []
    for number, schema in enumerate(SCHEMAS):
        form = Form.of(schema)
        titles, labels = [slot.title for slot in form.slots], [list(slot.labels) for slot in form.slots]
        value = form.value([size - 1 for size in form.sizes])
        text = json.dumps(schema, ensure_ascii=False)
        forms.append({"schema": text, "identity": form.identity.hex(), "titles": titles, "labels": labels})
        forms[-1]["value_of_last"] = value
        for spread, share in ((0.1, 1.0), (1.0, 1.0), (0.5, 0.5), (1.0, 0.0)):
            about = f"The line is down, größer {share}."
            asked = [at for at in range(len(form.sizes)) if random.random() < share]
            exact = {at: random.dirichlet([spread] * form.sizes[at]).tolist() for at in asked}
            data = encode_decisions(form.identity, about, form.sizes, exact)
            read = decode_decisions(data, form.identity, about, form.sizes)
            decisions.append({"form": number, "text": about, "data": data.hex(), "probabilities": read})
    broken = []
    for name, made in (
        ("malformed", lambda data: data[:3]),
        ("malformed", lambda data: data + bytes(300)),
        ("version", lambda data: b"\x40" + data[1:]),
        ("checksum", lambda data: data[:1] + bytes([data[1] ^ 1]) + data[2:]),
        ("checksum", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    ):
        first = decisions[0]
        broken.append({**first, "data": made(bytes.fromhex(first["data"])).hex(), "error": name})
        del broken[-1]["probabilities"]
    return {"forms": forms, "refused": [json.dumps(each) for each in REFUSED], "decisions": decisions} | {
        "broken": broken
    }


if __name__ == "__main__":
    OUTPUT.write_text(json.dumps(vectors(), ensure_ascii=False) + "\n", encoding="utf-8")
