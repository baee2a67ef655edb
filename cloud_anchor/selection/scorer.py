"""Scoring of texts with the edge model: its greedy token, margin and log-probabilities at every position.

Responsible for running a known text through the edge model in one pass, on ONNX Runtime (the device's bundle)
or in batches in PyTorch (the checkpoint that the bundle was made from). Not responsible for what follows from
the scores (see `edge_aware`).

One causal pass over a text gives the model's greedy token after each of its prefixes. The device needs one
pass per token to decode the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import find_checkpoint, read_json
from cloud_anchor.model.prompt_form import check_vocabulary
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import chunks, common_prefix
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import ContextError, EngineError

_SIZES = (
    "hidden_size intermediate_size num_attention_heads num_hidden_layers num_key_value_heads vocab_size"
).split()
"""Sizes that a checkpoint's config.json and the manifest of its bundle agree on."""

MAX_CHUNK = 512
MAX_ROWS = 64
"""Largest number of tokens, and of rows of logits, per call of the engine; they bound its memory."""


@dataclass(frozen=True)
class Span:
    """Token ids of a text behind a prompt; scored from position `start` (0-based in the text) to its end."""

    prompt: Sequence[int]
    text: Sequence[int]
    start: int = 0


@dataclass(frozen=True)
class SpanScores:
    """The edge model's predictions at the n positions of a span, each given all tokens before it.

    greedy:  int64 [n], the most probable token; never an end marker, which the device suppresses until the
             end.
    margin:  float32 [n], difference of logits between it and the second most probable token.
    logprob: float32 [n], log-probability (nats) of the text's token.
    best:    float32 [n], the same of the greedy token.
    ends:    bool [n], whether an end marker is more probable than the greedy token.
    tokens:  tokens that went through the model for these scores.
    """

    greedy: NDArray[np.int64]
    margin: NDArray[np.float32]
    logprob: NDArray[np.float32]
    best: NDArray[np.float32]
    ends: NDArray[np.bool_]
    tokens: int


class Scorer(Protocol):
    """The edge model as a scorer of texts.

    together: number of spans that it scores in one pass. context: most tokens of a span with its prompt, None
    for no limit.
    """

    together: int
    context: int | None

    def score(self, spans: Sequence[Span]) -> list[SpanScores]:
        """The scores of each span, of one pass over it."""


class EngineScorer:
    """Scores with the device's engine. A prefix shared by consecutive spans is not run again."""

    together = 1

    def __init__(self, engine: Engine, eos_ids: frozenset[int]) -> None:
        self.engine = engine
        self.context: int | None = engine.context
        self._eos = sorted(eos_ids)
        self._lock = Lock()  # a service scores drafts and selections in two threads

    def score(self, spans: Sequence[Span]) -> list[SpanScores]:
        """Raises ContextError where a span does not fit, EngineError where the model fails."""
        with self._lock:
            return [self._score(span) for span in spans]

    def _score(self, span: Span) -> SpanScores:
        tokens = [*span.prompt, *span.text[:-1]]
        first = len(span.prompt) - 1 + span.start  # the row that predicts the first position
        reused = min(common_prefix(self.engine.tokens, tokens), first)
        self.engine.rewind(reused)
        parts = []
        rest = tokens[reused:]
        rows = list(range(first - reused, len(rest)))
        position = span.start
        for start, stop, wanted in chunks(len(rest), rows, MAX_CHUNK, MAX_ROWS):
            logits = self.engine.append(rest[start:stop], wanted)
            if wanted:
                parts.append(_judge(logits, span.text[position : position + len(wanted)], self._eos))
                position += len(wanted)
        greedy, margin, logprob, best, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
        return SpanScores(greedy, margin, logprob, best, ends, len(rest))


