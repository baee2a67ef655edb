"""The KV cache of a graph: one buffer of a fixed length for past and present, updated in place.

A rewind is a shorter mask. Responsible for buffers and their bindings. Not responsible for the graph's other
inputs (see `ort_engine`).

Shapes: C key/value heads, D head size, T tokens in the cache, B tokens of a buffer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edge_runtime.bundle.manifest import ModelShape
from edge_runtime.engine.ort_session import BoundGraph

MIN_BUFFER = 64
"""Least number of tokens of a cache buffer."""


class KeyValueCache:
    """The keys and values of every layer, in buffers [1, C, B, D] that double as they fill, up to a context.

    names:    of the tensors, "{layer}.key" and "{layer}.value".
    capacity: number of tokens that fit the buffers at their present size.
    """

    def __init__(self, graph: BoundGraph, shape: ModelShape, context: int) -> None:
        self.names = [f"{i}.{part}" for i in range(shape.num_hidden_layers) for part in ("key", "value")]
        self.capacity = 0
        self._graph, self._shape = graph, shape
        self._heads, self._head_dim = shape.num_key_value_heads, shape.head_dim
        self._context = context
        self._buffers: list[NDArray[np.float32]] = []

    def prepare(self, length: int, total: int) -> None:
        """Binds buffers for a pass that extends the first `length` tokens to `total`."""
        if total <= self.capacity:
            return
        capacity = min(max(MIN_BUFFER, 1 << (total - 1).bit_length()), self._context)
        grown = []
        for index in range(len(self.names)):
            # Pages without a token take no memory.
            buffer = np.empty((1, self._heads, capacity, self._head_dim), np.float32)
            if length:
                buffer[:, :, :length] = self._buffers[index][:, :, :length]
            grown.append(buffer)
        # An interrupt between two bindings must not leave one to a freed buffer: until all are bound the
        # capacity is 0, and the next pass binds the copies again.
        self._buffers, self.capacity = grown, 0
        for name, buffer in zip(self.names, grown, strict=True):
            self._graph.bind_input(f"past_key_values.{name}", buffer)
            self._graph.bind_output(f"present.{name}", buffer)
        self.capacity = capacity

    def fork(self, graph: BoundGraph, tokens: int) -> KeyValueCache:
        """A cache for a fork of the graph, which begins with the first tokens of this one."""
        other = KeyValueCache(graph, self._shape, self._context)
        if tokens:
            other.prepare(0, tokens)
            for source, target in zip(self._buffers, other._buffers, strict=True):
                target[:, :, :tokens] = source[:, :, :tokens]
        return other

    def size(self, tokens: int = 0) -> int:
        """Bytes of a cache of so many tokens, or of the present one where that is larger."""
        return 4 * len(self.names) * self._heads * self._head_dim * max(tokens, self.capacity)
