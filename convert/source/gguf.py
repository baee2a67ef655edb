"""A `.gguf` file of llama.cpp as a checkpoint folder in Hugging Face's form, its weights in float32.

Responsible for the file's configuration, the names of its tensors and their order within attention heads. Not
responsible for its tokenizer (see `edge_runtime.text.gguf`) or for what is done with the folder (see
`conversion`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.installed import remedy
from convert.errors import ArchitectureError, ResourceError, SourceError
from convert.source.architectures import ARCHITECTURES
from convert.source.checkpoint import FloatArray, digest_of, shape_of
from convert.source.rotary import RotaryScaling, frequencies
from edge_runtime.bundle.manifest import size_problem
from edge_runtime.errors import GgufError
from edge_runtime.text.gguf import Metadata, end_ids, tokenizer_files

if TYPE_CHECKING:
    from gguf import GGUFReader

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
)
_FACTORS = "rope_freqs.weight"
_LLAMA3 = (1.0, 4.0, 8192)  # low, high and original context of every published Llama 3
_GEMMA_PATTERN = 6  # every sixth layer of a Gemma 3 sees the whole text
_SHARD = 512 << 20


class GgufFile:
    """An opened GGUF file. Its architecture and the names of its tensors are checked before any is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader, self.metadata = _opened(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.config = self._config()
        self.shape = shape_of(self.config, str(path))
        self._names = self._tensor_names()

    @property
    def id(self) -> str:
        """The model's name."""
        return str(self.metadata.get("general.name") or self.path.stem)

    def tensor(self, name: str) -> FloatArray:
        """A tensor of the checkpoint in float32, by its name there."""
        from gguf.quants import dequantize

        tensor, expected = self._tensors[self._names[name]], self.shape.tensor_shapes()[name]
        try:
            value: FloatArray = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        except NotImplementedError as error:
            raise SourceError(
                f"{self.path}: expected a tensor type that the gguf package reads, found "
                f"{tensor.tensor_type.name} in {tensor.name}. Update the package, or use another file."
            ) from error
        if value.shape != expected:
            raise SourceError(
                f"{self.path}: expected {tensor.name} of shape {expected}, found {value.shape}. "
                "The file is damaged or of another kind: fetch it again."
            )
        if self.shape.kind.gemma and name.endswith("norm.weight"):
            return value - np.float32(1)  # llama.cpp keeps what is multiplied by
        heads = self._permuted_heads(name)
        return value if heads is None else _unpermuted(value, heads)

    def _permuted_heads(self, name: str) -> int | None:
        """The heads of a matrix whose rows llama.cpp keeps in its own order: a Llama's queries and keys."""
        if self.shape.kind.gguf != "llama":
            return None
        counts = {"q_proj": self.shape.num_attention_heads, "k_proj": self.shape.num_key_value_heads}
        return counts.get(name.removesuffix(".weight").rpartition(".")[2])

    def _config(self) -> dict[str, Any]:
        """The content of a config.json; raises ArchitectureError or SourceError."""
        family = self.metadata.get("general.architecture")
        known = {kind.gguf: name for name, kind in ARCHITECTURES.items()}
        if family not in known:
            raise ArchitectureError(
                f"{self.path}: expected a GGUF file of architecture {' or '.join(known)}, found {family!r}."
            )

        def number(key: str, default: Any = None) -> Any:
            value = self.metadata.get(f"{family}.{key}", default)
            if not isinstance(value, int | float):
                raise SourceError(f"{self.path}: expected one number in {family}.{key}, found {value!r:.60}.")
            return value

        if number("expert_count", 0):
            raise ArchitectureError(f"{self.path}: expected a dense model, found a mixture of experts.")
        heads, hidden = number("attention.head_count"), number("embedding_length")
        if problem := size_problem({"num_attention_heads": heads, "hidden_size": hidden}):
            raise SourceError(f"{self.path}: {problem}.")
        head_dim = number("attention.key_length", hidden // heads)
        if number("rope.dimension_count", head_dim) != head_dim:
            raise ArchitectureError(f"{self.path}: expected rotary positions over whole heads, found a part.")
        embedding = self._tensors.get("token_embd.weight")
        if embedding is None:
            raise SourceError(f"{self.path}: expected a tensor token_embd.weight, found none.")
        config = {
            "architectures": [known[family]],
            "model_type": family,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": number("feed_forward_length"),
            "num_hidden_layers": number("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": number("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "max_position_embeddings": number("context_length"),
            "rms_norm_eps": _shortest(number("attention.layer_norm_rms_epsilon")),
            "rope_theta": _shortest(number("rope.freq_base", 10_000.0)),
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "vocab_size": int(embedding.shape[1]),
            "bos_token_id": self.metadata.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": end_ids(self.metadata),
            "torch_dtype": "float32",
        }
        if ARCHITECTURES[known[family]].gemma:
            config |= {
                "model_type": "gemma3_text",
                "hidden_activation": "gelu_pytorch_tanh",
                "sliding_window": number("attention.sliding_window"),
                # Constants of llama.cpp, which files leave out.
                "sliding_window_pattern": number("attention.sliding_window_pattern", _GEMMA_PATTERN),
                "rope_local_base_freq": _shortest(number("rope.freq_base_swa", 10_000.0)),
                "query_pre_attn_scalar": hidden // heads if number("block_count") == 62 else head_dim,
            }
            del config["hidden_act"]
        scaling = self._scaling(config, family)
        return {**config, "rope_scaling": scaling} if scaling else config

    def _scaling(self, config: dict[str, Any], family: str) -> dict[str, Any] | None:
        """rope_scaling of a config.json: the named one, or the one that gives the file's divisors."""
        kind = self.metadata.get(f"{family}.rope.scaling.type", "none")
        if kind != "none":
            return {"rope_type": kind, "factor": self.metadata.get(f"{family}.rope.scaling.factor", 1.0)}
        if _FACTORS not in self._tensors:
            return None
        divisors = np.asarray(self._tensors[_FACTORS].data, np.float32)
        scaling = RotaryScaling(float(divisors.max()), *_LLAMA3)
        plain = frequencies(shape_of(config, str(self.path)))
        if divisors.shape != plain.shape or not np.allclose(scaling.divisors(plain), divisors, rtol=1e-4):
            raise ArchitectureError(
                f"{self.path}: expected the divisors of a published Llama 3 in {_FACTORS}, found others. "
                "Convert the original checkpoint instead."
            )
        return {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": scaling.original_context,
        }

    def _tensor_names(self) -> dict[str, str]:
        """The file's name of every tensor of the checkpoint; raises where one is missing or left over."""
        from gguf import MODEL_ARCH, get_tensor_name_map

        names = get_tensor_name_map(MODEL_ARCH[self.shape.kind.gguf.upper()], self.shape.num_hidden_layers)
        found = {
            name: names.get_name(name, try_suffixes=(".weight", ".bias")) or name
            for name in self.shape.tensor_shapes()
        }
        missing = [theirs for theirs in found.values() if theirs not in self._tensors]
        if missing:
            raise SourceError(
                f"{self.path}: expected {len(found)} tensors, found {len(missing)} of them missing, first "
                f"{missing[0]}. The download may be incomplete: fetch the file again."
            )
        more = sorted(set(self._tensors) - set(found.values()) - {_FACTORS})
        if more:
            raise ArchitectureError(
                f"{self.path}: expected the tensors of a {self.shape.architecture} and no others, found "
                f"{more[0]}. The graphs do not have it."
            )
        return found


def unpack_gguf(
    file: GgufFile,
    folder: Path,
    tokenizer: Path | None = None,
    progress: Callable[[int], None] = lambda parameters: None,
) -> None:
    """Write a checkpoint folder; what is there is replaced.

    tokenizer: folder with tokenizer.json and tokenizer_config.json to use instead of the file's own. progress
    is called with the number of parameters written since its last call.

    Raises SourceError, and ResourceError where the disk is too small.
    """
    from safetensors.numpy import save_file

    free, needed = shutil.disk_usage(folder.parent).free, file.shape.parameters * 4
    if free < needed * 1.05:
        raise ResourceError(
            f"{folder}: expected {needed / (1 << 30):.2f} GiB of free disk for the weights, "
            f"found {free / (1 << 30):.2f} GiB. Free some."
        )
    texts = _tokenizer_texts(file, tokenizer)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(file.config, indent=1), encoding="utf-8")
    places: dict[str, str] = {}
    shard: dict[str, FloatArray] = {}

    def save() -> None:
        name = f"model-{len(set(places.values())):05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        places.update(dict.fromkeys(shard, name))
        shard.clear()

    for name in file.shape.tensor_shapes():
        shard[name] = np.ascontiguousarray(file.tensor(name))
        progress(shard[name].size)
        if sum(value.nbytes for value in shard.values()) >= _SHARD:
            save()
    if shard:
        save()
    index = {"metadata": {"total_size": needed}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def gguf_digest(path: Path, tokenizer: Path | None) -> str:
    """SHA-256 (hex) of the file and of the tokenizer's files beside it."""
    others = [tokenizer / name for name in TOKENIZER_FILES] if tokenizer else []
    return digest_of(each for each in (path, *others) if each.is_file())


def _tokenizer_texts(file: GgufFile, tokenizer: Path | None) -> dict[str, str]:
    """Texts of the tokenizer's files, by name."""
    if tokenizer is None:
        try:
            found = tokenizer_files(file.metadata, str(file.path))
        except GgufError as error:
            says = f"{error} Give the folder of the original tokenizer with --tokenizer."
            raise SourceError(says) from error
        return {name: json.dumps(content, ensure_ascii=False) for name, content in found.items()}
    if not (tokenizer / "tokenizer.json").is_file():
        raise SourceError(f"{tokenizer}: expected a folder with tokenizer.json, found none.")
    there = [tokenizer / name for name in TOKENIZER_FILES if (tokenizer / name).is_file()]
    licences = tokenizer.glob("LICENSE*")
    return {path.name: path.read_text(encoding="utf-8") for path in (*there, *licences)}


def _opened(path: Path) -> tuple[GGUFReader, Metadata]:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise SourceError(
            f"{path}: expected the package gguf, found none: {remedy('convert-gguf')}"
        ) from error

    class WholeReader(GGUFReader):  # type: ignore[misc]
        """Refuses to read beyond the file's end; the library makes as many empty values as are stated."""

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            values = super()._get(offset, dtype, count, override_order)
            if len(values) != int(count):
                raise ValueError(f"{len(values)} of {count} values at byte {offset}")
            return values

    try:
        reader = WholeReader(path)
        return reader, {name: field.contents() for name, field in reader.fields.items()}
    except OSError as error:
        raise SourceError(f"{path}: expected a readable file, found: {error.strerror or error}.") from error
    except Exception as error:  # of a damaged file the library raises anything
        raise SourceError(
            f"{path}: expected a whole GGUF file, found: {error}. "
            "The file is damaged or its download was interrupted: fetch it again."
        ) from error


def _shortest(value: float) -> float:
    """A float32 of the file as the decimal number that it was written from."""
    return float(str(np.float32(value)))


def _unpermuted(weight: FloatArray, heads: int) -> FloatArray:
    """Rows in a checkpoint's order: llama.cpp interleaves the two halves of each head."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
