"""The operators of a graph besides its weight matrices: positions, normalisation, attention.

Responsible for two dialects of the same model. *Fused* uses ONNX Runtime's own operators and is the fastest
there; *portable* uses standard ONNX operators only and runs on any runtime. Both read and write the same
inputs and outputs: caches of a fixed length that past and present may share, rewound by a shorter mask. Not
responsible for the order of the layers (see `decoder`) or for weights (see `weights`).

Shapes: S tokens in a chunk after P earlier ones, T = P + S, B cache length, H heads, G of them to each of the
C key/value heads (H = C * G), D head size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from onnx import TensorProto

from convert.graph.nodes import MICROSOFT, GraphWriter
from convert.source.checkpoint import DecoderShape
from convert.source.rotary import rotary_tables


def past_name(layer: int, part: str) -> str:
    """Name of the input with a layer's cache before the chunk; part is "key" or "value"."""
    return f"past_key_values.{layer}.{part}"


def present_name(layer: int, part: str) -> str:
    """Name of the output with a layer's cache after the chunk; part is "key" or "value"."""
    return f"present.{layer}.{part}"


def exact_scale(scalar: float) -> float:
    """Attention's 1/sqrt(scalar) where it is a power of two, so that scaled weights are exact; else 1.

    ONNX Runtime multiplies one query with the keys about twice as fast where the operator need not scale.
    """
    root = math.isqrt(int(scalar))
    return 1 / root if root * root == scalar and root & (root - 1) == 0 else 1.0


def rotary_weights(graph: GraphWriter, shape: DecoderShape, context: int) -> list[tuple[str, str]]:
    """Names of the tables of cosines and sines [context, D/2]: of whole attention, then of the windows'."""
    kinds = {"rotary": shape}
    if shape.window is not None:
        kinds["rotary.local"] = replace(shape, rope_theta=shape.window.rope_theta, rope_scaling=None)
    tables = ((name, rotary_tables(of, context)) for name, of in kinds.items())
    return [(graph.weight(f"{n}.cos", cos), graph.weight(f"{n}.sin", sin)) for n, (cos, sin) in tables]


Gammas = tuple[str, str]


class Dialect(Protocol):
    """One set of operators. Arguments and results are names of values in the graph."""

    query_factor: float
    """Factor already in the queries' weights, or in the norm's; `attention` applies the rest of the scale."""

    def gelu(self, x: str) -> str:
        """GELU of x, by its approximation with tanh."""

    def norm(self, x: str, gamma: str) -> str:
        """RMS normalisation of x over the last axis, times gamma."""

    def add_norm(self, x: str, residual: str, gamma: str) -> tuple[str, str]:
        """The norm of x + residual, and the sum itself."""

    def attention(self, qkv: str, layer: int, gammas: Gammas | None = None) -> str:
        """Causal grouped-query attention with rotary positions: [1, S, (H+2C)*D] to [1, S, H*D].

        Appends the chunk's keys and values to the layer's cache. gammas: of RMS norms [D] of every query and
        key head before the rotation.
        """


