"""DiffusionGemma: canvases of uniform noise, block by block, on transformers' own modules.

Responsible for the steps of `DiffusionGemmaForBlockDiffusion.generate` as answers that advance one by one,
join and leave. Not responsible for its modules, nor for what is sent of an answer (see `selection`).

A block begins as random tokens. In every step the model predicts all of it; the positions of lowest entropy,
within a bound on their sum (EB-Sampler, arXiv 2505.24857), are accepted for now, and the others become noise
again. So no position is committed before its block is: that is when the predictions are stable and their
mean entropy is low, or its steps are used up. Then the encoder reads the block, whose keys and values stay.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Categorical
from torch.nn.functional import pad

from cloud_anchor.errors import CheckpointError, require
from cloud_anchor.model.families import Settings
from cloud_anchor.model.memory import Sizes
from cloud_anchor.model.stock import LoadedModel
from cloud_anchor.sampling.config import CONFIDENCE, DenoiseConfig
from cloud_anchor.sampling.denoised import OPEN, Denoised
from cloud_anchor.sampling.protocol import require_options, require_room
from cloud_anchor.sampling.rows import RowAnswers

NAME = "DiffusionGemma"


@dataclass(frozen=True)
class Published:
    """Its sampler's options, as generation_config.json states them; else transformers' own defaults.

    max_denoising_steps: of a block. t_min, t_max: temperatures of the last and of the first step.
    stability_threshold: steps for which the predictions have to be the same before a block is done, and
    confidence_threshold the mean entropy, in nats, below which it then is.
    """

    max_denoising_steps: int = 48
    t_min: float = 0.4
    t_max: float = 0.8
    stability_threshold: int = 1
    confidence_threshold: float = 0.005
    entropy_bound: float = 0.1

    @classmethod
    def of(cls, generation: Any) -> Published:
        """From transformers' DiffusionGemmaGenerationConfig."""
        names = ("max_denoising_steps", "t_min", "t_max", "stability_threshold", "confidence_threshold")
        stated = {name: getattr(generation, name, None) for name in names}
        stated["entropy_bound"] = getattr(generation.sampler_config, "entropy_bound", None)
        return cls(**{name: value for name, value in stated.items() if value is not None})

    def cooled(self, logits: Tensor, step: int, steps: int) -> Tensor:
        """Logits divided by the temperature of a step, counted from 0, of so many."""
        left = torch.tensor(steps - step, dtype=torch.int32, device=logits.device) / steps
        return logits / (self.t_min + (self.t_max - self.t_min) * left)


def gemma_sizes(settings: Settings, where: str) -> Sizes:
    """What its memory is estimated by, from a config.json; raises CheckpointError."""
    modules = transformers_modules()
    try:
        config = modules.DiffusionGemmaConfig.from_dict(dict(settings))
        with torch.device("meta"):
            net = modules.DiffusionGemmaForBlockDiffusion(config)
    except Exception as error:  # every kind that the configuration and its modules have
        raise CheckpointError(f"{where}: expected {NAME}'s fields, found: {error}") from error
    text, inner = config.get_text_config(), config.get_text_config().intermediate_size
    if any(".experts." in name for name, _ in net.named_parameters()):
        inner += text.top_k_experts * text.moe_intermediate_size
    return Sizes(text.vocab_size, text.hidden_size, inner, sum(each.numel() for each in net.parameters()))


@dataclass(frozen=True)
class Written:
    """Finished blocks: their tokens, the step that finished each, and its probability then."""

    ids: tuple[int, ...] = ()
    when: tuple[int, ...] = ()
    sure: tuple[float, ...] = ()

    def with_block(self, ids: list[int], step: int, sure: list[float]) -> Written:
        return Written((*self.ids, *ids), (*self.when, *[step] * len(ids)), (*self.sure, *sure))


class Prediction(NamedTuple):
    """What a step predicts of a block.

    logits: [C, V], divided by the temperature, on which the next step is conditioned. tokens, chances: [C],
    the most probable ones, and their probabilities at temperature 1. accepted: bool [C], for now.
    """

    logits: Tensor
    tokens: Tensor
    chances: Tensor
    accepted: Tensor


