"""A diffusion model that runs on a server: its unfinished canvas, as answers of this process.

Responsible for what a server is asked for an answer, and for what is known of it then. Not responsible for
the server's protocol (see `vllm`).

The server runs all steps of an answer in one request, so nothing is asked before its last step here. It tells
the prediction and probability of each position, but not which of them it has accepted; a further number of
steps is a run from the beginning, with noise of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_anchor.errors import CheckpointError, RequestError, ServerError, require
from cloud_anchor.model.checkpoint import end_ids, find_checkpoint, generation_settings, read_json
from cloud_anchor.model.families import DIFFUSION_GEMMA
from cloud_anchor.model.vllm import Canvas, ServedName, VllmServer
from cloud_anchor.sampling.config import CONFIDENCE, DenoiseConfig
from cloud_anchor.sampling.denoised import OPEN, Denoised
from cloud_anchor.sampling.protocol import Left, Runs, require_options, require_room
from cloud_anchor.sampling.rows import AskedAnswers, AskedRow
from payload import Contract

CANVAS, STEPS = 256, 48
"""Of a full run, where the checkpoint does not state them."""

SECONDS = 60.0
"""In which a server has to answer where nobody says less."""

PREFIX = "vllm:"


def open_server(backend: str, source: str, key: str | None = None, connections: int = 8) -> ServedModel:
    """The model of a server, such as vllm:http://host:8000.

    source: folder or hub name of the same model, of which the configuration is read, not the weights.

    Raises RequestError for an address that is none, ServerError where it does not answer or has another
    model, CheckpointError for files of another kind.
    """
    require("backend", backend.startswith(PREFIX), f"{PREFIX}http://host:port", backend)
    server = VllmServer(backend.removeprefix(PREFIX), key, connections)
    folder = find_checkpoint(source, weights=False)
    where, settings = folder / "config.json", read_json(folder / "config.json")
    kind = settings.get("model_type")
    if kind != DIFFUSION_GEMMA:
        raise CheckpointError(
            f"{where}: expected model_type {DIFFUSION_GEMMA!r}, which vLLM gives unfinished, found {kind!r}. "
            "Name the served model (--model)."
        )
    text, generation = settings.get("text_config") or {}, generation_settings(folder)
    plan = int(settings.get("canvas_length") or CANVAS), int(generation.get("max_denoising_steps") or STEPS)
    served = _chosen(server, server.models(), source)
    context = served.context or int(text.get("max_position_embeddings") or 0)
    rows = int(text.get("vocab_size") or 0)
    if not context or not rows:
        raise CheckpointError(f"{where}: expected vocab_size and max_position_embeddings in text_config")
    return ServedModel(server, served.id, source, plan, context, rows, end_ids(text | settings, generation))


def _chosen(server: VllmServer, served: Sequence[ServedName], source: str) -> ServedName:
    """The served model of this name or place, or the only one; raises ServerError."""
    names = {source, Path(source).name}
    for each in served:
        if names & {each.id, each.root}:
            return each
    if len(served) > 1:
        raise ServerError(
            f"{server.url}: expected {source} among its models, found {', '.join(s.id for s in served)}. "
            "Name one of them (--model)."
        )
    return served[0]


@dataclass
class ServedModel:
    """See `protocol.AskedModel`. name: by which the server knows it."""

    server: VllmServer
    name: str
    source: str
    plan: tuple[int, int]
    context: int
    vocab_rows: int
    eos_ids: frozenset[int]
    parameters: int = 0
    is_word: Callable[[int], bool] = lambda id_: True

    def adopt(self, contract: Contract) -> None:
        self.eos_ids |= contract.eos_ids
        self.is_word = contract.is_ordinary

    def published(self, config: DenoiseConfig, *, sends_predictions: bool) -> DenoiseConfig:
        """As `protocol.OwnSampler` says, but `auto` stays: what it stands for is the server's."""
        if not sends_predictions:
            raise RequestError(
                "select: expected a selection of predictions, found one of committed tokens, which vLLM does "
                "not tell. Use --select confidence, or an edge bundle (--edge)."
            )
        return replace(config, stop=config.stop or "complete")

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> AskedAnswers:
        canvas, steps = self.plan
        require("canvas", config.canvas <= canvas, f"at most {canvas} with a vLLM server", config.canvas)
        most = f"{steps}, the server's schedule"
        require("total steps", config.total_steps == steps, most, config.total_steps)
        require_options(
            config,
            "a vLLM server, whose sampler decides",
            commit=("auto",),
            order=(CONFIDENCE,),
            temperature=(0,),
            top_p=(None,),
            stop=(None, "complete"),
        )
        require_room(self, prompts, config.canvas)
        rows = [AskedRow(prompt) for prompt in prompts]
        return AskedAnswers(self, config, rows, SECONDS, self.server.connections)

    def runs(self, prompt: Sequence[int], config: DenoiseConfig, marks: Sequence[int], left: Left) -> Runs:
        self.start([prompt], config)  # refuses what the server's sampler does not have
        for steps in marks:
            yield self.read(prompt, config, steps, left())

    def read(self, prompt: Sequence[int], config: DenoiseConfig, steps: int, seconds: float) -> Denoised:
        """The answer after so many steps, from the server; raises what `VllmServer.canvas` raises."""
        canvas = self.server.canvas(self.name, prompt, steps, config.canvas, seconds)
        draft, ended = self._draft(canvas)
        return Denoised.of_draft(
            prompt,
            draft,
            canvas.chances[: len(draft)],
            ids=[OPEN] * config.canvas,
            when=[0] * config.canvas,
            certainty=[*canvas.chances[: len(draft)], *[0.0] * (config.canvas - len(draft))],
            steps=steps,
            total_steps=config.total_steps,
            eos_ids=self.eos_ids,
            draft_ends=ended,
        )

    def _draft(self, canvas: Canvas) -> tuple[list[int], bool]:
        """The tokens before an end marker, or before one that no answer has; True where it is the first."""
        for at, token in enumerate(canvas.ids):
            if token in self.eos_ids or not self.is_word(token):
                return canvas.ids[:at], token in self.eos_ids
        return canvas.ids, False
