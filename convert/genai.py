"""Makes the same folder a model of onnxruntime-genai.

Knows `genai_config.json` and how that library calls a graph: without a choice of rows, and with logits of the
last token only. So a variant gets a second, small graph file that reads the weights of the first.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convert.identity import Identity
from edge_runtime.bundle.bundle import ModelShape
from payload.contract import END_OF_TEXT, IM_END

GRAPH = "genai.onnx"
CONFIG = "genai_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def write_genai_graph(path: Path) -> Path:
    """Beside a graph of ours, one whose `rows` is the last token and whose logits are [1, 1, V]."""
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
    out = path.with_name(GRAPH)
    onnx.save_model(model, str(out))
    return out


def write_genai_config(
    bundle: Path, graph: str, shape: ModelShape, identity: Identity, context: int, checkpoint: Path
) -> None:
    """Write genai_config.json, and the tokenizer's settings that the library wants beside tokenizer.json.

    graph: relative to the bundle. checkpoint: folder of the original. max_length is the context: the library
    allocates its cache for all of it.
    """
    contract = identity.contract
    config = {
        "model": {
            "type": "qwen2",
            "context_length": context,
            "vocab_size": shape.vocab_size,
            "bos_token_id": contract.special[END_OF_TEXT],
            "eos_token_id": [contract.special[IM_END], contract.special[END_OF_TEXT]],
            "pad_token_id": contract.special[END_OF_TEXT],
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
        "search": {
            "max_length": context,
            "do_sample": False,
            "num_beams": 1,
            "past_present_share_buffer": True,
        },
    }
    (bundle / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    source = checkpoint / TOKENIZER_CONFIG
    settings = json.loads(source.read_text(encoding="utf-8")) if source.is_file() else {}
    settings.pop("auto_map", None)  # code of the checkpoint's own, which nothing here runs
    settings["chat_template"] = identity.jinja
    text = json.dumps(settings, indent=1, ensure_ascii=False)
    (bundle / TOKENIZER_CONFIG).write_text(text + "\n", encoding="utf-8")
