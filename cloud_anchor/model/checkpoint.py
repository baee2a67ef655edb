"""Checkpoints of diffusion language models, loaded into stock modules.

Responsible for finding files, reading config.json and generation_config.json, and loading weights; no code
from a model's repository is run. Not responsible for what the model computes (see `dream`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from cloud_anchor.errors import CheckpointError, require
from cloud_anchor.model.block_diffusion import BlockModel
from cloud_anchor.model.diffusion_gemma import DiffusionGemma, gemma_sizes, load_diffusion_gemma
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.families import DIFFUSION_GEMMA, Family, Settings, Shape, family_of, rope_option
from cloud_anchor.model.gguf import GgufModel, load_gguf
from cloud_anchor.model.memory import MemoryNeeds, Sizes, number_format
from cloud_anchor.sampling.config import DEFAULT_PLAN
from cloud_anchor.shipped import PAIRS, shipped_checkpoint
from common import files
from common.installed import remedy
from common.progress import Progress, Silent
from edge_runtime.text.gguf import SUFFIX

WEIGHTS = "*.safetensors"
HUB_FILES = ("*.json", WEIGHTS, "*.jinja", "merges.txt", "LICENSE*")
INDEX = "model.safetensors.index.json"
EXAMPLES = "examples.json"
SCALE = ".row_scale"
"""Ends the name of a matrix's scales, where its weights are in eight bits (see `restore`)."""


def load_model(
    source: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    answers: int = 1,
    canvas: int | None = None,
    beside: int = 0,
    progress: Progress | None = None,
) -> DreamModel | BlockModel | DiffusionGemma | GgufModel:
    """Loads `testbed`, `tiny`, a local folder or GGUF file, or a hub name such as
    Dream-org/Dream-v0-Instruct-7B.

    device: default CUDA where there is one; of a GGUF file also the number of its layers there. dtype:
    default as `number_format` says. answers, canvas, beside: for the estimate of the memory (see
    `memory.MemoryNeeds`); canvas: default the checkpoint's own.
    progress: told of a number format that is not float32, and of the weights as they are read.

    Raises CheckpointError, and MemoryLackError before anything is loaded; of a GGUF file what `load_gguf`
    does.
    """
    report = progress or Silent()
    folder = find_checkpoint(source)
    if folder.suffix == SUFFIX:
        require("dtype", dtype is None, "none with a GGUF file, whose weights have their own types", dtype)
        return load_gguf(
            folder, device=device, answers=answers, canvas=canvas, beside=beside, progress=report
        )
    where, settings = str(folder / "config.json"), read_json(folder / "config.json")
    stated = generation_settings(folder)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def format_of(sizes: Sizes, usual: int) -> torch.dtype:
        needs = partial(MemoryNeeds.of, sizes, answers=answers, canvas=canvas or usual, beside=beside)
        return number_format(needs, dtype, place, source, report)

    if settings.get("model_type") == DIFFUSION_GEMMA:
        usual = int(settings.get("canvas_length") or DEFAULT_PLAN[0])
        kind = format_of(gemma_sizes(settings, where), usual)
        ends = end_ids(settings.get("text_config", {}) | settings, stated)
        return load_diffusion_gemma(folder, place, kind, ends, source)
    family, plan = family_of(settings, where), _plan(stated)
    shape = family.shape(settings)
    kind = format_of(shape.sizes, (plan or DEFAULT_PLAN)[0])
    net = build_net(shape, place, kind, family.modules)
    _fill(net, family, folder, place, kind, report)
    mask_id = settings.get("mask_token_id", family.mask_id)
    if mask_id is None:
        raise CheckpointError(f"{where}: expected a field 'mask_token_id', found none")
    eos_ids = end_ids(settings, stated)
    if not eos_ids:
        raise CheckpointError(f"{where}: expected an eos_token_id or pad_token_id, found none")
    if family.causal_block is None:
        return DreamModel(net, family, int(mask_id), eos_ids, source, plan, _commit(stated, folder))
    block = int(settings.get("block_size") or settings.get("bd_size") or family.causal_block)
    # Without a plan in the checkpoint one token is committed in each step.
    plan = plan or (DEFAULT_PLAN[0], DEFAULT_PLAN[0] + block)
    return BlockModel(net, replace(family, causal_block=block), int(mask_id), eos_ids, source, plan)


def find_checkpoint(source: str, *, weights: bool = True) -> Path:
    """The folder or GGUF file of a model: the name of a shipped one, a path, or a hub name that is fetched
    into the hub's own cache. The names of shipped pairs go before folders of the same name, those of
    checkpoints behind.

    weights: False to fetch the files beside them only.
    """
    folder = PAIRS[source].checkpoint if source in PAIRS else Path(source)
    if (folder / "config.json").is_file() or (folder.suffix == SUFFIX and folder.is_file()):
        return folder
    if source in PAIRS:
        raise CheckpointError(
            f"expected the {source} model's weights in {folder}, found none: "
            f"{remedy('experiments' if source == 'tiny' else 'cloud')}"
        )
    shipped = shipped_checkpoint(source)
    if shipped is not None:
        return shipped
    if folder.exists() or source.count("/") != 1 or source.startswith((".", "/", "~")):
        found = "a folder without it" if folder.is_dir() else "no such thing"
        raise CheckpointError(
            f"{source}: expected a folder with config.json, a GGUF file or a hub name, found {found}"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                source, allow_patterns=[name for name in HUB_FILES if weights or name != WEIGHTS]
            )
        )
    except Exception as error:  # every kind of network and hub failure, in the hub's own words
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{source}: no such folder, and the model hub did not give it: {reason} "
            f"Give a local folder, or {' or '.join(n for n in PAIRS if PAIRS[n].checkpoint.is_dir())}."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint's file; raises CheckpointError."""
    return files.read_json(path, CheckpointError)


