"""python -m tests.android.make_expectations OUT: results of the Python runtime for the Kotlin tests.

Writes one JSON file: answers filled on the shipped bundle, tokenizer and chat template results, payloads with
random bodies and their decoding results. It depends on the shipped weights, so it is generated
before the tests and not committed.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import json
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from common.files import write_whole
from edge_runtime.bundle.bundle import MANIFEST, Bundle, read_manifest
from edge_runtime.cloud import device_doubt
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, agreement, fill
from edge_runtime.decode.sampling import Sampling
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from edge_runtime.text.tokenizer import TextStream, Tokenizer
from lab.published.wheel_files import SMOLLM2
from payload import (
    AnchorSet,
    Base,
    Codec,
    Contract,
    Extras,
    PayloadError,
    Shared,
    decode,
    doubt,
    encode,
    peek,
)
from payload.header import seal
from tests.android import predictive_expectations
from tests.shipped import TINY_BUNDLE
from tests.vectors.toy_vocabulary import PIECES, ToyTokens
from tests.vectors.toy_vocabulary import contract as toy_contract

REPO = Path(__file__).resolve().parents[2]
SHARED_TOKENIZER = REPO.parent / "shared" / "tokenizer" / "qwen2.5_tokenizer.json.gz"
SEED = 20

CODECS = (Codec.TEMPLATE_GZIP, Codec.COMPACT)
"""Codecs that the Kotlin library decodes."""

PROMPTS = (
    "What is the capital?",
    "Describe the town of Vell.",
    "Which is taller, the hill of Orn or the hill of Tam?",
    "Anna has 12 apples and gives away 5. How many are left?",
    "Write a function that adds two numbers.",
    "A. yes\nB. no\nC. maybe\nAnswer with one letter.",
    "Où est la rivière ?  中文 🎉 é",
    "Tell me about the river, the mayor and the market of the town, please.",
)

ODD = (
    "",
    " ",
    "a<|im_end|>b<|im_start|><|im_end",
    "<|endoftext|><|endoftext|>",
    "don't DON'T we'll they'Re '\u017f x'\u017f",
    "e\u0301 \u00e9 \u1100\u1161\u11a8 \u212b",
    "\x00\x0b\x0c\x1c\x85\u00a0\u2003\u2028\u3000\u200b|",
    "a\r\n\r\n  b\n \n\tc   ",
    "12345 \u0661\u0662 \u00bd \u2167 x\u00b2",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 8,
    "            x             ",
)
LETTERS = (
    "aeinrst 'ABC.,!?-_/\n\t\r0128 \u00e9\u0301\u017f\u4e2d\u6587\u0431\u05d0\u0e01\U0001f389\u00a0\u3000\x0b"
)


RANGES = (
    "20-7e a0-24f 300-36f 391-3a1 400-52f 5d0-5ea 620-6d3 904-939 e01-e3a 1100-11ff 1e00-1eff "
    "2000-2064 2070-2071 2150-218b 2190-23fe 2460-26ff 3041-3096 30a0-30ff 4e00-9fa5 ac00-d7a3 "
    "e000-e0ff f900-fa6d fb00-fb06 fe00-fe0f ff01-ffbe 10330-1034a 1d400-1d454 1d7ce-1d7ff "
    "1f1e6-1f1ff 1f300-1f64f 20000-2a6d6 e0100-e01ef"
)
SCRIPTS = [tuple(int(end, 16) for end in each.split("-")) for each in RANGES.split()]
"""Ranges of code points that have been assigned for many versions of Unicode, first and last."""


def texts(rng: random.Random, count: int) -> list[str]:
    return [*ODD, *("".join(rng.choices(LETTERS, k=rng.randrange(1, 60))) for _ in range(count))]


def tokenizer_vectors(tokenizer: Tokenizer, rng: random.Random) -> dict[str, Any]:
    streams = []
    for _ in range(40):
        ids = rng.choices(range(tokenizer.size + 3), k=30)
        stream = TextStream(tokenizer)
        streams.append({"ids": ids, "pieces": [stream.push(id_) for id_ in ids], "tail": stream.flush()})
    return {
        "texts": [{"text": text, "ids": tokenizer.encode(text)} for text in [*PROMPTS, *texts(rng, 100)]],
        "streams": streams,
    }


def smollm2_vectors(work: Path, rng: random.Random) -> dict[str, Any] | None:
    """Ids of 5,000 texts by SmolLM2's tokenizer, as its converted bundle has it; None where its file is not
    in the cache (tests of its real weights fetch it).
    """
    file = SMOLLM2.path
    if not file.is_file() or importlib.util.find_spec("gguf") is None:
        return None
    from convert.source.gguf import GgufFile
    from edge_runtime.text.gguf import tokenizer_files

    text = json.dumps(tokenizer_files(GgufFile(file).metadata, str(file))["tokenizer.json"])
    (work / "smollm2-tokenizer.json").write_text(text)
    tokenizer = Tokenizer.from_json(text)
    found = [*PROMPTS, *texts(rng, 1500), *unicode_texts(rng, 4000)]
    return {"texts": [{"text": each, "ids": tokenizer.encode(each)} for each in found]}


def unicode_texts(rng: random.Random, count: int) -> Iterator[str]:
    """Texts of one to three scripts each, with spaces, digits and punctuation between them."""
    for _ in range(count):
        scripts = rng.sample(SCRIPTS, rng.randrange(1, 4))
        letters = []
        for _ in range(rng.randrange(1, 40)):
            first, last = rng.choice(scripts)
            letters.append(
                rng.choice(LETTERS) if rng.random() < 0.25 else chr(rng.randrange(first, last + 1))
            )
        yield "".join(letters)


def sealed(rng: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Payloads with random bodies and a matching check: many can be decoded, the rest are refused."""
    tokens = ToyTokens()
    contracts = {"toy": toy_contract(), "qwen": toy_contract(151_643, "c")}
    vectors = json.loads((REPO / "tests" / "vectors" / "payload_vectors.json").read_text())["vectors"]
    seeds = [bytes.fromhex(row["payload"]) for row in vectors]
    for number in range(count):
        name, codec = rng.choice(("toy", "qwen", "qwen")), rng.choice((*CODECS, *[Codec.COMPACT] * 4))
        contract = contracts[name]
        prompt = [rng.randrange(300) for _ in range(rng.randrange(12))] if rng.random() < 0.5 else None
        base = None
        body = rng.randbytes(rng.randrange(1, 24))
        if number % 3 == 0:  # the body of a real payload, with a byte or two changed
            payload = rng.choice([seed for seed in seeds if len(seed) > 5 and seed[0] >> 3 & 7 == codec])
            changed = bytearray(payload[4:])
            for _ in range(rng.randrange(3)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            body = bytes(changed)
        extras = rng.randbytes(4) if rng.random() < 0.2 else b""
        if codec is Codec.COMPACT:
            if rng.random() < 0.3:
                known = AnchorSet(
                    (0, 1, 5), (7, 8, 9), rng.choice((64, 512)), contract, rng.choice((None, 20))
                )
                base = Base(encode(known, Shared(contract)), known)
        else:
            prompt = None
            if name == "qwen":  # a template needs a tokenizer of its contract
                name, contract = "toy", contracts["toy"]
        data = seal(contract, codec, body, extras, prompt_ids=prompt, base=base)
        row: dict[str, Any] = {"payload": data.hex(), "contract": name, "prompt_ids": prompt}
        row["base"] = base.data.hex() if base else None
        try:
            anchors = decode(data, Shared(contract, prompt, tokens, base))
            row["anchors"] = _fields(anchors, peek(data).extras)
        except PayloadError as error:
            row["error"] = type(error).__name__
        yield row
    assert len(PIECES) == contracts["toy"].vocab_size


def _fields(anchors: AnchorSet, extras: Extras) -> dict[str, Any]:
    return predictive_expectations.fields(anchors) | {
        "step": extras.step,
        "total_steps": extras.total_steps,
        "prompt": extras.prompt,
        "confidence": extras.confidence,
    }


def plans(rng: random.Random, answer: Sequence[int], contract: Contract, room: int) -> Iterator[AnchorSet]:
    """Anchor sets of every kind for one prompt: tokens of its greedy answer and random tokens."""
    size = max(4, min(len(answer), room - 8, 40))
    own = [*answer, *rng.choices(range(contract.vocab_size), k=size)][:size]
    canvas = min(64, room)
    other = rng.choices(range(256, contract.vocab_size), k=size)

    def of(places: Sequence[int], ids: Sequence[int], length: int | None = None) -> AnchorSet:
        return AnchorSet.of({p: ids[p] for p in places}, canvas, contract, length)

    yield of(range(0, size, 3), own, size)
    yield of(range(1, size, 2), other, size)
    yield of(range(3), other)
    yield of(range(size), own, size)
    yield of(sorted(rng.sample(range(size), size // 2)), other)
    yield of([size - 1], other)
    yield of(range(min(size, canvas // 2)), own)
    yield of([], own, size // 2)


def fp32_bundle(folder: Path, out: Path) -> Path:
    """A copy of a bundle that opens its portable graphs, on which versions of ONNX Runtime agree.

    The shipped graphs round activations to 8 bits, which amplifies differences in the last bit of a sum; the
    Kotlin tests run on another version of ONNX Runtime than the Python ones.
    """
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)
    manifest = json.loads((out / MANIFEST).read_bytes())
    for variant in manifest["variants"].values():
        variant["graph"] = graph = variant["portable"]
        kept = {name: file for name, file in variant["files"].items() if name == graph or ".onnx." in name}
        variant["files"] = kept  # which gives it another fingerprint
    (out / MANIFEST).write_text(json.dumps(manifest))
    return out


def fills(folder: Path, variant: str, rng: random.Random, *, exact: bool) -> Iterator[dict[str, Any]]:
    """Answers of one variant, in the order in which a runtime that keeps its caches must fill them.

    exact: whether ids must be the same, rather than up to the first near tie.
    """
    edge = EdgeRuntime.open(folder, variant, threads=1, prepack=False)
    bundle = edge.bundle
    for number, prompt in enumerate(PROMPTS):
        room = bundle.context - len(edge.prompt_ids(prompt))
        free = AnchorSet.empty(bundle.context, bundle.contract)
        yield (plain := _filled(edge, prompt, free, None, exact=exact, max_tokens=min(48, room)))
        for kind, anchors in enumerate(plans(rng, plain["ids"], bundle.contract, room)):
            if (kind + number) % 2:  # every second one: two prompts cover all kinds
                continue
            # The copy's fingerprint is another, and some rows are read with the shipped bundle.
            middle = Codec.COMPACT if exact else Codec.PORTABLE
            codec = (Codec.COMPACT, middle, Codec.TEMPLATE_GZIP)[(kind + number) // 2 % 3]
            carried, ids = rng.random() < 0.5, edge.prompt_ids(prompt)
            predictor = edge.predictor(ids) if codec.bound else None
            shared = Shared(bundle.contract, ids, bundle.tokenizer, None, predictor)
            data = encode(anchors, shared, codec, Extras(prompt if carried else None))
            yield _filled(edge, prompt, anchors, data, exact=exact, score_anchors=kind != 3)


def confident(folder: Path) -> dict[str, Any]:
    """A payload that says how sure the cloud was, and the doubt of it."""
    bundle = Bundle.open(folder, "fp32")
    anchors, levels = AnchorSet.of({1: 300, 3: 301}, 24, bundle.contract), (0, 2)
    shared = Shared(bundle.contract, bundle.form.ids(PROMPTS[0]), bundle.tokenizer)
    data = encode(anchors, shared, Codec.COMPACT, Extras(confidence=levels))
    return {"prompt": PROMPTS[0], "payload": data.hex(), "doubt": doubt(levels)}


def sampled(folder: Path) -> Iterator[dict[str, Any]]:
    """Answers whose tokens are drawn, with anchors in every second one."""
    edge = EdgeRuntime.open(folder, "fp32", threads=1, prepack=False)
    contract, free = edge.bundle.contract, AnchorSet.empty(edge.bundle.context, edge.bundle.contract)
    settings = itertools.product(PROMPTS[:4], (0.0, 0.7, 1.0, 1.6), (None, 0.5, 0.95))
    for number, (prompt, temperature, top_p) in enumerate(settings):
        anchors, data = free, None
        if number % 2:
            anchors = AnchorSet.of({3: 300, 4: 301, 9: 302}, 24, contract)
            data = encode(anchors, Shared(contract, edge.prompt_ids(prompt), edge.bundle.tokenizer))

        def drawn(heat: float, seed: int) -> dict[str, Any]:
            given = Sampling(heat, top_p, seed=seed)  # noqa: B023
            return _filled(edge, prompt, anchors, data, exact=True, max_tokens=24, sampling=given)  # noqa: B023

        # No draw on the boundary of two tokens, where the last bit of a logit decides.
        seeds = itertools.count(number * 1_234_567_891)
        rows = ((drawn(temperature, seed), drawn(temperature * (1 + 1e-4), seed)) for seed in seeds)
        yield next(row for row, warmer in rows if row["ids"] == warmer["ids"])


CONVERSATIONS, TURNS = 40, 4
SAVED = "talk.session"
"""A conversation's file, written beside the expectations."""


def conversations(folder: Path, rng: random.Random, saved: Path) -> Iterator[dict[str, Any]]:
    """Turns of sessions on one runtime, that share its caches: with system prompts, with anchors in some,
    and longer than the context. The last one is written to a file after its third turn.
    """
    edge = EdgeRuntime.open(folder, "fp32", threads=1, prepack=False)
    contract, long = edge.bundle.contract, " ".join(PROMPTS[:6])
    for number in range(CONVERSATIONS):
        system = rng.choice((None, None, "Be brief.", "Répondez. 中文"))
        session = EdgeSession(edge, system)
        turns = []
        for turn in range(TURNS):
            if number == CONVERSATIONS - 1 and turn == TURNS - 1:
                session.save(saved)
            question = rng.choice((*PROMPTS, *ODD[:7], *[long] * 3))
            options = FillOptions(max_tokens=rng.choice((3, 8, 16)))
            messages, _ = session.prompt(question, options)
            data = None
            if rng.random() < 0.4:
                anchors = AnchorSet.of({1: rng.randrange(256, 400), 4: rng.randrange(256, 400)}, 24, contract)
                data = encode(anchors, Shared(contract, edge.prompt_ids(messages), edge.bundle.tokenizer))
            answer = session.ask(question, options, payload=data)
            tokens = list(answer)
            turns.append(
                {
                    "question": question,
                    "max_tokens": options.max_tokens,
                    "payload": None if data is None else data.hex(),
                    "ids": [token.id for token in tokens if isinstance(token, Token)],
                    "source": answer.source,
                    "device_doubt": device_doubt(answer.tokens),
                    "dropped": answer.dropped,
                    "reused": answer.stats.reused,
                    "said": session.messages[-1].content,
                }
            )
        yield {"bundle": str(folder.resolve()), "system": system, "turns": turns}


def _filled(
    edge: EdgeRuntime,
    prompt: str,
    anchors: AnchorSet,
    data: bytes | None,
    *,
    exact: bool,
    max_tokens: int | None = None,
    score_anchors: bool = True,
    sampling: Sampling | None = None,
) -> dict[str, Any]:
    options = FillOptions(max_tokens=max_tokens, score_anchors=score_anchors, sampling=sampling)
    stats = FillStats()
    prompt_ids = edge.prompt_ids(prompt)
    carried = data is not None and peek(data).extras.prompt is not None
    model = edge.model
    if data is not None:
        request = edge.read(data, None if carried else prompt)
        assert (request.prompt_ids, request.anchors) == (prompt_ids, anchors)
        model = edge.model_of(request)
    tokens = list(fill(model, prompt_ids, anchors, options, stats))
    stream = edge.text_stream()
    text = "".join(stream.push(token.id) for token in tokens)
    ids = [token.id for token in tokens]
    return {
        "bundle": str(edge.bundle.path.resolve()),
        "variant": edge.bundle.variant_name,
        "prompt": None if carried else prompt,
        "payload": None if data is None else data.hex(),
        "max_tokens": max_tokens,
        "score_anchors": score_anchors,
        "sampling": None if sampling is None else asdict(sampling),
        "prompt_tokens": len(prompt_ids),
        "anchors": len(anchors),
        "ids": ids,
        "sources": "".join("A" if token.source is Source.ANCHOR else "F" for token in tokens),
        "logprobs": [token.logprob for token in tokens],
        "margins": None if exact else _margins(edge.bundle, prompt_ids, ids),
        "text": text + stream.flush(),
        "passes": stats.passes,
        "reused": stats.reused,
        "agreement": agreement(tokens),
        "stop": stats.stop.name if stats.stop else None,
    }


def _margins(bundle: Bundle, prompt_ids: Sequence[int], ids: Sequence[int]) -> list[float]:
    """Margin of the best logit over the second, for each position of an answer and the one after it."""
    engine = OrtEngine.open(bundle, threads=1)
    engine.append(prompt_ids)
    engine.rewind(len(prompt_ids) - 1)
    logits = engine.append([prompt_ids[-1], *ids], range(len(ids) + 1))
    best = np.partition(logits, -2, axis=-1)[:, -2:]
    return [float(gap) for gap in best[:, 1] - best[:, 0]]


def expectations(work: Path, folder: Path = TINY_BUNDLE) -> dict[str, Any]:
    """All expectations for one bundle. work: a folder for a modified copy of the bundle."""
    rng = random.Random(SEED)
    same = fp32_bundle(folder, work / "fp32-activations")
    variants = sorted(read_manifest(folder).variants)
    result = {
        "tokenizer": tokenizer_vectors(Bundle.open(folder).tokenizer, rng),
        "qwen": None,
        "smollm2": smollm2_vectors(work, rng),
        "sealed": list(sealed(rng, 400)),
        "predictive": list(predictive_expectations.vectors(toy_contract(), rng, 300)),
        "shipped": list(
            predictive_expectations.shipped(EdgeRuntime.open(folder, threads=1, prepack=False), 50)
        ),
        "fills": [row for variant in variants for row in fills(same, variant, rng, exact=True)],
        "sampled": list(sampled(same)),
        "confident": confident(same),
        "conversations": list(conversations(same, rng, work / SAVED)),
        "random": [
            {"seed": seed, "values": np.random.default_rng(seed).random(5).tolist()}
            for seed in (0, 1, 20, 2**32 - 1, 2**32, 2**40 + 7, 2**63 - 1)
        ],
        "rounded": list(fills(folder, read_manifest(folder).default_variant, rng, exact=False)),
    }
    if SHARED_TOKENIZER.is_file():
        full = Tokenizer.from_json(gzip.decompress(SHARED_TOKENIZER.read_bytes()).decode("utf-8"))
        result["qwen"] = tokenizer_vectors(full, rng)
    return result


def write_expectations(out: Path) -> dict[str, Any]:
    """Writes the expectations to a file, with a modified bundle beside it, and returns them."""
    out.parent.mkdir(parents=True, exist_ok=True)
    found = expectations(out.parent)
    write_whole(out, json.dumps(found).encode())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.android.make_expectations", description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    found = write_expectations(args.out)
    print(f"{args.out}: {len(found['fills'])} fills, {len(found['sealed'])} payloads")
    return 0


if __name__ == "__main__":
    sys.exit(main())
