"""A masked diffusion language model on stock Qwen2 modules: never any code from a model's repository.

Knows how to find and read a checkpoint, how to make the modules attend in both directions, and where the
prediction of a position is to be read. Does not know how tokens are chosen (see `sampler`) or what text they
stand for (see `prompts`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cloud_anchor.errors import CheckpointError, RequestError
from cloud_anchor.families import DREAM_7B, FAMILIES, Family, Settings, Shape, family_of, rope_option

TINY = Path(__file__).parent / "tiny" / "weights" / "tiny-dream"
HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "merges.txt", "LICENSE*")
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Batch:
    """Prompts side by side, to the left of a canvas of equal size: what stays the same from step to step.

    prompt:    int64 [B, P], padded on the left.
    positions: int64 [B, P + C], or None where all prompts are equally long.
    mask:      [B, 1, 1, P + C], 0 for tokens and the lowest number for padding, added to attention scores;
               or None.
    """

    prompt: Tensor
    positions: Tensor | None
    mask: Tensor | None


class Prefix:
    """Keys and values of the prompts, kept from one pass for the next `every` - 1, then made anew.

    Less work, and approximate: with full attention what a prompt's tokens hold depends on the canvas, which
    changes from step to step (Fast-dLLM, arXiv 2505.22618, section 3.2). Belongs to one batch of prompts.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.age = 0
        self.cache: Any = None

    def copy(self) -> Prefix:
        """An independent one that goes on exactly as this one would."""
        return copy.deepcopy(self)


