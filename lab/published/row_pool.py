"""Several answers in one pass: rows of one graph, each of them a separate engine.

Responsible for running one pass over the next token of every row, where the edge model alone would run one
pass each: weights are read once for all rows. Decoding itself is `edge_runtime.decode.forced.fill`, one
thread a row, and knows nothing of it. Not responsible for what is decoded.

Measurements need many answers and do not care which comes first; a device has one. A pass over several rows
sums in another order than a pass over one, so that logits may differ in their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from heapq import heappop, heappush
from threading import Condition
from typing import Any, TypeVar

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from cloud_anchor.errors import RequestError
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import common_prefix
from edge_runtime.engine.base import BaseEngine, Engine, Logits
from edge_runtime.engine.ort_engine import checked_context
from edge_runtime.engine.ort_session import session_options
from edge_runtime.system import performance_cores

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
_CPU = ("cpu", 0)

SHORT = 12
"""Most tokens of one row that run one after the other in passes of all rows."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def graph_of_rows(bundle: Bundle) -> bytes:
    """A bundle's fused graph for any number of rows; its weights stay in their file.

    Raises RequestError for a graph of another form.
    """
    model = onnx.load(str(bundle.graph_path), load_external_data=False)
    squeezes = [node for node in model.graph.node if node.op_type == "Squeeze"]
    fused = any(node.op_type == "GroupQueryAttention" for node in model.graph.node)
    if not fused or len(squeezes) != 1 or any(node.op_type == "Split" for node in model.graph.node):
        raise RequestError(
            f"{bundle.graph_path}: expected a fused graph of a Qwen2 or Llama decoder, which can run several "
            "answers at once, found another. Measure with variant int8, int4 or fp32, or with --rows 1."
        )
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in ("rows", "logits"):
            value.type.tensor_type.shape.dim[0].dim_param = "answers"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "answers_rows"
    # [answers, rows, width] to [answers * rows, width], where the graph of one answer drops its first axis.
    width = numpy_helper.from_array(np.array([-1, bundle.manifest.model.hidden_size], np.int64), "two_axes")
    model.graph.initializer.append(width)
    squeezes[0].CopyFrom(helper.make_node("Reshape", [squeezes[0].input[0], width.name], squeezes[0].output))
    serialized: bytes = model.SerializeToString()
    return serialized


