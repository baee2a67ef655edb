"""python -m tests.arm.fills OUT.npz BUNDLE: fill fixed payloads and store the results of this processor.

Files of two processors can be compared. Payloads take the whole path: encoded, decoded, filled. Beside the
tokens of every answer it stores the logits along a given text, where one differing token does not hide the
following ones.

Arrays by name: VARIANT/CASE/ids int64[tokens], VARIANT/CASE/logits float32[tokens, vocab].
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edge_runtime.bundle.bundle import Bundle, read_manifest
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet, Contract, Shared, encode

PROMPTS = (
    "How many loaves are left when 24 were baked and half of them are sold?",
    "Which town lies on the river, and who is its mayor?",
)


def cases(contract: Contract, length: int) -> Iterator[tuple[str, AnchorSet]]:
    """Prompts and anchors: many in runs, few, none; the answer's length known and unknown."""
    random = np.random.default_rng(0)
    for index, prompt in enumerate(PROMPTS):
        for share in (0.5, 0.1, 0.0):
            places = sorted(int(p) for p in random.permutation(length)[: round(share * length)])
            ids = tuple(int(i) for i in random.integers(0, contract.vocab_size, len(places)))
            known = length if index == 0 or not places else None
            yield prompt, AnchorSet(tuple(places), ids, length, contract, known)


def fill_all(
    bundle: Path, variants: list[str], length: int, limit: int | None, texts: dict[str, Any], verify: bool
) -> dict[str, Any]:
    """The arrays of every variant and case. texts: answers to run for logits; empty for this run's own."""
    found: dict[str, Any] = {}
    for variant in variants:
        edge = EdgeRuntime(Bundle.open(bundle, variant, verify=verify), threads=2)
        for index, (prompt, anchors) in enumerate(list(cases(edge.bundle.contract, length))[:limit]):
            shared = Shared(edge.bundle.contract, edge.prompt_ids(prompt))
            request = edge.read(encode(anchors, shared), prompt)
            name = f"{variant}/{index}"
            ids = [token.id for token in edge.fill(request)]
            text = [int(i) for i in texts.get(f"{name}/ids", ids)]
            before = len(request.prompt_ids) - 1
            edge.engine.rewind(0)
            logits = edge.engine.append([*request.prompt_ids, *text[:-1]], range(before, before + len(text)))
            found |= {f"{name}/ids": np.asarray(ids), f"{name}/logits": np.array(logits)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.arm.fills",
        description=__doc__,
        epilog="example:\n  python -m tests.arm.fills here.npz edge_runtime/bundles/tiny-qwen",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--variants", help="names, separated by commas; default: all")
    parser.add_argument("--length", type=int, default=40, help="tokens of an answer (40)")
    parser.add_argument("--cases", type=int, metavar="N", help="only the first N payloads")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="a file of another run, for its texts")
    parser.add_argument("--no-verify", action="store_true", help="do not check the bundle's SHA-256")
    args = parser.parse_args()
    variants = args.variants.split(",") if args.variants else sorted(read_manifest(args.bundle).variants)
    texts = dict(np.load(args.texts)) if args.texts else {}
    arrays = fill_all(args.bundle, variants, args.length, args.cases, texts, not args.no_verify)
    np.savez(args.out, **arrays)


if __name__ == "__main__":
    main()