class DreamModel:
    """A diffusion language model, ready to predict masked tokens.

    mask_id: the token that stands for "not yet known".
    eos_ids: tokens that end an answer or fill what follows it.
    plan:    canvas and steps of a full run, where the checkpoint states them.
    """

    def __init__(
        self,
        net: Any,
        family: Family,
        mask_id: int,
        eos_ids: frozenset[int],
        source: str,
        plan: tuple[int, int] | None = None,
    ) -> None:
        self.net = net
        self.family = family
        self.mask_id = mask_id
        self.eos_ids = eos_ids
        self.source = source
        self.plan = plan
        self.ends = torch.tensor(sorted(eos_ids), device=self.device)
        self._unusable = torch.tensor([mask_id], device=self.device)
        self._body: Any = net.model

    def compile(self) -> None:
        """Compiles the layers with torch.compile, for any number of rows and positions.

        The first passes then take minutes. Sums are made in another order, so logits differ in the last
        digits. Passes with a kept prefix stay as they are.
        """
        self._body = torch.compile(self.net.model, dynamic=True)

    def adopt(self, ordinary: int, eos_ids: frozenset[int]) -> None:
        """Takes note of the vocabulary: answers have ids below `ordinary` and end markers, no other
        specials.
        """
        self.eos_ids |= eos_ids
        self.ends = torch.tensor(sorted(self.eos_ids), device=self.device)
        others = (set(range(ordinary, self.vocab_rows)) | {self.mask_id}) - self.eos_ids
        self._unusable = torch.tensor(sorted(others), device=self.device)

    def without_unusable(self, logits: Tensor) -> Tensor:
        """Logits [N, V] with -inf for the mask token and whatever else no answer has."""
        return logits.index_fill(-1, self._unusable, -torch.inf)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.net.model.embed_tokens.weight.device
        return device

    @property
    def vocab_rows(self) -> int:
        """Rows of the logits, which may exceed the number of tokens."""
        return int(self.net.config.vocab_size)

    @property
    def context(self) -> int:
        """Most positions, prompt and canvas together."""
        return int(self.net.config.max_position_embeddings)

    def batch(self, prompts: Sequence[Sequence[int]], canvas: int) -> Batch:
        """Lays prompts out side by side; raises RequestError for an empty one and for one that is too
        long.
        """
        longest = max(len(prompt) for prompt in prompts)
        for row, prompt in enumerate(prompts):
            if not prompt:
                raise RequestError(f"prompt {row}: expected at least one token, found none")
        if longest + canvas > self.context:
            raise RequestError(
                f"expected prompt and canvas within {self.context} positions, found a prompt of {longest} "
                f"tokens and a canvas of {canvas}. Use a shorter prompt or a smaller canvas."
            )
        pads = [longest - len(prompt) for prompt in prompts]
        rows = [[self.mask_id] * pad + list(prompt) for pad, prompt in zip(pads, prompts, strict=True)]
        tokens = torch.tensor(rows, dtype=torch.long, device=self.device)
        if not any(pads):
            return Batch(tokens, None, None)
        place = torch.arange(longest + canvas, device=self.device)
        offset = torch.tensor(pads, device=self.device)[:, None]
        dtype = self.net.model.embed_tokens.weight.dtype
        mask = torch.zeros(len(pads), longest + canvas, dtype=dtype, device=self.device)
        # Additive and float: a boolean mask is read as "add 0 or 1" by the eager implementation.
        mask.masked_fill_(place < offset, torch.finfo(dtype).min)
        return Batch(tokens, (place - offset).clamp(min=0), mask[:, None, None, :])

    @torch.no_grad()
    def hidden(self, batch: Batch, canvas: Tensor, prefix: Prefix | None = None) -> Tensor:
        """Final hidden states [B, C, H]; row p is the one that predicts position p of `canvas` [B, C].

        prefix: keeps the prompts' keys and values between calls for the same prompts; None runs them anew.
        """
        if prefix is not None:
            return self._run_behind(prefix, batch, canvas)
        return self._run(torch.cat([batch.prompt, canvas], 1), batch.positions, batch.mask, canvas.shape[1])

    @torch.no_grad()
    def logits(self, batch: Batch, canvas: Tensor, wanted: Tensor, prefix: Prefix | None = None) -> Tensor:
        """Logits [N, V] of the N positions that `wanted` (bool [B, C]) marks, in row-major order.

        The vocabulary projection runs on these positions only: never on the prompt, nor on what is committed.
        prefix: as in `hidden`.
        """
        logits: Tensor = self.net.lm_head(self.hidden(batch, canvas, prefix)[wanted])
        return logits

    @torch.no_grad()
    def forward(self, ids: Tensor, keep: int | None = None) -> Tensor:
        """Logits [B, keep, V] that predict the last `keep` positions (default: all) of `ids` [B, L],
        unpadded.

        Where the family shifts, position 0 has no predecessor and takes its own row, as in the published
        sampler.
        """
        logits: Tensor = self.net.lm_head(self._run(ids, None, None, ids.shape[1] if keep is None else keep))
        return logits

    def _run(self, ids: Tensor, positions: Tensor | None, mask: Tensor | None, keep: int) -> Tensor:
        # The dictionary form reaches the layers as it is; anything else is combined with a causal mask.
        states: Tensor = self._body(
            input_ids=ids,
            attention_mask={"full_attention": mask},
            position_ids=positions,
            is_causal=False,
            use_cache=False,
        ).last_hidden_state
        length = ids.shape[1]
        if not self.family.shifted:
            return states[:, length - keep :]
        if keep < length:
            return states[:, length - keep - 1 : -1]
        return torch.cat([states[:, :1], states[:, :-1]], 1)

    def _run_behind(self, prefix: Prefix, batch: Batch, canvas: Tensor) -> Tensor:
        """As `hidden`, running the prompt only where the prefix has none or is old."""
        from transformers import DynamicCache

        # The prompt's last token predicts the first position, so it is run with the canvas.
        kept = batch.prompt.shape[1] - (1 if self.family.shifted else 0)
        ids = torch.cat([batch.prompt, canvas], 1)
        positions = batch.positions
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None].expand(ids.shape)
        if prefix.cache is None or prefix.age >= prefix.every:
            prefix.cache, prefix.age, begin = DynamicCache(), 0, 0
        else:
            begin = kept
        states: Tensor = self.net.model(
            input_ids=ids[:, begin:],
            attention_mask={"full_attention": batch.mask},
            position_ids=positions[:, begin:],
            past_key_values=prefix.cache,
            is_causal=False,
            use_cache=True,
        ).last_hidden_state
        prefix.cache.crop(kept)
        prefix.age += 1
        states = states[:, kept - begin :]
        return states[:, :-1] if self.family.shifted else states