class RowPool:
    """`size` rows over one session. `work` runs jobs on them, one thread a row."""

    def __init__(self, bundle: Bundle, size: int, *, context: int, threads: int | None = None) -> None:
        """context: most tokens of a row. Raises RequestError for a graph that cannot run several rows."""
        shape = bundle.manifest.model
        context = checked_context(bundle, context)
        options = session_options(performance_cores() if threads is None else threads)
        options.add_session_config_entry(_WEIGHTS_FOLDER, str(bundle.graph_path.parent))
        self._session = ort.InferenceSession(
            graph_of_rows(bundle), options, providers=["CPUExecutionProvider"]
        )
        self._names = [f"{i}.{part}" for i in range(shape.num_hidden_layers) for part in ("key", "value")]
        cache = (size, shape.num_key_value_heads, context, shape.head_dim)
        self._caches: list[NDArray[np.float32]] = [np.zeros(cache, np.float32) for _ in self._names]
        self.rows = [PooledRow(self, index, context, shape.vocab_size) for index in range(size)]
        self._turn = Condition()
        self._busy = 0
        self._waiting: dict[int, tuple[int, int]] = {}  # by row: the token and its place
        self._found: dict[int, Logits] = {}
        self._failed: BaseException | None = None

    def work(self, jobs: Iterable[Job], do: Callable[[Job, Engine], Result]) -> list[Result]:
        """`do` of every job with a row of its own, in the order of the jobs. Raises what `do` raises."""
        free = list(range(len(self.rows)))  # a heap: a pass ends with the last row at work
        self._failed = None

        def one(job: Job) -> Result:
            with self._turn:
                index = heappop(free)
            try:
                with self._at_work():
                    return do(job, self.rows[index])
            finally:
                with self._turn:
                    heappush(free, index)

        with ThreadPoolExecutor(len(self.rows)) as pool:
            return list(pool.map(one, jobs))

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._turn:
            self._busy += 1
        try:
            yield
        finally:
            with self._turn:
                self._busy -= 1
                self._run_if_all_wait()

    def share(self, row: PooledRow, ids: Sequence[int]) -> None:
        """Gives a row what any row has computed of these ids."""
        with self._turn:
            other = max(self.rows, key=lambda each: common_prefix(each.tokens, ids))
            size = common_prefix(other.tokens, ids)
            if size > common_prefix(row.tokens, ids):
                for cache in self._caches:
                    cache[row.index, :, :size] = cache[other.index, :, :size]
                row.take(ids[:size])

    def run(self, row: PooledRow, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        """A pass of one row over `ids`: a long one by itself, a short one token by token with all others."""
        with self._turn:
            if len(ids) > SHORT or list(rows) != [len(ids) - 1]:
                caches = [cache[row.index : row.index + 1] for cache in self._caches]
                return self._pass(caches, np.array([ids]), np.array([row.length + len(ids)]), rows)
            for place, id_ in enumerate(ids, row.length):
                logits = self._with_others(row.index, id_, place)
            return logits

    def _with_others(self, index: int, id_: int, place: int) -> Logits:
        self._waiting[index] = (id_, place)
        self._run_if_all_wait()
        self._turn.wait_for(lambda: index in self._found or self._failed is not None)
        if index not in self._found:
            raise RuntimeError("another row's pass has failed") from self._failed
        return self._found.pop(index)

    def _run_if_all_wait(self) -> None:
        if not self._waiting or len(self._waiting) < self._busy:
            return
        # Rows between those that wait run a token as well, which their next pass overwrites.
        last = self.rows[0].context - 1
        rows = self.rows[: max(self._waiting) + 1]
        steps = [self._waiting.get(row.index, (0, min(row.length, last))) for row in rows]
        ids, places = np.array(steps).T
        try:
            caches = [cache[: len(rows)] for cache in self._caches]
            logits = self._pass(caches, ids[:, None], places + 1, [0])
            self._found.update({index: logits[index : index + 1] for index in self._waiting})
        except BaseException as error:
            self._failed = error
            raise
        finally:
            self._waiting.clear()
            self._turn.notify_all()

    def _pass(
        self,
        caches: Sequence[NDArray[np.float32]],
        ids: NDArray[np.int64],
        lengths: NDArray[np.int64],
        rows: Sequence[int],
    ) -> Logits:
        """ids [A, S] after the first lengths - S tokens of A answers: float32[A * len(rows), vocab]."""
        binding = self._session.io_binding()
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        given: dict[str, NDArray[Any]] = {
            "input_ids": np.ascontiguousarray(ids, np.int64),
            "attention_mask": mask,
            "rows": np.asarray(rows, np.int64),
        }
        given |= {f"past_key_values.{name}": cache for name, cache in zip(self._names, caches, strict=True)}
        for name, array in given.items():
            binding.bind_input(name, *_CPU, array.dtype.type, array.shape, array.ctypes.data)
        logits = np.empty((len(ids) * len(rows), self.rows[0].vocab), np.float32)
        made = {f"present.{name}": cache for name, cache in zip(self._names, caches, strict=True)}
        for name, array in {"logits": logits, **made}.items():
            binding.bind_output(name, *_CPU, array.dtype.type, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding)
        return logits


class PooledRow(BaseEngine):
    """One row of a pool."""

    def __init__(self, pool: RowPool, index: int, context: int, vocab: int) -> None:
        super().__init__(context=context, vocab=vocab)
        self._pool, self.index = pool, index

    def take(self, ids: Sequence[int]) -> None:
        """The row now holds these tokens, whose part of the cache is there."""
        self._tokens = list(ids)

    def share(self, ids: Sequence[int]) -> None:
        """Takes over what any row of the pool has computed of these ids."""
        self._pool.share(self, ids)

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        return self._pool.run(self, ids, rows)
