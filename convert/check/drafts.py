"""A block drafter's drafts in float32, by PyTorch, and a converted variant's difference from them.

Responsible for the block's attention in PyTorch and for running an engine through the same drafts. Not
responsible for the figures' bounds (see `verify`) or for the use of drafts on the device (see
`edge_runtime.decode.block_drafter`).

A reference text is a prompt and the drafter's own blocks after it, each taken whole. Its logits are those of
the blocks' places alone, K rows a block.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from convert.check.reference import LOGITS, TEXTS, Reference
from convert.check.verify import Figures, agree, divergence
from convert.source.checkpoint import Checkpoint
from convert.source.original import load_original
from edge_runtime.bundle.manifest import BlockForm
from edge_runtime.engine.base import Engine


def make_drafts(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    folder: Path,
    progress: Callable[[int], None] = lambda positions: None,
) -> None:
    """Draft up to `tokens` ids after each prompt, block by block, and store the logits in `folder`.

    progress is called with the number of ids drafted since its last call. Raises SourceError where
    transformers cannot load the checkpoint.
    """
    import torch

    form = checkpoint.shape.drafter
    assert form is not None
    (folder / TEXTS).unlink(missing_ok=True)
    model = load_original(checkpoint)
    texts, found = [], []
    with torch.inference_mode():
        for prompt in prompts:
            ids = list(prompt)
            for _ in range(max(1, tokens // form.block)):
                chunk = torch.tensor([[*ids, *[form.mask] * (form.block - 1)]])
                size = chunk.shape[1]
                seen = torch.arange(size)[None] <= torch.arange(size)[:, None]
                seen[len(ids) - 1 :] = True
                mask = torch.zeros(1, 1, size, size).masked_fill(~seen, float("-inf"))
                states = model.model(
                    input_ids=chunk, attention_mask={"full_attention": mask}, use_cache=False
                ).last_hidden_state[0, len(ids) - 1 :]
                logits = model.lm_head(states).float()
                found.append(logits.numpy())
                ids += logits.argmax(-1).tolist()
                progress(form.block)
            texts.append({"ids": ids, "prompt": len(prompt)})
    np.save(folder / LOGITS, np.concatenate(found))
    (folder / TEXTS).write_text(json.dumps(texts), encoding="utf-8")


def compare_drafts(
    engine: Engine,
    reference: Reference,
    form: BlockForm,
    progress: Callable[[int], None] = lambda positions: None,
) -> Figures:
    """Run an engine through the reference's drafts, each after the reference's own text.

    `greedy_tokens` are those of the drafts, `greedy` is the share of them up to the first difference of each
    draft, and `milliseconds` is the time of a draft. progress is called with the number of ids run since its
    last call.
    """
    start = agreed = 0
    same, kl, delta, seconds, drafts = 0, 0.0, 0.0, 0.0, 0
    for text in reference.texts:
        engine.rewind(0)
        for first in range(text.prompt, len(text.ids), form.block):
            pending = text.ids[engine.length : first - 1]
            block = [text.ids[first - 1], *[form.mask] * (form.block - 1)]
            began = time.perf_counter()
            found = engine.append([*pending, *block], range(len(pending), len(pending) + form.block))
            seconds += time.perf_counter() - began
            expected = reference.logits[start : start + form.block]
            right = agree(expected, found)
            same += int(right.sum())
            agreed += form.block if right.all() else int(right.argmin())
            kl += float(divergence(expected, found).sum())
            delta = float(np.maximum(delta, np.abs(expected - found).max()))  # keeps NaN
            engine.rewind(first - 1)
            start, drafts = start + form.block, drafts + 1
            progress(len(pending) + form.block)
    return Figures(
        positions=start,
        top1=same / start,
        mean_kl=kl / start,
        max_delta=delta,
        greedy_tokens=start,
        greedy=agreed / start,
        milliseconds=1e3 * seconds / drafts,
    )