def generation_settings(folder: Path) -> dict[str, Any]:
    """generation_config.json, empty where there is none; raises CheckpointError."""
    path = folder / "generation_config.json"
    return read_json(path) if path.is_file() else {}


def read_examples(folder: Path) -> list[str]:
    """Questions that a checkpoint's folder offers as examples, in EXAMPLES; raises CheckpointError."""
    path = folder / EXAMPLES
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    except ValueError as error:
        raise CheckpointError(f"{path}: expected JSON, found: {error}") from error
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise CheckpointError(f"{path}: expected a list of questions, found {found!r:.60}")
    return found


def end_ids(*settings: Settings) -> frozenset[int]:
    """Ids that end an answer, from config.json and generation_config.json."""
    values = [each.get(name) for each in settings for name in ("eos_token_id", "pad_token_id")]
    lists = [value if isinstance(value, list) else [value] for value in values if value is not None]
    return frozenset(id_ for ids in lists for id_ in ids)


def _plan(stated: Settings) -> tuple[int, int] | None:
    """Canvas and steps of a full run, where generation_config.json states both."""
    canvas, steps = stated.get("max_new_tokens"), stated.get("steps")
    return (canvas, steps) if isinstance(canvas, int) and isinstance(steps, int) else None


def _commit(stated: Settings, folder: Path) -> float | None:
    """The probability from which tokens commit in parallel, where generation_config.json states one.

    Raises CheckpointError for what is no probability.
    """
    found = stated.get("commit")
    if found is not None and not (type(found) in (int, float) and 0 < found <= 1):
        raise CheckpointError(f"{folder}: expected commit to be above 0, at most 1, found {found!r}")
    return None if found is None else float(found)


def build_net(shape: Shape, place: torch.device, kind: torch.dtype, modules: str = "Qwen2") -> Any:
    """Stock modules without weights; transformers has no configuration class for these model_types."""
    import transformers

    name = modules.lower()
    modelling = import_module(f"transformers.models.{name}.modeling_{name}")
    options = {name: value for name, value in vars(shape).items() if value is not None}
    options |= rope_option(options.pop("rope_theta"))
    config = getattr(transformers, f"{modules}Config")(**options, use_sliding_window=False, use_cache=False)
    config._attn_implementation = "sdpa"
    with torch.device("meta"):
        net = getattr(transformers, f"{modules}ForCausalLM")(config).to(kind)
    # Its table is computed, not stored, so it is created on the weights' device; always in float32.
    with torch.device(place):
        net.model.rotary_emb = getattr(modelling, f"{modules}RotaryEmbedding")(config=config)
    return net.eval()


def _fill(
    net: Any, family: Family, folder: Path, place: torch.device, kind: torch.dtype, progress: Progress
) -> None:
    """Loads the weights tensor by tensor.

    In their own format and on the processor they stay where they are mapped from the files, so that memory
    holds them once; else at most one tensor is in memory twice.
    """
    expected = {name: value.shape for name, value in net.named_parameters()}
    tied = net.config.tie_word_embeddings
    seen: set[str] = set()
    parts = list(weight_files(folder))
    title = f"loading {len(parts)} file{'s' * (len(parts) > 1)}"
    with progress.stage(title, sum(path.stat().st_size for path in parts if path.is_file())) as step:
        for path in parts:
            state: dict[str, torch.Tensor] = {}
            for stored, tensor in tensors_of(path, place):
                name = family.rename(stored)
                if tied and name == "lm_head.weight":
                    continue
                if name not in expected:
                    raise CheckpointError(f"{path}: tensor {name!r} has no place in a model of this kind")
                if tensor.shape != expected[name]:
                    raise CheckpointError(
                        f"{path}: tensor {name!r}: config.json asks for the shape {list(expected[name])}, "
                        f"found {list(tensor.shape)}"
                    )
                value = tensor.to(kind)
                if value is tensor and place.type == "cpu":
                    _read(value)
                state[name] = value
                step(tensor.nbytes)
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
        found = f"{len(missing)} tensors are missing, the first is {missing[0]!r}"
        raise CheckpointError(f"{folder}: {found}. Download the model again.")
    net.requires_grad_(False)


def tensors_of(path: Path, place: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a file by name, one at a time; those in eight bits restored. Raises CheckpointError."""
    try:
        with safe_open(path, "pt", device=str(place)) as file:
            names = list(file.keys())
            scaled = {name for name in names if name + SCALE in names}
            for name in names:
                if name in scaled:
                    yield name, restore(file.get_tensor(name), file.get_tensor(name + SCALE))
                elif name.removesuffix(SCALE) not in scaled:
                    yield name, file.get_tensor(name)
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path}: expected a safetensors file, found: {error}") from error


def restore(rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A matrix in float32 of its int8 rows and their scales, float32 [rows, 1]; raises ValueError for scales
    of another shape.
    """
    if scale.shape != (len(rows), 1):
        raise ValueError(f"expected scales of the shape {[len(rows), 1]}, found {list(scale.shape)}")
    return rows.float() * scale


def _read(tensor: torch.Tensor) -> None:
    """Touches every page of a mapped tensor, so that it is read from disk now and not in the first step."""
    tensor.view(-1).view(torch.uint8)[::4096].sum()


def weight_files(folder: Path) -> Iterator[Path]:
    """The safetensors files of a checkpoint folder; raises CheckpointError where there are none."""
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
