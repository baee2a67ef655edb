"""The sampler: whole runs, batched, from canvases of mask tokens to answers (one step: see `step`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from cloud_anchor.errors import RequestError, require
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.continuous_batch import ContinuousBatch
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import DiffusionModel

Prompt = Sequence[int]
"""Token ids."""


def denoise(
    model: DiffusionModel,
    prompts: Sequence[Prompt],
    config: DenoiseConfig,
    batch: int | None = None,
    after_step: Callable[[], None] = lambda: None,
) -> list[Denoised]:
    """The answers to the prompts, in their order; `batch` prompts at a time, by default all at once.

    after_step: called after each pass over a batch.
    """
    if not prompts:
        raise RequestError("expected at least one prompt, found none")
    found = dict(denoise_stream(model, prompts, config, batch or len(prompts), after_step))
    return [found[index] for index in range(len(prompts))]


def denoise_stream(
    model: DiffusionModel,
    prompts: Iterable[Prompt],
    config: DenoiseConfig,
    batch: int,
    after_step: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Denoised]]:
    """Yields (index of the prompt, its answer) as soon as the answer is done.

    An answer that is done leaves the batch and the next prompt takes its row, so with a stop rule no pass is
    spent on finished answers. Prompts are read from the iterable as rows become free.
    """
    require("batch", batch >= 1, "at least 1", batch)
    waiting = enumerate(prompts)
    running: ContinuousBatch[int] = ContinuousBatch(model, config)
    while True:
        for index, prompt in islice(waiting, batch - len(running)):
            running.join(index, prompt)
        if not len(running):
            return
        answers = running.step()
        after_step()
        for index, answer, _ in answers:
            yield index, answer
