"""The original model's greedy answers and logits in float32.

Responsible for running it (transformers' model by PyTorch; a GGUF file's weights as a float32 graph by the
device's engine) and keeping the results in files, so that an interrupted conversion need not compute them
again and the memory is free before any variant is opened. Not responsible for comparing a variant with them
(see `verify`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from convert.source.checkpoint import Checkpoint
from convert.source.original import load_original
from edge_runtime.engine.base import Engine

LOGITS, TEXTS = "reference.npy", "reference.json"


@dataclass(frozen=True)
class ReferenceText:
    """One prompt and the original model's greedy answer.

    ids:    token ids of both.
    prompt: number of ids that are the prompt's.
    """

    ids: list[int]
    prompt: int

    @property
    def answer(self) -> list[int]:
        return self.ids[self.prompt :]


@dataclass(frozen=True)
class Reference:
    """Logits of the original model at every position of the reference texts.

    logits: float32 [positions, V], mapped from disk; text after text, one row per id. The last row of each
            text predicts the id after it.
    """

    texts: list[ReferenceText]
    logits: npt.NDArray[np.float32]

    @staticmethod
    def complete(folder: Path) -> bool:
        """True where the files of a reference are there; the texts are written last."""
        return (folder / LOGITS).is_file() and (folder / TEXTS).is_file()

    @classmethod
    def load(cls, folder: Path) -> Reference:
        texts = [ReferenceText(**item) for item in json.loads((folder / TEXTS).read_text(encoding="utf-8"))]
        return cls(texts, np.load(folder / LOGITS, mmap_mode="r"))


class Original(Protocol):
    """The original model, as a reference is made with it."""

    def answer(self, prompt: Sequence[int], tokens: int, stop: frozenset[int]) -> Iterator[int]:
        """Greedy ids after a prompt, at most `tokens`; the last may be one of `stop`."""

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits [S, V] of every position of a text."""


class ByPyTorch:
    """transformers' model of a checkpoint; raises SourceError where it cannot be loaded."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._model = load_original(checkpoint)

    def answer(self, prompt: Sequence[int], tokens: int, stop: frozenset[int]) -> Iterator[int]:
        import torch

        cache, chunk = None, list(prompt)
        with torch.inference_mode():
            for _ in range(tokens):
                out = self._model(
                    torch.tensor([chunk]), past_key_values=cache, use_cache=True, logits_to_keep=1
                )
                cache, chunk = out.past_key_values, [int(out.logits[0, -1].argmax())]
                yield chunk[0]
                if chunk[0] in stop:
                    return

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            found: npt.NDArray[np.float32] = (
                self._model(torch.tensor([list(ids)]), use_cache=False).logits[0].float().numpy()
            )
        return found


class ByEngine:
    """The device's engine with a graph in float32."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def answer(self, prompt: Sequence[int], tokens: int, stop: frozenset[int]) -> Iterator[int]:
        self._engine.rewind(0)
        chunk = list(prompt)
        for _ in range(tokens):
            chunk = [int(self._engine.append(chunk, [len(chunk) - 1])[0].argmax())]
            yield chunk[0]
            if chunk[0] in stop:
                return

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        self._engine.rewind(0)
        return self._engine.append(list(ids), list(range(len(ids))))


def make_reference(
    original: Original,
    vocabulary: int,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    stop: frozenset[int],
    folder: Path,
    progress: Callable[[int], None] = lambda positions: None,
) -> None:
    """Answer each prompt greedily with up to `tokens` ids and store the logits of all positions in `folder`.

    vocabulary: columns of the logits. stop: ids that end an answer (they are part of it). progress is called
    with the number of ids generated since its last call.
    """
    (folder / TEXTS).unlink(missing_ok=True)
    texts: list[ReferenceText] = []
    for prompt in prompts:
        ids = list(prompt)
        for id_ in original.answer(prompt, tokens, stop):
            ids.append(id_)
            progress(1)
        texts.append(ReferenceText(ids, len(prompt)))
    rows = sum(len(text.ids) for text in texts)
    logits = np.lib.format.open_memmap(folder / LOGITS, mode="w+", dtype=np.float32, shape=(rows, vocabulary))
    start = 0
    for text in texts:
        logits[start : start + len(text.ids)] = original.logits(text.ids)
        start += len(text.ids)
    logits.flush()
    data = [{"ids": text.ids, "prompt": text.prompt} for text in texts]
    (folder / TEXTS).write_text(json.dumps(data), encoding="utf-8")
