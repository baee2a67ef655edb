"""Diffusion language models in GGUF files, run by llama.cpp: Dream and LLaDA, quantised or not.

Responsible for what such a file says of its model, and for its passes through llama-cpp-python's C
interface. Not responsible for its tokenizer (see `edge_runtime.text.gguf`) or for sampling, which is that of
every masked model.

The weights stay in the file, mapped, in the types that they have there. Positions of one answer see all of it
and nothing of another: each row of a batch is a sequence of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cloud_anchor.errors import CheckpointError, require
from cloud_anchor.model.families import FAMILIES, Family
from cloud_anchor.model.memory import MemoryNeeds, Sizes
from cloud_anchor.model.stock import AnswerModel
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.protocol import Batch
from cloud_anchor.sampling.schedules import Schedule
from cloud_anchor.sampling.step import MaskedAnswers
from common.progress import Progress
from edge_runtime.bench.llama_cpp import last_error, put, quiet_library
from edge_runtime.system import available_memory
from edge_runtime.text.gguf import Metadata, end_ids, read_metadata

ARCHITECTURES = {"dream": "Dream", "llada": "llada"}
"""The model_type in `families` by general.architecture."""

CANVAS, STEPS, COMMIT = "diffusion.canvas_length", "diffusion.steps", "diffusion.commit"
"""Keys of a full run's plan, and of the probability from which tokens commit in parallel; others' files have
none.
"""

DEFAULT_CANVAS = 256
MOST_POSITIONS = 1024
"""Of all sequences of a pass together, unless one has more: more rows are run in several passes."""

_SEQUENCES = 64


class Facts(NamedTuple):
    """What a file says of its model.

    shifted: whether position p is predicted at p - 1. plan: canvas and steps of a full run. commit: the
    probability from which tokens commit in parallel. exact: whether all weights are in float32.
    """

    family: Family
    mask_id: int
    eos_ids: frozenset[int]
    shifted: bool
    plan: tuple[int, int] | None
    commit: float | None
    sizes: Sizes
    exact: bool

    @classmethod
    def of(cls, data: Metadata, where: str) -> Facts:
        """Of a file's metadata; raises CheckpointError where something is missing or does not fit."""
        kind = data.get("general.architecture")
        if kind not in ARCHITECTURES:
            raise CheckpointError(
                f"{where}: expected a diffusion language model of architecture {' or '.join(ARCHITECTURES)}, "
                f"found {kind!r}. An autoregressive model belongs on the edge: see `python -m convert`."
            )
        family = FAMILIES[ARCHITECTURES[kind]]
        mask = data.get("tokenizer.ggml.mask_token_id", family.mask_id)
        padding = data.get("tokenizer.ggml.padding_token_id")
        ends = {*end_ids(data), *(() if padding is None else (padding,))}
        tokens = len(data.get("tokenizer.ggml.tokens") or ())
        wrong = [id_ for id_ in (mask, *ends) if type(id_) is not int or not 0 <= id_ < tokens]
        if mask is None or not ends or wrong:
            raise CheckpointError(
                f"{where}: expected the ids of a mask token and of an end within {tokens} tokens, found "
                f"{mask} and {sorted(map(str, ends))}. Convert the model again with today's llama.cpp."
            )
        canvas, steps, commit = (data.get(key) for key in (CANVAS, STEPS, COMMIT))
        plan = (canvas, steps) if isinstance(canvas, int) and isinstance(steps, int) else None
        hidden, inner = (int(data.get(f"{kind}.{each}_length", 0)) for each in ("embedding", "feed_forward"))
        shifted = bool(data.get("diffusion.shift_logits", family.shifted))
        sizes, exact = Sizes(tokens, hidden, inner, 0), data.get("general.file_type") == 0
        return cls(family, int(mask), frozenset(ends), shifted, plan, commit, sizes, exact)


def load_gguf(
    path: Path, *, device: str | None, answers: int, canvas: int | None, beside: int, progress: Progress
) -> GgufModel:
    """Opens a file; the arguments are those of `checkpoint.load_model`.

    device: cpu, cuda for all layers on a GPU (default, where the library was built with one), or how many.

    Raises CheckpointError, GgufError, RequestError, EngineError without the library, and MemoryLackError
    before anything is loaded.
    """
    facts = Facts.of(read_metadata(path), str(path))
    usual = canvas or (facts.plan[0] if facts.plan else DEFAULT_CANVAS)
    needs = MemoryNeeds.of(facts.sizes, torch.float32, answers, usual, beside)
    needs = replace(needs, weights=0, mapped=path.stat().st_size)
    free = available_memory()
    needs.check(str(path), free)
    if free is not None and needs.total + needs.mapped > free:
        progress.say("the file is larger than the memory that is free: every pass reads some of it from disk")
    llama = quiet_library()
    options = llama.llama_model_default_params()
    if device is not None:
        layers = {"cpu": "0", "cuda": "-1"}.get(device, device)
        takes = layers == "0" or (layers.removeprefix("-").isdecimal() and llama.llama_supports_gpu_offload())
        built = "cpu, or with a llama-cpp-python that was built for a GPU cuda or a number of layers"
        require("device", bool(takes), built, device)
        options.n_gpu_layers = int(layers)
    with progress.stage(f"loading {path.name}", path.stat().st_size) as step:
        model = llama.llama_model_load_from_file(str(path).encode(), options)
        step(path.stat().st_size)
    if not model:
        raise CheckpointError(
            f"{path}: expected a GGUF file that llama.cpp can load, found: {last_error()}. Fetch it again, "
            "or update llama-cpp-python."
        )
    return GgufModel(model, facts, str(path))