class Fused:
    """ONNX Runtime's own operators: SkipSimplifiedLayerNormalization and GroupQueryAttention."""

    def __init__(self, graph: GraphWriter, shape: DecoderShape, context: int) -> None:
        self._graph, self._shape = graph, shape
        self.query_factor = exact_scale(shape.query_pre_attn_scalar)
        self._tables = rotary_weights(graph, shape, context)
        # GroupQueryAttention takes T as a scalar, and T - 1 of each sequence.
        length = graph.node("ReduceSum", ["attention_mask", graph.constant([1])], keepdims=0)
        last = graph.node("Sub", [length, graph.constant([1])])
        self._last = graph.node("Cast", [last], to=TensorProto.INT32)
        total = graph.node("Gather", [graph.node("Shape", ["attention_mask"]), graph.constant(1)], axis=0)
        self._total = graph.node("Cast", [total], to=TensorProto.INT32)

    def gelu(self, x: str) -> str:
        return self._graph.node("FastGelu", [x], domain=MICROSOFT)

    def norm(self, x: str, gamma: str) -> str:
        # The schema is ONNX Runtime's although its domain is the standard one.
        settings: dict[str, Any] = {"epsilon": self._shape.rms_norm_eps, "axis": -1, "stash_type": 1}
        return self._graph.node("SimplifiedLayerNormalization", [x, gamma], **settings)

    def add_norm(self, x: str, residual: str, gamma: str) -> tuple[str, str]:
        total = self._graph.fresh("residual")
        normed, *_ = self._graph.nodes(
            "SkipSimplifiedLayerNormalization",
            [x, residual, gamma],
            [f"{total}_normed", "", "", total],
            domain=MICROSOFT,
            epsilon=self._shape.rms_norm_eps,
        )
        return normed, total

    def _normed(self, x: str, gamma: str, heads: int) -> str:
        """RMS norm of every head of x [1, S, heads*D]."""
        g, size = self._graph, self._shape.head_dim
        split = g.node("Reshape", [x, g.constant([1, -1, heads, size])])
        return g.node("Reshape", [self.norm(split, gamma), g.constant([1, -1, heads * size])])

    def _projections(self, qkv: str, gammas: Gammas | None) -> list[str]:
        """The operator's first three inputs: all packed in one, or queries, keys and values."""
        if gammas is None:
            return [qkv, "", ""]
        shape = self._shape
        heads, kv_heads, size = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        sizes = self._graph.constant([heads * size, kv_heads * size, kv_heads * size])
        q, k, v = self._graph.nodes("Split", [qkv, sizes], 3, axis=-1)
        return [self._normed(q, gammas[0], heads), self._normed(k, gammas[1], kv_heads), v]

    def attention(self, qkv: str, layer: int, gammas: Gammas | None = None) -> str:
        shape = self._shape
        past = [past_name(layer, part) for part in ("key", "value")]
        present = [present_name(layer, part) for part in ("key", "value")]
        local = shape.window is not None and shape.window.layers[layer]
        window = {"local_window_size": shape.window.size} if shape.window is not None and local else {}
        return self._graph.nodes(
            "GroupQueryAttention",
            [*self._projections(qkv, gammas), *past, self._last, self._total, *self._tables[local]],
            [f"attention.{layer}", *present],
            domain=MICROSOFT,
            num_heads=shape.num_attention_heads,
            kv_num_heads=shape.num_key_value_heads,
            do_rotary=1,
            rotary_interleaved=0,
            scale=float(shape.query_pre_attn_scalar**-0.5 / self.query_factor),
            **window,
        )[0]