def _judge(
    logits: NDArray[np.float32], text: Sequence[int], eos: Sequence[int]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The first five columns of SpanScores, of logits [n, V]."""
    if not np.isfinite(logits).all():
        raise EngineError("the edge model's logits are not finite numbers. Use another variant of its bundle")
    held = logits.copy()
    held[:, eos] = -np.inf
    rows = np.arange(len(held))
    greedy = held.argmax(-1)
    top = held[rows, greedy]
    norm = top + np.log(np.exp(held - top[:, None]).sum(-1, dtype=np.float64)).astype(np.float32)
    standing = held[rows, np.asarray(text, np.int64)]
    held[rows, greedy] = -np.inf
    return greedy, top - held.max(-1), standing - norm, top - norm, logits[:, eos].max(-1) > top


class TorchScorer:
    """Scores with the edge checkpoint in PyTorch, many spans in one pass.

    together: most spans of one pass. context: most tokens of a span with its prompt, None for no limit.
    """

    def __init__(
        self, net: Any, eos_ids: frozenset[int], together: int = 32, context: int | None = None
    ) -> None:
        self._net = net
        self._eos = sorted(eos_ids)
        self.together = together
        self.context = context

    @classmethod
    def of_bundle(
        cls, bundle: Bundle, checkpoint: str | Path, device: torch.device | str | None = None
    ) -> TorchScorer:
        """The checkpoint that a bundle was made from: a local folder or a hub name.

        Raises CheckpointError where it cannot be loaded or has other sizes than the bundle's model, and
        ContractMismatchError where it has another vocabulary.
        """
        folder = find_checkpoint(str(checkpoint))
        check_vocabulary(folder, bundle)
        config, shape = read_json(folder / "config.json"), bundle.manifest.model
        for name in _SIZES:
            if config.get(name) != getattr(shape, name):
                raise CheckpointError(
                    f"{folder}: expected the checkpoint that the edge bundle {bundle.path} was made from "
                    f"({shape.id}), with {name} {getattr(shape, name)}, found {config.get(name)}."
                )
        scorer = cls.load(folder, bundle.contract.eos_ids, device)
        scorer.context = bundle.context
        return scorer

    @classmethod
    def load(
        cls, folder: Path, eos_ids: frozenset[int], device: torch.device | str | None = None
    ) -> TorchScorer:
        """A Qwen2 checkpoint in a local folder; bfloat16 on CUDA, else float32. Raises CheckpointError."""
        from transformers import Qwen2ForCausalLM

        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        kind = torch.bfloat16 if place.type == "cuda" else torch.float32
        try:
            net = Qwen2ForCausalLM.from_pretrained(folder, dtype=kind, local_files_only=True)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder}: expected a Qwen2 checkpoint, found: {error}") from error
        return cls(net.to(place).eval(), eos_ids)

    @torch.no_grad()
    def score(self, spans: Sequence[Span]) -> list[SpanScores]:
        """Raises ContextError where a span does not fit, EngineError for logits that are not finite."""
        rows = [[*span.prompt, *span.text[:-1]] for span in spans]
        longest = max(map(len, rows))
        if self.context is not None and longest > self.context:
            raise ContextError(
                f"expected prompt and draft within the edge model's {self.context} tokens, found {longest}"
            )
        device = self._net.device
        # Padding is on the right, where it does not affect a causal model.
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
        states = self._net.model(input_ids=ids, use_cache=False).last_hidden_state
        scores = []
        for state, row, span in zip(states, rows, spans, strict=True):
            wanted = state[len(span.prompt) - 1 + span.start : len(row)]
            logits = self._net.lm_head(wanted).float()
            text = torch.tensor(span.text[span.start :], device=device)
            scores.append(self._judge(logits, text, len(row)))
        return scores

    def _judge(self, logits: torch.Tensor, text: torch.Tensor, tokens: int) -> SpanScores:
        """As `_judge`, on the device the logits are on."""
        end = logits[:, self._eos].amax(-1)
        logits[:, self._eos] = -torch.inf
        top, index = logits.topk(2)
        norm = logits.logsumexp(-1)
        standing = logits.gather(-1, text[:, None])[:, 0] - norm
        columns = (top[:, 0] - top[:, 1], standing, top[:, 0] - norm, end > top[:, 0])
        margin, logprob, best, ends = (column.cpu().numpy() for column in columns)
        if not np.isfinite(best).all():
            raise EngineError("the edge model's logits are not finite numbers: expected a sound checkpoint")
        return SpanScores(index[:, 0].cpu().numpy(), margin, logprob, best, ends, tokens)


def open_scorer(
    bundle: Bundle, checkpoint: str | Path | None = None, device: torch.device | str | None = None
) -> Scorer:
    """The edge model of a bundle as a scorer: on ONNX Runtime, or with `checkpoint` in PyTorch on `device`.

    checkpoint: as for `TorchScorer.of_bundle`, whose errors it raises; EdgeError for a bundle that cannot be
    opened.
    """
    if checkpoint is not None:
        return TorchScorer.of_bundle(bundle, checkpoint, device)
    return EngineScorer(OrtEngine.open(bundle), bundle.contract.eos_ids)