class GgufModel(AnswerModel):
    """The `MaskedModel` of a file that llama.cpp has opened (`model`, its handle)."""

    def __init__(self, model: Any, facts: Facts, source: str) -> None:
        llama = self._llama = quiet_library()
        self._model = model
        self._end = weakref.finalize(self, llama.llama_model_free, model)
        self._context: Any = None
        self._positions = 0  # that the context takes
        self._free: Any = None
        self.family, self.mask_id, self.commit, self._facts = facts.family, facts.mask_id, facts.commit, facts
        super().__init__(facts.eos_ids, source, facts.plan, facts.mask_id)

    @property
    def device(self) -> torch.device:
        """Where its logits are."""
        return torch.device("cpu")

    @property
    def schedule(self) -> Schedule:
        return self.family.schedule

    @property
    def vocab_rows(self) -> int:
        return int(self._llama.llama_vocab_n_tokens(self._llama.llama_model_get_vocab(self._model)))

    @property
    def context(self) -> int:
        return int(self._llama.llama_model_n_ctx_train(self._model))

    @property
    def parameters(self) -> int:
        return int(self._llama.llama_model_n_params(self._model))

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> MaskedAnswers:
        return MaskedAnswers.start(self, prompts, config)

    def batch(self, prompts: Sequence[Sequence[int]], canvas: int) -> Batch:
        return Batch.of(self, prompts, canvas, torch.float32)

    def logits(self, batch: Batch, canvas: Tensor, wanted: Tensor) -> Tensor:
        """Logits [N, V] of the N positions that `wanted` (bool [B, C]) marks, in row-major order."""
        ids = torch.cat([batch.prompt, canvas], 1)
        rows, length = ids.shape
        pads = [0] * rows if batch.mask is None else (batch.mask[:, 0, 0] < 0).sum(1).tolist()
        first = batch.prompt.shape[1] - self._facts.shifted  # the row of the canvas' first position
        at_once = min(_SEQUENCES, max(1, MOST_POSITIONS // length))
        found = []
        for begin in range(0, rows, at_once):
            part = range(begin, min(begin + at_once, rows))
            sequences = [ids[row, pads[row] :].tolist() for row in part]
            starts = np.cumsum([0, *map(len, sequences)])
            places = [
                starts[row - begin] + first - pads[row] + column
                for row, column in wanted[begin : part.stop].nonzero().tolist()
                for row in (row + begin,)
            ]
            if places:
                found.append(torch.from_numpy(self._encode(sequences)[places]))  # a copy of these rows alone
        return torch.cat(found) if found else torch.empty(0, self.vocab_rows)

    def _encode(self, sequences: Sequence[Sequence[int]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Logits [T, V] of all positions of these sequences, one after the other: llama.cpp's own memory
        until the next pass.
        """
        llama, count = self._llama, sum(map(len, sequences))
        self._make_room(count)
        batch = llama.llama_batch_init(count, 0, 1)
        for number, ids in enumerate(sequences):
            put(batch, ids, 0, number, range(count))
        code = llama.llama_encode(self._context, batch)
        llama.llama_batch_free(batch)
        if code:
            raise CheckpointError(f"{self.source}: llama.cpp failed on {count} positions: {last_error()}")
        return np.ctypeslib.as_array(llama.llama_get_logits(self._context), (count, self.vocab_rows))

    def _make_room(self, positions: int) -> None:
        """A context of at least so many positions: all are run at once, as attention to both sides wants."""
        if positions <= self._positions:
            return
        positions = max(positions, _SEQUENCES)  # llama.cpp ends the process where there are fewer
        if self._free is not None:
            self._free()
        llama, options = self._llama, self._llama.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = positions
        options.n_seq_max, options.kv_unified, options.no_perf = _SEQUENCES, True, True
        if self._facts.exact:  # llama.cpp's faster attention rounds keys and values to 16 bits
            options.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
        options.n_threads = options.n_threads_batch = torch.get_num_threads()
        self._context = llama.llama_init_from_model(self._model, options)
        if not self._context:
            raise CheckpointError(
                f"{self.source}: llama.cpp has no room for {positions} positions: {last_error()}. Use a "
                "smaller canvas or batch."
            )
        llama.llama_set_causal_attn(self._context, False)
        self._free = weakref.finalize(self, llama.llama_free, self._context)
        self._positions = positions
