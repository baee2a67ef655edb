"""Payloads of codec predictive for the Kotlin tests: with a model of integers, and with the shipped model.

Responsible for payloads and what they decode to. The model of integers (`MixPredictor`) is small enough to be
written again in Kotlin, so that the codec is tested apart from ONNX Runtime.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_runtime.runtime import EdgeRuntime
from lab.formats.count_codes import anchors_of
from lab.pairs.tiny.tasks import held_out_problems
from payload import TOLERANCE, AnchorSet, Base, Codec, Contract, PayloadError, Shared, decode, encode
from payload.header import seal

MASK = (1 << 64) - 1
SCALES = (0.05, 1.0, 4.0)
BUMPS = (0.0, 4.0, 12.0)
CANVASES = (512, 256, 1024, 128, 64, 40, 3000)


class MixPredictor:
    """A model without weights: rows from a 64-bit mix of everything before them, some sure and some flat."""

    def __init__(self, vocab_size: int, prompt_ids: Sequence[int]) -> None:
        self.vocab_size = vocab_size
        self.prompt_ids = list(prompt_ids)
        self.identity = bytes(range(32))

    def read(self, text: Sequence[int], start: int) -> Iterator[NDArray[np.float64]]:
        for position in range(start, len(text) + 1):
            yield self.row(text[:position])

    def row(self, before: Sequence[int]) -> NDArray[np.float64]:
        state = 0xCBF29CE484222325
        for number in (*self.prompt_ids, -1, *before):
            state = ((state ^ (number + 2)) * 0x100000001B3) & MASK
        draws = []
        for _ in range(self.vocab_size + 4):
            state ^= state >> 12
            state = (state ^ (state << 25)) & MASK
            state ^= state >> 27
            draws.append(((state * 0x2545F4914F6CDD1D) & MASK) >> 11)
        scale, bump, place = draws[0] % 3, draws[1] % 3, draws[2] % self.vocab_size
        row = np.asarray(draws[3:], np.float64) / (1 << 53) * SCALES[scale] * 2
        row[place] += BUMPS[bump]
        return row - np.logaddexp.reduce(row)


def vectors(contract: Contract, rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Payloads of any anchors, deltas among them, and payloads with random bodies and a right header."""
    for number in range(count):
        prompt = [rng.randrange(300) for _ in range(rng.randrange(1, 9))]
        predictor = MixPredictor(contract.vocab_size, prompt)
        canvas = rng.choice(CANVASES)
        end = min(canvas, rng.randrange(1, 40))
        length = rng.choice((None, end))
        whole = rng.random() < 0.2
        places = range(end) if whole else sorted(rng.sample(range(end), rng.randrange(end + 1)))
        tokens = {place: rng.randrange(contract.vocab_size) for place in places}
        text: list[int] = []
        for position in range(end):  # half of the anchors are the model's own tokens
            own = int(predictor.row(text)[: contract.vocab_size].argmax())
            if position in tokens and rng.random() < 0.5:
                tokens[position] = own
            text.append(tokens.get(position, own))
        anchors = AnchorSet.of(tokens, canvas, contract, length)
        base = None
        if rng.random() < 0.3:
            kept = {place: token for place, token in tokens.items() if rng.random() < 0.5}
            old = AnchorSet.of(kept, canvas, contract, rng.choice((None, length)))
            base = Base(encode(old, Shared(contract, predictor=predictor), Codec.PREDICTIVE), old)
        shared = Shared(contract, predictor=predictor, base=base)
        tolerance = rng.choice((0.0, 0.004, 0.1))
        data = encode(anchors, shared, Codec.PREDICTIVE, tolerance=tolerance)
        if number % 4 == 0:  # another body under a right header: nearly always refused
            body = rng.randbytes(rng.randrange(1, 24))
            data = seal(
                contract, Codec.PREDICTIVE, body, prompt_ids=prompt, base=base, fingerprint=predictor.identity
            )
        row: dict[str, Any] = {"payload": data.hex(), "prompt_ids": prompt}
        row["base"] = None if base is None else {"payload": base.data.hex(), **fields(base.anchors)}
        try:
            row["anchors"] = fields(decode(data, shared))
        except PayloadError as error:
            row["error"] = type(error).__name__
        yield row


def fields(anchors: AnchorSet) -> dict[str, Any]:
    return {
        "positions": anchors.positions,
        "ids": anchors.ids,
        "canvas": anchors.canvas,
        "length": anchors.length,
    }


def shipped(edge: EdgeRuntime, count: int, tolerance: float = TOLERANCE) -> Iterator[dict[str, Any]]:
    """Answers filled from predictive payloads of held-out prompts.

    Half are whole answers, half the tokens that the edge model would not write by itself.
    """
    for index, problem in enumerate(held_out_problems(count)):
        anchors = anchors_of(edge, problem)
        if index // 4 % 2:
            text = edge.bundle.tokenizer.encode(problem.answer)
            anchors = AnchorSet.of(dict(enumerate(text)), anchors.canvas, anchors.contract, len(text))
        predictor = edge.predictor(edge.prompt_ids(problem.prompt))
        shared = Shared(anchors.contract, predictor=predictor)
        data = encode(anchors, shared, Codec.PREDICTIVE, tolerance=tolerance)
        answer = edge.fill(edge.read(data, problem.prompt))
        tokens = list(answer)
        yield {
            "payload": data.hex(),
            "prompt": problem.prompt,
            "ids": [token.id for token in tokens],
            "sources": "".join(str(token.source)[0].upper() for token in tokens),
            "anchors": fields(anchors),
            "text": edge.bundle.tokenizer.decode([token.id for token in tokens]),
        }