def load_model(
    source: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    attention: str = "sdpa",
) -> DreamModel:
    """Loads `tiny`, a local folder, or a hub name such as Dream-org/Dream-v0-Instruct-7B.

    device: default CUDA where there is one. dtype: default bfloat16 on CUDA, float32 elsewhere.
    attention: `sdpa` or `eager`. Raises CheckpointError.
    """
    folder = find_checkpoint(source)
    settings = read_json(folder / "config.json")
    family = family_of(settings, str(folder / "config.json"))
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    kind = _dtype(dtype or ("bfloat16" if place.type == "cuda" else "float32"))
    net = _build(family.shape(settings), place, kind, attention)
    _fill(net, family, folder, place, kind)
    mask_id = settings.get("mask_token_id", family.mask_id)
    if mask_id is None:
        raise CheckpointError(f"{folder / 'config.json'}: expected a field 'mask_token_id', found none")
    eos_ids = _end_ids(settings, folder)
    if not eos_ids:
        raise CheckpointError(
            f"{folder / 'config.json'}: expected an eos_token_id or pad_token_id, found none"
        )
    return DreamModel(net, family, int(mask_id), eos_ids, source, _plan(folder))


def random_model(
    shape: Shape = DREAM_7B, *, device: str | None = None, dtype: str | None = None
) -> DreamModel:
    """A model of Dream's architecture with random weights: says nothing, but takes as long as a real one."""
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    kind = _dtype(dtype or ("bfloat16" if place.type == "cuda" else "float32"))
    net = _build(shape, place, kind, "sdpa")
    generator = torch.Generator(place).manual_seed(0)
    state = {
        name: torch.empty(value.shape, device=place, dtype=kind).normal_(0, 0.02, generator=generator)
        for name, value in net.named_parameters()
    }
    net.load_state_dict(state, strict=False, assign=True)
    net.requires_grad_(False)
    end, mask = shape.vocab_size - 421, shape.vocab_size - 398  # as in Dream-7B: 151643 and 151666 of 152064
    return DreamModel(net, FAMILIES["Dream"], mask, frozenset({end}), "random weights")