class Portable:
    """Standard operators only."""

    query_factor = 1.0

    def __init__(self, graph: GraphWriter, shape: DecoderShape, context: int) -> None:
        self._graph, self._shape = graph, shape
        g = graph
        size = g.node("Shape", ["input_ids"])
        self._new = g.node("Gather", [size, g.constant([1])], axis=0)  # [1]: S
        self._total = g.node("Gather", [g.node("Shape", ["attention_mask"]), g.constant([1])], axis=0)
        past = g.node("Sub", [self._total, self._new])
        zero, one = g.constant(0), g.constant(1)
        scalars = [g.node("Squeeze", [value, g.constant([0])]) for value in (past, self._total)]
        positions = g.node("Range", [*scalars, one])  # [S]: P .. T-1
        self._rotations = [self._rows(t, positions) for t in rotary_weights(graph, shape, context)]
        keys = g.node("Range", [zero, scalars[1], one])
        self._masks = [self._mask(self._visible(positions, keys))]
        if shape.window is not None:
            first = g.node("Sub", [positions, g.constant(shape.window.size)])
            near = g.node("Greater", [keys, g.node("Unsqueeze", [first, g.constant([1])])])
            self._masks.append(self._mask(g.node("And", [self._visible(positions, keys), near])))
        self._places = self._cache_places(positions)
        self._epsilon = g.constant(shape.rms_norm_eps, np.float32)

    def _rows(self, tables: tuple[str, str], positions: str) -> list[str]:
        """Cosines and sines [S, D] of the chunk's positions, both halves alike."""
        rows = [self._graph.node("Gather", [table, positions], axis=0) for table in tables]
        return [self._graph.node("Concat", [half, half], axis=-1) for half in rows]

    def _visible(self, positions: str, keys: str) -> str:
        """Whether [S, T] a key is not after the query."""
        g = self._graph
        return g.node("LessOrEqual", [keys, g.node("Unsqueeze", [positions, g.constant([1])])])

    def _mask(self, visible: str) -> str:
        """Additive mask: 0 where a key is visible, the lowest float elsewhere."""
        lowest = self._graph.constant(np.finfo(np.float32).min, np.float32)
        return self._graph.node("Where", [visible, self._graph.constant(0, np.float32), lowest])

    def _cache_places(self, positions: str) -> str:
        """Indices [1, C, S, 3] of each key/value head's new rows in a cache [1, C, B, D]."""
        g, heads = self._graph, self._shape.num_key_value_heads
        one = g.constant([1])
        extent = g.node("Concat", [one, g.constant([heads]), self._new, one], axis=0)
        head = g.constant(np.arange(heads).reshape(1, heads, 1, 1))
        place = g.node("Reshape", [positions, g.node("Concat", [one, one, self._new, one], axis=0)])
        first = g.constant(np.zeros((1, 1, 1, 1)))
        return g.node("Concat", [g.node("Expand", [part, extent]) for part in (first, head, place)], axis=-1)

    def gelu(self, x: str) -> str:
        g = self._graph
        half, one, cubic, root = (
            g.constant(value, np.float32) for value in (0.5, 1, 0.044715, math.sqrt(2 / math.pi))
        )
        cube = g.node("Mul", [g.node("Mul", [x, x]), x])
        inner = g.node("Mul", [g.node("Add", [x, g.node("Mul", [cube, cubic])]), root])
        return g.node("Mul", [g.node("Mul", [x, half]), g.node("Add", [g.node("Tanh", [inner]), one])])

    def norm(self, x: str, gamma: str) -> str:
        g = self._graph
        square = g.node("Mul", [x, x])
        mean = g.node("ReduceMean", [square, g.constant([-1])], keepdims=1)
        root = g.node("Sqrt", [g.node("Add", [mean, self._epsilon])])
        return g.node("Mul", [g.node("Div", [x, root]), gamma])

    def add_norm(self, x: str, residual: str, gamma: str) -> tuple[str, str]:
        total = self._graph.node("Add", [x, residual])
        return self.norm(total, gamma), total

    def _heads(self, x: str, count: int) -> str:
        """[1, S, count*D] to [1, count, S, D]."""
        g = self._graph
        split = g.node("Reshape", [x, g.constant([1, -1, count, self._shape.head_dim])])
        return g.node("Transpose", [split], perm=[0, 2, 1, 3])

    def _rotated(self, x: str, rotation: Sequence[str]) -> str:
        """x [1, heads, S, D] rotated by position: the halves of D are the two coordinates."""
        cos, sin = rotation
        g, half = self._graph, self._shape.head_dim // 2
        first, second = g.nodes("Split", [x, g.constant([half, half])], 2, axis=-1)
        turned = g.node("Concat", [g.node("Neg", [second]), first], axis=-1)
        return g.node("Add", [g.node("Mul", [x, cos]), g.node("Mul", [turned, sin])])

    def _cached(self, x: str, layer: int, part: str) -> str:
        """Write the chunk's rows x [1, C, S, D] into the cache; returns its first T rows as [C, T, D]."""
        g = self._graph
        present = present_name(layer, part)
        g.nodes("ScatterND", [past_name(layer, part), self._places, x], [present])
        rows = g.node("Slice", [present, g.constant([0]), self._total, g.constant([2])])
        return g.node("Squeeze", [rows, g.constant([0])])

    def attention(self, qkv: str, layer: int, gammas: Gammas | None = None) -> str:
        g, shape = self._graph, self._shape
        heads, kv_heads, size = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        sizes = g.constant([heads * size, kv_heads * size, kv_heads * size])
        q, k, v = g.nodes("Split", [qkv, sizes], 3, axis=-1)
        queries, keys = self._heads(q, heads), self._heads(k, kv_heads)
        if gammas is not None:
            queries, keys = self.norm(queries, gammas[0]), self.norm(keys, gammas[1])
        local = shape.window is not None and shape.window.layers[layer]
        rotation, mask = self._rotations[local], self._masks[local]
        scale = g.constant(shape.query_pre_attn_scalar**-0.5, np.float32)
        query = g.node("Mul", [self._rotated(queries, rotation), scale])
        keys = self._cached(self._rotated(keys, rotation), layer, "key")
        values = self._cached(self._heads(v, kv_heads), layer, "value")
        # The G query heads of one key/value head become rows of one matrix, so keys need no repeating.
        stacked = g.node("Reshape", [query, g.constant([kv_heads, -1, size])])  # [C, G*S, D]
        scores = g.node("MatMul", [stacked, g.node("Transpose", [keys], perm=[0, 2, 1])])  # [C, G*S, T]
        by_head = g.node("Concat", [g.constant([heads]), self._new, self._total], axis=0)
        masked = g.node("Add", [g.node("Reshape", [scores, by_head]), mask])  # [H, S, T]
        weights = g.node("Softmax", [masked], axis=-1)
        stack = g.node("Concat", [g.constant([kv_heads, -1]), self._total], axis=0)
        mixed = g.node("MatMul", [g.node("Reshape", [weights, stack]), values])  # [C, G*S, D]
        split = g.node("Concat", [g.constant([heads]), self._new, g.constant([size])], axis=0)
        rows = g.node("Transpose", [g.node("Reshape", [mixed, split])], perm=[1, 0, 2])  # [S, H, D]
        return g.node("Reshape", [rows, g.constant([1, -1, heads * size])])
