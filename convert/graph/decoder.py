"""A decoder as an ONNX graph: Qwen2, Qwen3, Llama or Gemma 3, by what `architectures` says of each.

Responsible for the order of the layers and the graph's inputs and outputs. Not responsible for the storage of
weights (`weights`) or the operators of attention and norms (`dialects`).

    input_ids       int64   [1, S]      the chunk
    attention_mask  int64   [1, T]      all ones; T = tokens before the chunk + S
    rows            int64   [R]         which of the S tokens give logits; may be empty
    past_key_values.{i}.key, .value     float32 [1, C, B, D]: caches of a fixed length B >= T
    logits          float32 [R, V]
    present.{i}.key, .value             the caches after the chunk; may be bound to the buffers of the past
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from onnx import TensorProto

from convert.graph.dialects import Dialect, Fused, Portable, past_name, present_name
from convert.graph.nodes import GraphWriter
from convert.graph.weights import WeightFormat
from convert.source.checkpoint import Checkpoint, FloatArray

DialectName = Literal["fused", "portable"]
_DIALECTS: dict[DialectName, Callable[..., Dialect]] = {"fused": Fused, "portable": Portable}

DATA_SUFFIX = ".data"


def write_graph(
    checkpoint: Checkpoint,
    path: Path,
    weights: WeightFormat,
    dialect: DialectName,
    context: int,
    progress: Callable[[int], None] = lambda parameters: None,
) -> None:
    """Write `path` (the graph) and `path` + ".data" (its weights).

    context: positions that the rotary tables cover. progress is called with the number of parameters written
    since its last call.
    """
    shape, kind = checkpoint.shape, checkpoint.shape.kind

    def tensor(name: str) -> FloatArray:
        value = checkpoint.tensor(name)
        progress(value.size)
        return value

    with GraphWriter(path.with_name(path.name + DATA_SUFFIX)) as graph:
        ops = _DIALECTS[dialect](graph, shape, context)

        def scale(name: str) -> FloatArray:
            value = tensor(f"{name}.weight")
            return value + np.float32(1) if kind.gemma else value

        def gamma(name: str) -> str:
            return graph.weight(name, scale(name))

        residual = weights.embedding(graph, "input_ids", tensor("model.embed_tokens.weight"))
        if kind.gemma:
            root = graph.constant(math.sqrt(shape.hidden_size), np.float32)
            residual = graph.node("Mul", [residual, root])
        x = ops.norm(residual, gamma("model.layers.0.input_layernorm"))
        for layer in range(shape.num_hidden_layers):
            prefix = f"model.layers.{layer}"
            parts = [f"{prefix}.self_attn.{part}_proj" for part in "qkv"]
            stacked = np.concatenate([tensor(f"{part}.weight") for part in parts])
            biases = np.concatenate([tensor(f"{part}.bias") for part in parts]) if kind.qkv_bias else None
            gammas = None
            if kind.qk_norm:  # the norm undoes any factor before it
                names = [f"{prefix}.self_attn.{part}_norm" for part in "qk"]
                scales = [scale(name) for name in names]
                scales[0] = scales[0] * np.float32(ops.query_factor)
                gammas = graph.weight(names[0], scales[0]), graph.weight(names[1], scales[1])
            else:
                for queries in (stacked, *([] if biases is None else [biases])):
                    queries[: shape.num_attention_heads * shape.head_dim] *= ops.query_factor
            qkv = weights.linear(graph, x, f"{prefix}.self_attn.qkv_proj", stacked, biases)
            mixed = ops.attention(qkv, layer, gammas)
            last = layer + 1 == shape.num_hidden_layers
            if last:
                # Nothing after this attention reads other rows: keep those whose logits are wanted.
                mixed = graph.node("Gather", [mixed, "rows"], axis=1)
                residual = graph.node("Gather", [residual, "rows"], axis=1)
            out = f"{prefix}.self_attn.o_proj"
            mixed = weights.linear(graph, mixed, out, tensor(f"{out}.weight"))
            before_mlp = f"{prefix}.post_attention_layernorm"
            if kind.gemma:
                mixed, before_mlp = ops.norm(mixed, gamma(before_mlp)), f"{prefix}.pre_feedforward_layernorm"
            x, residual = ops.add_norm(mixed, residual, gamma(before_mlp))
            gate, up = (
                weights.linear(graph, x, name, tensor(f"{name}.weight"))
                for name in (f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj")
            )
            active = (
                ops.gelu(gate) if kind.gemma else graph.node("Mul", [gate, graph.node("Sigmoid", [gate])])
            )
            down = f"{prefix}.mlp.down_proj"
            x = weights.linear(graph, graph.node("Mul", [active, up]), down, tensor(f"{down}.weight"))
            if kind.gemma:
                x = ops.norm(x, gamma(f"{prefix}.post_feedforward_layernorm"))
            following = "model.norm" if last else f"model.layers.{layer + 1}.input_layernorm"
            x, residual = ops.add_norm(x, residual, gamma(following))
        selected = graph.node("Squeeze", [x, graph.constant([0])])
        head = None if shape.tie_word_embeddings else tensor("lm_head.weight")
        logits = weights.head(graph, selected, (shape.vocab_size, shape.hidden_size), head)
        graph.nodes("Identity", [logits], ["logits"])
        metadata = {"context": str(context), "dialect": dialect}
        layers = [(i, part) for i in range(shape.num_hidden_layers) for part in ("key", "value")]
        cache = TensorProto.FLOAT, (1, shape.num_key_value_heads, "buffer", shape.head_dim)
        inputs: dict[str, tuple[int, Sequence[int | str]]] = {
            "input_ids": (TensorProto.INT64, (1, "tokens")),
            "attention_mask": (TensorProto.INT64, (1, "total")),
            "rows": (TensorProto.INT64, ("rows",)),
            **{past_name(*of): cache for of in layers},
        }
        outputs = {
            "logits": (TensorProto.FLOAT, ("rows", shape.vocab_size)),
            **{present_name(*of): cache for of in layers},
        }
        graph.save(path, inputs, outputs, metadata)
