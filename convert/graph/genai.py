"""Lets onnxruntime-genai open a bundle's folder.

Responsible for `genai_config.json` and for a second, small graph file per variant that reads the weights of
the first: that library passes no `rows` and expects logits of the last token only. Not responsible for
running it (see `edge_runtime.engine.genai_engine`).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convert.source.architectures import ARCHITECTURES
from convert.source.tokenizer import Identity
from edge_runtime.bundle.bundle import ModelShape
from edge_runtime.engine.genai_engine import CONFIG, GRAPH

TOKENIZER_CONFIG = "tokenizer_config.json"


def write_genai_graph(path: Path) -> None:
    """Write a graph beside the one at `path` with `rows` fixed to the last token and logits [1, 1, V]."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    graph.input.remove(next(value for value in graph.input if value.name == "rows"))
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "rows"))
    last = next(node for node in graph.node if "logits" in node.output)
    last.CopyFrom(helper.make_node("Unsqueeze", [last.input[0], "genai.axis"], ["logits"], name=last.name))
    graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "genai.axis"))
    logits = next(value for value in graph.output if value.name == "logits")
    vocab = logits.type.tensor_type.shape.dim[1].dim_value
    logits.CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, vocab]))
    onnx.save_model(model, str(path.with_name(GRAPH)))


def write_genai_config(
    bundle: Path, graph: str, shape: ModelShape, identity: Identity, context: int, checkpoint: Path
) -> None:
    """Write genai_config.json and the tokenizer_config.json that the library needs beside tokenizer.json.

    graph:      path relative to the bundle.
    context:    becomes max_length, for which the library allocates its cache.
    checkpoint: folder of the original.
    """
    contract = identity.contract
    ends = [contract.special[name] for name in contract.end_names]
    if contract.ends is None:
        ends.reverse()  # <|im_end|> first: it ends an answer
    search = {"max_length": context, "do_sample": False, "num_beams": 1, "past_present_share_buffer": True}
    config = {
        "model": {
            "type": ARCHITECTURES[shape.architecture].gguf,
            "context_length": context,
            "vocab_size": shape.vocab_size,
            "bos_token_id": ends[-1],
            "eos_token_id": ends,
            "pad_token_id": ends[-1],
            "decoder": {
                "filename": graph,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "head_size": shape.head_dim,
                "hidden_size": shape.hidden_size,
                "num_attention_heads": shape.num_attention_heads,
                "num_hidden_layers": shape.num_hidden_layers,
                "num_key_value_heads": shape.num_key_value_heads,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": search,
    }
    (bundle / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    source = checkpoint / TOKENIZER_CONFIG
    settings = json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}
    settings.pop("auto_map", None)  # names code of the checkpoint, which is never run
    settings["chat_template"] = identity.jinja
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    (bundle / TOKENIZER_CONFIG).write_text(text + "\n", encoding="utf-8")