def find_checkpoint(source: str) -> Path:
    """The folder of a model: `tiny`, a path, or a hub name that is fetched into the hub's own cache."""
    folder = TINY if source == "tiny" else Path(source)
    if (folder / "config.json").is_file():
        return folder
    if source == "tiny":
        raise CheckpointError(
            f"the tiny model's weights are missing: expected them in {folder}. See `make train`."
        )
    if folder.exists() or source.count("/") != 1 or source.startswith((".", "/", "~")):
        found = "a folder without it" if folder.is_dir() else "no such folder"
        raise CheckpointError(f"{source}: expected a folder with config.json or a hub name, found {found}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=list(HUB_FILES)))
    except Exception as error:  # every kind of network and hub failure, in the hub's own words
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{source}: no such folder, and the model hub did not give it: {reason} "
            "Give a local folder, or `tiny`."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint's file; raises CheckpointError."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: this file is missing") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: expected JSON, found: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected an object, found a {type(data).__name__}")
    return data


def _dtype(name: str) -> torch.dtype:
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in kinds:
        raise RequestError(f"dtype: expected {', '.join(kinds)}, found {name!r}")
    return kinds[name]


def _end_ids(settings: Settings, folder: Path) -> frozenset[int]:
    """Ids that end an answer, from config.json and generation_config.json."""
    sources = [settings]
    if (folder / "generation_config.json").is_file():
        sources.append(read_json(folder / "generation_config.json"))
    found: set[int] = set()
    for source in sources:
        for name in ("eos_token_id", "pad_token_id"):
            value = source.get(name)
            found.update(value if isinstance(value, list) else [value] if value is not None else [])
    return frozenset(found)


def _plan(folder: Path) -> tuple[int, int] | None:
    """Canvas and steps of a full run, where generation_config.json states both."""
    if not (folder / "generation_config.json").is_file():
        return None
    settings = read_json(folder / "generation_config.json")
    canvas, steps = settings.get("max_new_tokens"), settings.get("steps")
    return (canvas, steps) if isinstance(canvas, int) and isinstance(steps, int) else None


def _build(shape: Shape, place: torch.device, kind: torch.dtype, attention: str) -> Any:
    """Qwen2 modules without weights. The configuration is made by hand: model_type is not one transformers
    knows.
    """
    import transformers
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

    options = dict(vars(shape))
    options |= rope_option(options.pop("rope_theta"))
    config = transformers.Qwen2Config(**options, use_sliding_window=False, use_cache=False)
    config._attn_implementation = attention
    with torch.device("meta"):
        net = transformers.Qwen2ForCausalLM(config).to(kind)
    # Its table is computed, not stored, so it has to be made where the weights will be; always in float32.
    with torch.device(place):
        net.model.rotary_emb = Qwen2RotaryEmbedding(config=config)
    return net.eval()


def _fill(net: Any, family: Family, folder: Path, place: torch.device, kind: torch.dtype) -> None:
    """Reads the weights file by file, so that never more than one file is held twice."""
    expected = {name: value.shape for name, value in net.named_parameters()}
    tied = net.config.tie_word_embeddings
    seen: set[str] = set()
    for path in _weight_files(folder):
        try:
            tensors = load_file(path, device=str(place))
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: expected a safetensors file, found: {error}") from error
        state = {family.rename(name): tensor.to(kind) for name, tensor in tensors.items()}
        if tied:
            state.pop("lm_head.weight", None)
        for name, tensor in state.items():
            if name not in expected:
                raise CheckpointError(
                    f"{path}: tensor {name!r} has no place in a model of this configuration"
                )
            if tensor.shape != expected[name]:
                raise CheckpointError(
                    f"{path}: tensor {name!r}: config.json asks for the shape {list(expected[name])}, "
                    f"found {list(tensor.shape)}"
                )
        net.load_state_dict(state, strict=False, assign=True)
        seen.update(state)
    if tied:
        net.lm_head.weight = net.model.embed_tokens.weight
        seen.add("lm_head.weight")
    if not family.biased:
        for layer in net.model.layers:
            for part in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj):
                part.bias = torch.nn.Parameter(torch.zeros_like(part.bias, device=place), requires_grad=False)
        seen.update(name for name in expected if name.endswith("_proj.bias"))
    missing = sorted(set(expected) - seen)
    if missing:
        raise CheckpointError(
            f"{folder}: {len(missing)} tensors are missing, the first is {missing[0]!r}. "
            "Download the model again."
        )
    net.requires_grad_(False)


def _weight_files(folder: Path) -> Iterator[Path]:
    if (folder / INDEX).is_file():
        names = sorted(set(read_json(folder / INDEX).get("weight_map", {}).values()))
        if any("/" in name or "\\" in name for name in names):
            raise CheckpointError(f"{folder / INDEX}: expected file names, found a path among {names[:3]}")
        yield from (folder / name for name in names)
    elif (folder / "model.safetensors").is_file():
        yield folder / "model.safetensors"
    else:
        raise CheckpointError(
            f"{folder}: expected model.safetensors or {INDEX}, found neither. "
            "Only safetensors weights are read: other formats can carry code."
        )
