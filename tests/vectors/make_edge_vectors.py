"""Writes edge_vectors.json: the shipped bundle by the Python runtime, for the runtime in TypeScript.

Answers of two variants, alone and to payloads of every codec; conversations; the tokenizer;
sealed and predictive payloads, whole and broken. Run it again when the shipped pair has changed:

    python -m tests.vectors.make_edge_vectors
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloud_anchor.model.checkpoint import read_examples
from cloud_anchor.shipped import PAIRS
from edge_runtime.bundle.bundle import BUNDLES, MANIFEST
from edge_runtime.decode.forced import FillOptions
from edge_runtime.runtime import EdgeRuntime, FillRequest
from edge_runtime.session import EdgeSession
from payload import AnchorSet, Codec, Extras, Shared, encode
from tests.android import predictive_expectations
from tests.android.make_expectations import (
    PROMPTS,
    SEED,
    plans,
    sealed,
    tokenizer_vectors,
)
from tests.vectors.toy_vocabulary import contract as toy_contract

OUTPUT = Path(__file__).with_name("edge_vectors.json")
BUNDLE = BUNDLES / "testbed-qwen"
QUESTIONS = 24
CODECS = (Codec.COMPACT, Codec.TEMPLATE_GZIP, Codec.PREDICTIVE, Codec.PORTABLE)
MAX_TOKENS = 48


def fills(
    edge: EdgeRuntime, prompts: list[str], rng: random.Random, codecs: tuple[Codec, ...]
) -> Iterator[Any]:
    """For each prompt the answer alone, and one to a payload of each codec, of another kind each."""
    for number, prompt in enumerate(prompts):
        ids = edge.prompt_ids(prompt)
        alone = _row(edge, prompt, None)
        yield alone
        room = edge.bundle.context - len(ids)
        kinds = list(plans(rng, alone["ids"], edge.bundle.contract, room))
        for at, codec in enumerate(codecs):
            predictor = edge.predictor(ids) if codec.bound else None
            shared = Shared(edge.bundle.contract, ids, edge.bundle.tokenizer, predictor=predictor)
            carried = Extras(prompt if (number + at) % 3 == 0 else None)
            yield _row(edge, prompt, encode(kinds[(number + 3 * at) % len(kinds)], shared, codec, carried))


def _row(edge: EdgeRuntime, prompt: str, data: bytes | None) -> dict[str, Any]:
    options = FillOptions(max_tokens=MAX_TOKENS)
    if data is None:
        nothing = AnchorSet.empty(64, edge.bundle.contract)
        data = encode(nothing, Shared(edge.bundle.contract), Codec.COMPACT)
    answer = edge.fill(edge.read(data, prompt), options)
    tokens = list(answer)
    stream = edge.text_stream()
    return {
        "prompt": prompt,
        "payload": data.hex(),
        "ids": [token.id for token in tokens],
        "sources": "".join(str(token.source)[0] for token in tokens),
        "logprobs": [None if token.logprob is None else round(token.logprob, 4) for token in tokens],
        "text": "".join(stream.push(token.id) for token in tokens) + stream.flush(),
        "stop": str(answer.stats.stop),
    }


def conversations(edge: EdgeRuntime, prompts: list[str]) -> Iterator[Any]:
    """Turns of sessions: with and without a system prompt, with a payload, and beyond the context."""
    context = edge.bundle.context
    for number, system in enumerate((None, "Answer in one sentence.", "You explain words.", None)):
        session = EdgeSession(edge, system, reserve=3 * context // 4 if number > 1 else 48)
        turns = []
        for at, question in enumerate(prompts[number : number + 4]):
            options = FillOptions(max_tokens=MAX_TOKENS) if number == 3 else None
            messages, _ = session.prompt(question, options)
            data = None
            if at == 2:
                ids = edge.prompt_ids(messages)
                nothing = AnchorSet.empty(edge.bundle.context, edge.bundle.contract)
                own = [token.id for token in edge.fill(FillRequest(ids, nothing), FillOptions(max_tokens=20))]
                anchors = AnchorSet((2, 5), (own[0], own[1]), 64, edge.bundle.contract)
                data = encode(anchors, Shared(edge.bundle.contract, ids), Codec.COMPACT)
            answer = session.ask(question, options, payload=data)
            found = [token.id for token in answer]
            turns.append(
                {
                    "question": question,
                    "payload": data and data.hex(),
                    "ids": found,
                    "dropped": answer.dropped,
                    "source": answer.source,
                }
            )
        yield {
            "system": system,
            "reserve": session.reserve,
            "max_tokens": MAX_TOKENS if number == 3 else None,
            "turns": turns,
            "messages": [{"role": each.role, "content": each.content} for each in session.messages],
        }


def main() -> None:
    rng = random.Random(SEED)
    prompts = [*read_examples(PAIRS["testbed"].checkpoint), *PROMPTS]
    prompts += [
        f"What does the word {word} mean?" for word in "river lamp choir frost harbour violin".split()
    ]
    prompts += [
        f"What is the capital of {country}?" for country in "Japan Kenya Peru Norway Chad Fiji".split()
    ]
    prompts = prompts[:QUESTIONS]
    with_fp32 = EdgeRuntime.open(BUNDLE, "fp32", threads=1, prepack=False)
    with_int8 = EdgeRuntime.open(BUNDLE, "int8", threads=1, prepack=False)
    document = {
        "bundle": BUNDLE.name,
        "manifest_sha256": hashlib.sha256((BUNDLE / MANIFEST).read_bytes()).hexdigest(),
        "max_tokens": MAX_TOKENS,
        "tokenizer": tokenizer_vectors(with_fp32.bundle.tokenizer, rng),
        "sealed": list(sealed(rng, 300)),
        "predictive": list(predictive_expectations.vectors(toy_contract(), rng, 120)),
        "fp32": list(fills(with_fp32, prompts, rng, CODECS)),
        "int8": list(fills(with_int8, prompts[:10], rng, CODECS[:2])),
        "conversations": list(conversations(with_fp32, prompts)),
    }
    OUTPUT.write_text(json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="ascii")
    print(f"{OUTPUT.name}: {len(document['fp32'])} and {len(document['int8'])} fills")


if __name__ == "__main__":
    main()
