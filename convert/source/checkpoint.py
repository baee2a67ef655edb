"""A checkpoint in a local folder, read one tensor at a time.

Responsible for `config.json`, the safetensors files and the list of tensors of each architecture. Not
responsible for the hub (see `hub`), the tokenizer and chat template (see `tokenizer`), or the use of the
weights.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from common.files import read_json
from convert.errors import ArchitectureError, SourceError
from convert.source.architectures import ARCHITECTURES, Architecture
from convert.source.rotary import RotaryScaling
from edge_runtime.bundle.manifest import Sizes, size_problem

FloatArray = npt.NDArray[np.float32]

_PLAIN = {"attention_bias": False, "mlp_bias": False, "partial_rotary_factor": 1.0}
"""Options of a Llama or Qwen3 that the graphs do not have, with the value that leaves them out."""
_PLAIN_GEMMA = {
    "attention_bias": False,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
    "use_bidirectional_attention": False,
}
"""The same of a Gemma 3."""


@dataclass(frozen=True)
class SlidingWindow:
    """Layers whose queries see the last `size` positions alone, their own among them.

    layers:     whether each layer is one of these.
    rope_theta: base of their rotary angles, which are never scaled.
    """

    size: int
    rope_theta: float
    layers: tuple[bool, ...]


@dataclass(frozen=True)
class DecoderShape(Sizes):
    """Sizes and constants of a model that graphs are built for, under the names of its `config.json`.

    max_position_embeddings: the most positions that it was made for.
    query_pre_attn_scalar: attention scores are divided by its root.
    window:  of the layers that have one; None where all see the whole text.
    """

    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    query_pre_attn_scalar: float
    rope_scaling: RotaryScaling | None = None
    window: SlidingWindow | None = None

    @property
    def kind(self) -> Architecture:
        """What distinguishes the architecture from the others."""
        return ARCHITECTURES[self.architecture]

    @property
    def parameters(self) -> int:
        """Number of weights in the checkpoint."""
        return sum(math.prod(shape) for shape in self.tensor_shapes().values())

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor of the checkpoint. Linear weights are [outputs, inputs]."""
        hidden, inner = self.hidden_size, self.intermediate_size
        q_size, kv_size = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_hidden_layers):
            prefix = f"model.layers.{layer}."
            for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
                shapes[f"{prefix}self_attn.{name}_proj.weight"] = (size, hidden)
                if self.kind.qkv_bias:
                    shapes[f"{prefix}self_attn.{name}_proj.bias"] = (size,)
                if self.kind.qk_norm and name != "v":
                    shapes[f"{prefix}self_attn.{name}_norm.weight"] = (self.head_dim,)
            shapes[f"{prefix}self_attn.o_proj.weight"] = (hidden, q_size)
            shapes[f"{prefix}mlp.gate_proj.weight"] = (inner, hidden)
            shapes[f"{prefix}mlp.up_proj.weight"] = (inner, hidden)
            shapes[f"{prefix}mlp.down_proj.weight"] = (hidden, inner)
            shapes[f"{prefix}input_layernorm.weight"] = (hidden,)
            shapes[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
            if self.kind.gemma:
                shapes[f"{prefix}pre_feedforward_layernorm.weight"] = (hidden,)
                shapes[f"{prefix}post_feedforward_layernorm.weight"] = (hidden,)
        shapes["model.norm.weight"] = (hidden,)
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes


def digest_of(files: Iterable[Path]) -> str:
    """SHA-256 (hex) of the names and the content of files."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode())
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def read_config(folder: Path) -> dict[str, Any]:
    """The parsed `config.json` of a checkpoint folder; raises SourceError."""
    path = folder / "config.json"
    if not path.is_file():
        raise SourceError(
            f"{folder}: expected a checkpoint folder with config.json, found none. "
            "Give the folder that holds config.json and *.safetensors, or a hub name."
        )
    return read_json(path, SourceError)


def shape_of(config: dict[str, Any], where: str) -> DecoderShape:
    """The shape that a `config.json` describes; where: its place, for messages.

    Raises ArchitectureError for another architecture or a feature that the graphs do not have, and
    SourceError where a field is missing or the sizes contradict each other.
    """
    architecture = next(iter(config.get("architectures") or []), config.get("model_type"))
    if architecture not in ARCHITECTURES:
        known = " or ".join(ARCHITECTURES)
        raise ArchitectureError(
            f"{where}: expected architecture {known}, found {architecture}. Use a checkpoint such as "
            "Qwen/Qwen2.5-0.5B-Instruct."
        )
    if config.get("use_sliding_window"):
        raise ArchitectureError(
            f"{where}: expected full attention, found use_sliding_window. Sliding windows are not supported."
        )
    kind = ARCHITECTURES[architecture]
    name, activation = ("hidden_activation", "gelu_pytorch_tanh") if kind.gemma else ("hidden_act", "silu")
    if (config.get(name) or activation) != activation:
        raise ArchitectureError(f"{where}: expected {name} {activation!r}, found {config[name]!r}.")
    for feature, plain in ({} if kind.qkv_bias else _PLAIN_GEMMA if kind.gemma else _PLAIN).items():
        if config.get(feature, plain) != plain:
            raise ArchitectureError(
                f"{where}: expected {feature} {plain!r}, found {config[feature]!r}, which graphs lack."
            )
    # transformers 5 has one object for both settings; a scaling beside it takes precedence there.
    parameters = config.get("rope_parameters") or {}
    local = parameters.get("sliding_attention") or {}
    parameters = parameters.get("full_attention") or parameters
    rope = config.get("rope_scaling") or parameters
    if problem := size_problem(config):
        raise SourceError(f"{where}: {problem}.")
    try:
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        head_dim = int(config.get("head_dim") or kind.head_dim or hidden // heads)
        layers = int(config["num_hidden_layers"])
        shape = DecoderShape(
            architecture=architecture,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=int(config.get("num_key_value_heads", heads)),
            head_dim=head_dim,
            intermediate_size=int(config["intermediate_size"]),
            vocab_size=int(config["vocab_size"]),
            max_position_embeddings=int(config["max_position_embeddings"]),
            rope_theta=float({**config, **parameters, **rope}.get("rope_theta", 1e6 if kind.gemma else 1e4)),
            rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            tie_word_embeddings=bool(config.get("tie_word_embeddings", kind.gemma)),
            query_pre_attn_scalar=float(config.get("query_pre_attn_scalar", 256)) if kind.gemma else head_dim,
            rope_scaling=_scaling(rope, config, where),
            window=_window(config, local, layers) if kind.gemma else None,
        )
    except KeyError as error:
        raise SourceError(f"{where}: expected a field {error} in config.json, found none.") from error
    if shape.num_attention_heads % shape.num_key_value_heads or shape.head_dim % 16:
        raise SourceError(
            f"{where}: expected attention heads to be a multiple of key/value heads and a head size that is "
            f"a multiple of 16, found {shape.num_attention_heads} heads, {shape.num_key_value_heads} "
            f"key/value heads of size {shape.head_dim}."
        )
    return shape


def _window(config: dict[str, Any], rope: dict[str, Any], layers: int) -> SlidingWindow:
    """A Gemma's sliding windows; rope: the rotary settings of these layers, in the form of transformers 5."""
    every = int(config.get("sliding_window_pattern") or 6)
    kinds = config.get("layer_types") or [
        "sliding_attention" if (layer + 1) % every else "full_attention" for layer in range(layers)
    ]
    theta = rope.get("rope_theta", config.get("rope_local_base_freq", 10_000.0))
    local = tuple(kind == "sliding_attention" for kind in kinds)
    return SlidingWindow(int(config["sliding_window"]), float(theta), local)


def _scaling(rope: dict[str, Any], config: dict[str, Any], where: str) -> RotaryScaling | None:
    """The scaling of the rotary positions; raises ArchitectureError for one that the tables do not have."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RotaryScaling(float(rope["factor"]))
    if kind == "llama3":
        original = rope.get("original_max_position_embeddings", config["max_position_embeddings"])
        low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
        return RotaryScaling(float(rope["factor"]), low, high, int(original))
    raise ArchitectureError(
        f"{where}: expected rotary positions unscaled or of type linear or llama3, found rope type {kind!r}. "
        "Remove the scaling from config.json where the model's own context is enough."
    )


class Checkpoint:
    """An opened checkpoint; its tensors' names and shapes are checked at once.

    Raises ArchitectureError for an architecture that no graph is written for, SourceError for missing files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = read_config(folder)
        self.shape = shape_of(self.config, str(folder / "config.json"))
        self.files = sorted(folder.glob("*.safetensors"))
        if not self.files:
            raise SourceError(
                f"{folder}: expected *.safetensors, found none. Weights in other formats are not read; "
                "save the model with safe_serialization=True."
            )
        self._file_of = self._index()

    @cached_property
    def declared_ends(self) -> list[int]:
        """Ids that config.json and generation_config.json declare to end an answer, without repetitions."""
        path = self.folder / "generation_config.json"
        generation = read_json(path, SourceError) if path.is_file() else {}
        ids: list[int] = []
        for declared in (self.config.get("eos_token_id"), generation.get("eos_token_id")):
            ids += declared if isinstance(declared, list) else [] if declared is None else [declared]
        return list(dict.fromkeys(ids))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of config.json and the weights."""
        return digest_of([self.folder / "config.json", *self.files])

    def _index(self) -> dict[str, Path]:
        """The file of each tensor; raises SourceError where one is missing or of another shape."""
        found: dict[str, Path] = {}
        expected = self.shape.tensor_shapes()
        for path in self.files:
            with _opened(path) as tensors:
                for name in tensors.keys():  # noqa: SIM118 (the handle is no mapping)
                    shape = tuple(tensors.get_slice(name).get_shape())
                    if name in expected and shape != expected[name]:
                        raise SourceError(
                            f"{path}: expected {name} of shape {expected[name]} from config.json, found "
                            f"{shape}."
                        )
                    found[name] = path
        missing = [name for name in expected if name not in found]
        if missing:
            raise SourceError(
                f"{self.folder}: expected {len(expected)} tensors of {self.shape.architecture}, found "
                f"{len(missing)} of them missing, first {missing[0]}. The download may be incomplete: fetch "
                "the model again."
            )
        return found

    def tensor(self, name: str) -> FloatArray:
        """One tensor converted to float32; raises SourceError where it is not finite."""
        path = self._file_of[name]
        with _opened(path) as tensors:
            plain = tensors.get_slice(name).get_dtype() in ("F32", "F16")
            value: FloatArray = tensors.get_tensor(name).astype(np.float32) if plain else self._by_torch(name)
        if not np.isfinite(value).all():
            raise SourceError(f"{path}: expected finite weights, found NaN or infinity in {name}.")
        return value

    def _by_torch(self, name: str) -> FloatArray:
        """A tensor of a type that NumPy has not, such as bfloat16."""
        with _opened(self._file_of[name], "pt") as tensors:
            value: FloatArray = tensors.get_tensor(name).float().numpy()
        return value


def _opened(path: Path, framework: str = "np") -> Any:
    try:
        return safe_open(str(path), framework=framework)
    except (SafetensorError, OSError) as error:
        raise SourceError(
            f"{path}: expected a whole safetensors file, found: {error}. "
            "The file is damaged or its download was interrupted: delete it and fetch it again."
        ) from error
