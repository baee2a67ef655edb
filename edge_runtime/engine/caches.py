"""The two forms of a graph's KV cache, and the buffers that each is bound to.

    fixed     past and present are one buffer of a fixed length, updated in place: a rewind is a shorter mask.
    growing   the present is the past with the chunk behind it, a new tensor in every pass: a rewind cuts it.

Graphs of this project's builder have the first form, graphs that other exporters trace from PyTorch modules
the second. Its price is that each pass writes the whole cache, and each rewind copies what is kept.

Responsible for buffers and their bindings. Not responsible for the graph's other inputs (see `ort_engine`).

Shapes: C key/value heads, D head size, T tokens in the cache, B tokens of a fixed buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from edge_runtime.bundle.manifest import FIXED, GROWING, ModelShape
from edge_runtime.engine.ort_session import BoundGraph

MIN_BUFFER = 64
"""Least number of tokens of a cache buffer."""

Buffers = list[NDArray[np.float32]]


class KeyValueCache(ABC):
    """The keys and values of every layer, in buffers that double as they fill, up to a context.

    names:  of the tensors, "{layer}.key" and "{layer}.value".
    copies: number of buffers for each of them.
    """

    copies = 1

    def __init__(self, graph: BoundGraph, shape: ModelShape, context: int) -> None:
        self.names = [f"{i}.{part}" for i in range(shape.num_hidden_layers) for part in ("key", "value")]
        self._graph = graph
        self._heads, self._head_dim = shape.num_key_value_heads, shape.head_dim
        self._context = context

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Number of tokens that fit the buffers at their present size."""

    @abstractmethod
    def prepare(self, length: int, total: int) -> None:
        """Binds buffers for a pass that extends the first `length` tokens to `total`."""

    @abstractmethod
    def accept(self, total: int) -> None:
        """Takes the result of the pass that was prepared: the cache holds `total` tokens."""

    @abstractmethod
    def past(self, length: int) -> Buffers:
        """Views [1, C, length, D] of the tensors that hold the first `length` tokens, all that were run."""

    def read(self, length: int, tokens: int) -> Buffers:
        """Views [1, C, tokens, D] of the first of `length` tokens."""
        return [tensor[:, :, :tokens] for tensor in self.past(length)] if tokens else []

    def write(self, values: NDArray[np.float32], tokens: int) -> None:
        """Takes `read`'s tensors, flat and joined, in place of what is held."""
        self.prepare(0, tokens)
        self.accept(tokens)
        for part, tensor in zip(values.reshape(len(self.names), -1), self.past(tokens), strict=True):
            tensor[:] = part.reshape(tensor.shape)

    @property
    def bytes_per_token(self) -> int:
        return 4 * len(self.names) * self._heads * self._head_dim

    def size(self, tokens: int) -> int:
        """Bytes of a cache of so many tokens, or of the present one where that is larger."""
        return self.copies * self.bytes_per_token * max(tokens, self.capacity)

    def _grown(self, total: int) -> int:
        """Number of tokens of new buffers for `total` tokens."""
        return min(max(MIN_BUFFER, 1 << (total - 1).bit_length()), self._context)


class FixedCache(KeyValueCache):
    """Buffers [1, C, B, D], each bound as past and as present."""

    def __init__(self, graph: BoundGraph, shape: ModelShape, context: int) -> None:
        super().__init__(graph, shape, context)
        self._buffers: Buffers = []
        self._capacity = 0

    @property
    def capacity(self) -> int:
        return self._capacity

    def prepare(self, length: int, total: int) -> None:
        if total <= self.capacity:
            return
        capacity = self._grown(total)
        grown: Buffers = []
        for index in range(len(self.names)):
            # Pages without a token take no memory.
            buffer = np.empty((1, self._heads, capacity, self._head_dim), np.float32)
            if length:
                buffer[:, :, :length] = self._buffers[index][:, :, :length]
            grown.append(buffer)
        # An interrupt between two bindings must not leave one to a freed buffer: until all are bound the
        # capacity is 0, and the next pass binds the copies again.
        self._buffers, self._capacity = grown, 0
        for name, buffer in zip(self.names, grown, strict=True):
            self._graph.bind_input(f"past_key_values.{name}", buffer)
            self._graph.bind_output(f"present.{name}", buffer)
        self._capacity = capacity

    def accept(self, total: int) -> None:
        pass

    def past(self, length: int) -> Buffers:
        return [buffer[:, :, :length] for buffer in self._buffers]


class GrowingCache(KeyValueCache):
    """Two buffers for each tensor: one holds the past [1, C, T, D], a pass writes the present to the other.

    A pass that fails leaves the past as it was.
    """

    copies = 2

    def __init__(self, graph: BoundGraph, shape: ModelShape, context: int) -> None:
        super().__init__(graph, shape, context)
        # Past, other buffers, tokens of the past: one value, so that no interrupt comes between them.
        self._state: tuple[Buffers, Buffers, int] = [], [], 0

    @property
    def capacity(self) -> int:
        past = self._state[0]
        return past[0].size // (self._heads * self._head_dim) if past else 0

    def prepare(self, length: int, total: int) -> None:
        old, spare, held = self._state
        if total > self.capacity:
            size = self._heads * self._grown(total) * self._head_dim
            past, spare = ([np.empty(size, np.float32) for _ in self.names] for _ in range(2))
            self._state = self._cut(old, held, past, length), spare, length
        elif length != held:
            self._state = self._cut(old, held, spare, length), old, length
        past, spare, _ = self._state
        for index, name in enumerate(self.names):
            self._graph.bind_input(f"past_key_values.{name}", self._view(past[index], length))
            self._graph.bind_output(f"present.{name}", self._view(spare[index], total))

    def accept(self, total: int) -> None:
        past, spare, _ = self._state
        self._state = spare, past, total

    def past(self, length: int) -> Buffers:
        past, _, held = self._state
        return [self._view(buffer, held)[:, :, :length] for buffer in past]

    def _cut(self, old: Buffers, held: int, new: Buffers, length: int) -> Buffers:
        """`new`, with the first `length` of the `held` tokens in `old`."""
        if length:
            for source, target in zip(old, new, strict=True):
                self._view(target, length)[:] = self._view(source, held)[:, :, :length]
        return new

    def _view(self, buffer: NDArray[np.float32], tokens: int) -> NDArray[np.float32]:
        """The start of a flat buffer as [1, C, tokens, D]."""
        size = self._heads * tokens * self._head_dim
        return buffer[:size].reshape(1, self._heads, tokens, self._head_dim)


CACHES: dict[str, type[FixedCache] | type[GrowingCache]] = {FIXED: FixedCache, GROWING: GrowingCache}
"""By the name that a bundle's variant states."""