@dataclass(frozen=True)
class Block:
    """A block that is being denoised.

    canvas:  its tokens [C], accepted ones and noise. steps: run on it.
    last:    the last step's prediction. earlier: the tokens predicted before it, as far as stability is
             judged by them.
    """

    canvas: Tensor
    steps: int = 0
    last: Prediction | None = None
    earlier: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class GemmaRow:
    """One answer. steps: run in all. cache: of transformers, of the prompt and the finished blocks."""

    prompt: tuple[int, ...]
    generator: torch.Generator
    steps: int = 0
    written: Written = Written()
    block: Block | None = None
    cache: Any = None

    @property
    def kept(self) -> int:
        """Positions before the open block."""
        return len(self.prompt) + len(self.written.ids)


class DiffusionGemma(LoadedModel):
    """See `protocol.DiffusionModel`. net: a DiffusionGemmaForBlockDiffusion."""

    def __init__(self, net: Any, eos_ids: frozenset[int], source: str) -> None:
        self.sampler = Published.of(net.generation_config)
        self.canvas = int(net.config.canvas_length)
        canvas = int(getattr(net.generation_config, "max_new_tokens", None) or self.canvas)
        plan = canvas, self.sampler.max_denoising_steps * -(-canvas // self.canvas)
        super().__init__(net, eos_ids, source, plan)

    def published(self, config: DenoiseConfig, *, sends_predictions: bool) -> DenoiseConfig:
        """As `protocol.OwnSampler` says: what is accepted for now counts as committed."""
        return replace(config, stop=config.stop or "complete")

    def start(self, prompts: Sequence[Sequence[int]], config: DenoiseConfig) -> GemmaAnswers:
        """The answers before the first step.

        Temperature 0 takes the most probable token where the published sampler draws one; 1 draws it, at the
        temperatures of its schedule. Raises RequestError for options of other samplers.
        """
        require_room(self, prompts, config.canvas)
        require_options(
            config,
            f"{NAME}, whose own sampler decides",
            order=(CONFIDENCE,),
            commit=("auto",),
            temperature=(0, 1),
            top_p=(None,),
            stop=(None, "complete"),
        )
        blocks = -(-config.canvas // self.canvas)
        least = f"at least one for each of {blocks} blocks"
        require("total steps", config.total_steps >= blocks, least, config.total_steps)
        rows = [
            GemmaRow(tuple(prompt), torch.Generator(self.device).manual_seed(config.seed))
            for prompt in prompts
        ]
        return GemmaAnswers(self, config, rows)

    @torch.no_grad()
    def encoded(self, row: GemmaRow) -> Any:
        """A cache of all before the open block; the row's own stays as it is."""
        from transformers import DynamicCache

        known = [*row.prompt, *row.written.ids]
        cache = copy.deepcopy(row.cache) or DynamicCache(config=self.text)
        begin = cache.get_seq_length()
        place = torch.arange(begin, len(known), device=self.device)[None]
        encoder = self.net.model.encoder
        masks = encoder.create_masks_for_generate(
            config=self.net.config,
            inputs_embeds=torch.empty((1, place.shape[1], 0), dtype=self.net.dtype, device=self.device),
            attention_mask=torch.ones((1, len(known)), dtype=torch.bool, device=self.device),
            past_key_values=cache,
            position_ids=place,
        )
        tokens = torch.tensor([known[begin:]], device=self.device)
        encoder(input_ids=tokens, attention_mask=masks, position_ids=place, past_key_values=cache)
        return cache

    def noise(self, row: GemmaRow, size: int) -> Tensor:
        """Tokens [size] drawn from the whole vocabulary, as the model was trained."""
        return torch.randint(self.vocab_rows, (size,), generator=row.generator, device=self.device)

    @torch.no_grad()
    def logits(self, rows: Sequence[GemmaRow], blocks: Sequence[Block]) -> Tensor:
        """Logits [B, C, V] of blocks of one size."""
        size = len(blocks[0].canvas)
        known = [block.last and block.last.logits for block in blocks]
        given = next((each for each in known if each is not None), None)
        conditions = {}
        if given is not None:
            none = torch.zeros_like(given)
            conditions["self_conditioning_logits"] = torch.stack(
                [none if each is None else each for each in known]
            )
            has = torch.tensor([each is not None for each in known], device=self.device)
            conditions["self_conditioning_mask"] = has
        cache, masks = self._joined([row.cache for row in rows], size)
        place = torch.tensor([row.kept for row in rows], device=self.device)[:, None]
        found: Tensor = self.net(
            decoder_input_ids=torch.stack([block.canvas for block in blocks]),
            decoder_attention_mask=masks,
            decoder_position_ids=place + torch.arange(size, device=self.device),
            past_key_values=cache,
            **conditions,
        ).logits
        return found

    def _joined(self, caches: Sequence[Any], size: int) -> tuple[Any, dict[str, Tensor | None]]:
        """One cache of all rows, padded on the left, and the masks of such canvases by kind of layer."""
        from transformers import DynamicCache

        masks: dict[str, Tensor | None] = dict.fromkeys(self.text.layer_types)
        if len(caches) == 1:
            return caches[0], masks
        joined = DynamicCache()
        for layer, kind in enumerate(self.text.layer_types):
            parts = [(cache.layers[layer].keys[0], cache.layers[layer].values[0]) for cache in caches]
            lengths = [keys.shape[1] for keys, _ in parts]
            most = max(lengths)
            keys, values = (
                torch.stack([pad(each, (0, 0, most - each.shape[1], 0)) for each in side])
                for side in zip(*parts, strict=True)
            )
            joined.update(keys, values, layer)
            if masks[kind] is None and min(lengths) < most:
                missing = most - torch.tensor(lengths, device=self.device)
                seen = torch.arange(most + size, device=self.device) >= missing[:, None]
                masks[kind] = seen[:, None, None].expand(-1, 1, size, -1)
        return joined, masks


@dataclass
class GemmaAnswers(RowAnswers[GemmaRow]):
    """The answers of a `DiffusionGemma`."""

    model: DiffusionGemma

    def advance(self) -> None:
        """One pass of every row; open blocks of one size are a batch."""
        rows, groups = list(self.rows), defaultdict[int, list[tuple[int, Block]]](list)
        for at, row in enumerate(self.rows):
            rows[at], block = self._opened(row)
            groups[len(block.canvas)].append((at, block))
        for group in groups.values():
            logits = self.model.logits([rows[at] for at, _ in group], [block for _, block in group])
            for (at, block), found in zip(group, logits, strict=True):
                rows[at] = self._advanced(rows[at], block, found)
        self.rows = rows

    @property
    def _steps(self) -> int:
        """Steps of a block."""
        return self.config.total_steps // -(-self.config.canvas // self.model.canvas)

    def _opened(self, row: GemmaRow) -> tuple[GemmaRow, Block]:
        """The row and its open block; its generator is a copy, for a pass that fails."""
        row = replace(row, generator=row.generator.clone_state())
        if row.block is not None:
            return row, row.block
        left = self.config.canvas - len(row.written.ids)
        block = Block(self.model.noise(row, min(self.model.canvas, left)))
        return replace(row, cache=self.model.encoded(row), block=block), block

    def _advanced(self, row: GemmaRow, block: Block, raw: Tensor) -> GemmaRow:
        """The row after a step whose logits of the block are `raw` [C, V]."""
        model, sampler, steps = self.model, self.model.sampler, row.steps + 1
        logits = sampler.cooled(model.without_unusable(raw), block.steps, self._steps)
        likeliest = logits.argmax(-1)
        chances = (raw.gather(-1, likeliest[:, None])[:, 0] - raw.logsumexp(-1)).exp()
        entropy: Tensor = Categorical(logits=logits, validate_args=False).entropy()  # type: ignore[no-untyped-call]
        tokens = likeliest
        if self.config.temperature:
            shares = logits.softmax(-1, torch.float32)
            tokens = torch.multinomial(shares, 1, generator=row.generator)[:, 0]
        accepted = within_entropy(entropy, sampler.entropy_bound)
        noise, kept = model.noise(row, len(tokens)), sampler.stability_threshold
        seen = (*block.earlier, *([block.last.tokens] if block.last else []))[-kept:] if kept else ()
        stable = len(seen) == kept and all(torch.equal(each, likeliest) for each in seen)
        sure = float(entropy.mean()) < sampler.confidence_threshold
        if (stable and sure) or block.steps + 1 >= self._steps:
            written = row.written.with_block(likeliest.tolist(), steps, chances.tolist())
            return replace(row, steps=steps, written=written, block=None)
        found = Prediction(logits.to(model.net.dtype), likeliest, chances, accepted)
        after = Block(torch.where(accepted, tokens, noise), block.steps + 1, found, seen)
        return replace(row, steps=steps, block=after)

    def stopped(self, row: GemmaRow) -> str | None:
        if any(token in self.model.eos_ids for token in row.written.ids):
            return "complete"
        return "finished" if len(row.written.ids) == self.config.canvas else None

    def result(self, row: GemmaRow, reason: str) -> Denoised:
        ends, canvas, written = self.model.eos_ids, self.config.canvas, row.written
        size = len(written.ids)
        draft, chances, accepted = list(written.ids), [1.0] * size, list[int]()
        last = row.block and row.block.last
        if last:
            accepted = [size + at for at in last.accepted.nonzero()[:, 0].tolist()]
            draft += last.tokens.tolist()
            chances += last.chances.tolist()
        ids, when, fill = list(written.ids), list(written.when), (OPEN, 0)
        done = next((at for at, token in enumerate(ids) if token in ends), None)
        if done is not None:  # behind its end an answer has end markers, as the published code pads it
            ids[done + 1 :] = [ids[done]] * (size - done - 1)
            fill = ids[done], row.steps
        end = next((at for at, token in enumerate(draft) if token in ends), len(draft))
        sure = [*written.sure, *chances[size:]]
        return Denoised.of_draft(
            row.prompt,
            draft[:end],
            chances[:end],
            ids=ids + [fill[0]] * (canvas - size),
            when=when + [fill[1]] * (canvas - size),
            certainty=sure + [0.0] * (canvas - len(sure)),
            steps=row.steps,
            total_steps=self.config.total_steps,
            eos_ids=ends,
            stopped_by=reason,
            accepted=frozenset(at for at in accepted if at < end),
            draft_ends=end < len(draft) or len(draft) == canvas,
        )


def within_entropy(entropy: Tensor, bound: float) -> Tensor:
    """The positions of lowest entropy whose sum, less the largest of them, is at most `bound`, and one at
    least: bool [C] of entropies [C] in nats.

    EB-Sampler (Ben-Hamu et al., arXiv 2505.24857): that difference bounds the mutual information of the
    tokens, so the error of drawing each by itself.
    """
    lowest, order = entropy.sort(stable=True)
    fits = lowest.cumsum(0) - lowest <= bound
    fits[0] = True
    return torch.zeros_like(fits).scatter(0, order, fits)


def load_diffusion_gemma(
    folder: Path, place: torch.device, kind: torch.dtype, eos_ids: frozenset[int], source: str
) -> DiffusionGemma:
    """The model of a checkpoint, without its part for images; raises CheckpointError."""
    modules = transformers_modules()
    from safetensors import SafetensorError

    modules.utils.logging.disable_progress_bar()
    try:
        net = modules.DiffusionGemmaForBlockDiffusion.from_pretrained(
            folder, dtype=kind, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{folder}: expected a {NAME} checkpoint, found: {reason}") from error
    encoder = net.model.encoder
    encoder.vision_tower = encoder.embed_vision = None
    return DiffusionGemma(net.to(place).eval().requires_grad_(False), eos_ids, source)


def transformers_modules() -> Any:
    """transformers, of a version that has the modules; raises CheckpointError."""
    import transformers

    if not hasattr(transformers, "DiffusionGemmaForBlockDiffusion"):
        raise CheckpointError(
            f"{NAME}: expected transformers 5 with DiffusionGemmaForBlockDiffusion, found "
            f"{transformers.__version__}. Install a newer one: pip install -U transformers"
        )
    return transformers
