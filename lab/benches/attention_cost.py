"""python -m lab.benches.attention_cost: benchmark of one layer's attention, by the way it is computed.

ONNX Runtime's GroupQueryAttention in the shape of Qwen2.5-0.5B, in blocks or whole, with the factor 1/sqrt(D)
applied by the operator or to the weights beforehand. Prints median microseconds; a ratio is over blocks with
the factor, which is the library's default.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model

from common.cli import CommandParser, run_command
from edge_runtime.engine.ort_session import BoundGraph, session_options

HEADS, KV_HEADS, SIZE, CONTEXT = 14, 2, 64, 2048
CASES = ((1, 0), (1, 128), (1, 512), (1, 1000), (8, 512), (64, 512), (100, 0))
"""Tokens of a pass, and tokens before it."""


def write_graph(path: Path, scale: float) -> None:
    """Write a graph of the one operator. scale: factor of the scores; 0 for 1/sqrt(D)."""
    node = helper.make_node(
        "GroupQueryAttention",
        ["qkv", "", "", "past.key", "past.value", "last", "total", "cos", "sin"],
        ["mixed", "present.key", "present.value"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        do_rotary=1,
        scale=scale,
    )
    cache = [1, KV_HEADS, "buffer", SIZE]
    shapes = {"qkv": [1, "tokens", (HEADS + 2 * KV_HEADS) * SIZE], "past.key": cache, "past.value": cache}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs += [
        helper.make_tensor_value_info(n, TensorProto.INT32, s) for n, s in (("last", [1]), ("total", []))
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    tables = [
        numpy_helper.from_array(np.full((CONTEXT, SIZE // 2), value, np.float32), name)
        for name, value in (("cos", 1), ("sin", 0))
    ]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "attention", inputs, outputs, tables)
    save_model(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))


def bind(graph: BoundGraph, tokens: int, before: int) -> list[np.ndarray]:
    """Bind random inputs and buffers for the outputs of one pass; they must be kept as long as it runs."""
    random = np.random.default_rng(0)
    buffer = 1 << (before + tokens - 1).bit_length()
    held = []
    for part in ("key", "value"):
        cache = random.standard_normal((1, KV_HEADS, buffer, SIZE)).astype(np.float32)
        held += [graph.bind_input(f"past.{part}", cache), graph.bind_output(f"present.{part}", cache)]
    qkv = random.standard_normal((1, tokens, (HEADS + 2 * KV_HEADS) * SIZE)).astype(np.float32)
    total = before + tokens
    return [
        *held,
        graph.bind_input("qkv", qkv),
        graph.bind_input("last", np.array([total - 1], np.int32)),
        graph.bind_input("total", np.array(total, np.int32)),
        graph.bind_output("mixed", np.empty((1, tokens, HEADS * SIZE), np.float32)),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.attention_cost",
        description=__doc__,
        epilog="example:\n  python -m lab.benches.attention_cost --threads 2",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=100, help="passes per figure (100)")
    args = parser.parse_args(argv)
    return run_command("attention_cost", lambda: measure(args.threads, args.repeat))


def measure(threads: int, repeat: int) -> None:
    """Print the table."""
    ways = [(whole, scale) for whole in (False, True) for scale in (0.0, 1.0)]
    names = [f"{'whole' if whole else 'blocks'}{', no factor' if scale else ''}" for whole, scale in ways]
    with TemporaryDirectory() as folder:
        graphs = []
        for whole, scale in ways:
            path = Path(folder) / f"{scale}.onnx"
            write_graph(path, scale)
            graphs.append(BoundGraph(path, session_options(threads), whole_attention=whole))
        print(f"| tokens | after | {' | '.join(names)} |")
        print("|---" * (2 + len(names)) + "|")
        for tokens, before in CASES:
            held = [bind(graph, tokens, before) for graph in graphs]
            times: list[list[float]] = [[] for _ in graphs]
            for _ in range(repeat):
                for graph, kept in zip(graphs, times, strict=True):
                    graph.run()  # threads are awake and the cache is warm, as in the middle of a pass
                    started = time.perf_counter()
                    graph.run()
                    kept.append(1e6 * (time.perf_counter() - started))
            del held
            first, *_ = found = [statistics.median(kept) for kept in times]
            print(f"| {tokens} | {before} | {' | '.join(f'{t:.0f} ({t / first:.2f})' for t in found)} |")


if __name__ == "__main__":
    sys.exit(main())
