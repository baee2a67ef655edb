"""The original model's greedy answers and logits in float32, by PyTorch.

Responsible for running transformers' model and keeping the results in files, so that an interrupted
conversion need not compute them again and PyTorch's memory is free before any variant is opened. Not
responsible for comparing a variant with them (see `verify`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from convert.source.checkpoint import Checkpoint
from convert.source.original import load_original

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


def make_reference(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    stop: frozenset[int],
    folder: Path,
    progress: Callable[[int], None] = lambda positions: None,
) -> None:
    """Answer each prompt greedily with up to `tokens` ids and store the logits of all positions in `folder`.

    stop: ids that end an answer (they are part of it). progress is called with the number of ids generated
    since its last call. Raises SourceError where transformers cannot load the checkpoint.
    """
    import torch

    (folder / TEXTS).unlink(missing_ok=True)
    model = load_original(checkpoint)
    texts: list[ReferenceText] = []
    with torch.inference_mode():
        for prompt in prompts:
            ids, cache, chunk = list(prompt), None, list(prompt)
            for _ in range(tokens):
                out = model(torch.tensor([chunk]), past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache, chunk = out.past_key_values, [int(out.logits[0, -1].argmax())]
                ids += chunk
                progress(1)
                if chunk[0] in stop:
                    break
            texts.append(ReferenceText(ids, len(prompt)))
        rows = sum(len(text.ids) for text in texts)
        logits = np.lib.format.open_memmap(
            folder / LOGITS, mode="w+", dtype=np.float32, shape=(rows, checkpoint.shape.vocab_size)
        )
        start = 0
        for text in texts:
            part = model(torch.tensor([text.ids]), use_cache=False).logits[0]
            logits[start : start + len(text.ids)] = part.float().numpy()
            start += len(text.ids)
        logits.flush()
    data = [{"ids": text.ids, "prompt": text.prompt} for text in texts]
    (folder / TEXTS).write_text(json.dumps(data), encoding="utf-8")
