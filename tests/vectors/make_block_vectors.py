"""Writes block_vectors.json: what the published code of SDAR and Fast-dLLM v2 writes, on random weights.

    python tests/vectors/make_block_vectors.py FAST SDAR GENERATE TRANSFORMERS

FAST:         folder with modeling.py and configuration.py of Efficient-Large-Model/Fast_dLLM_v2_7B.
SDAR:         folder with modeling_sdar.py and configuration_sdar.py of JetAstra/SDAR (training/model).
GENERATE:     folder with generate.py of JetAstra/SDAR.
TRANSFORMERS: folder with transformers 4.53, which the published code is written for.

None of these is copied. Of flash-attn, which needs a GPU, the two functions that SDAR calls are replaced by
PyTorch's own. Both samplers take the most probable token: SDAR's has no such option, so its draw is replaced
by an argmax, and the confidences are those of the plain distribution. Weights and prompts are those of
`tests.cloud_anchor.block_cases`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "block_vectors.json"


def _package(name: str, folder: str) -> None:
    """Makes a folder importable as a package of this name."""
    module = ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module


def _without_flash_attention() -> None:
    def rms_norm_fn(x: Any, weight: Any, bias: None = None, eps: float = 1e-6) -> Any:
        return weight * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)

    def flash_attn_func(q: Any, k: Any, v: Any, causal: bool, softmax_scale: float) -> Any:
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=True).transpose(1, 2)

    named = {
        "flash_attn": {"flash_attn_func": flash_attn_func, "flash_attn_varlen_func": None},
        "flash_attn.ops": {},
        "flash_attn.ops.triton": {},
        "flash_attn.ops.triton.layer_norm": {"rms_norm_fn": rms_norm_fn},
        "flash_attn.bert_padding": dict.fromkeys(("index_first_axis", "pad_input", "unpad_input")),
        "sdar.fused_linear_diffusion_cross_entropy": {"FusedLinearDiffusionCrossEntropyLoss": None},
    }
    for name, content in named.items():
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        vars(module).update(content)
        sys.modules[name] = module


@contextmanager
def _passes(model: Any) -> Iterator[list[tuple[int, list[int], bool]]]:
    """Of each pass: where its tokens begin, the tokens, and whether it stores keys and values."""
    seen: list[tuple[int, list[int], bool]] = []
    forward = model.forward

    def spy(input_ids: Any, *args: Any, **options: Any) -> Any:
        cache = options.get("past_key_values")
        begin = cache.get_seq_length() if cache is not None else 0
        stores = bool(options.get("store_kv") or options.get("update_past_key_values"))
        seen.append((begin, input_ids[0].tolist(), stores))
        return forward(input_ids, *args, **options)

    # nn.Module calls self.forward
    with patch.object(model, "forward", spy):
        yield seen


def _run(model: Any, kind: str, case: Any, generate: Any) -> dict[str, Any]:
    """The answer, and the step that committed each of its tokens."""
    prompt, mask = torch.tensor([case.prompt]), case.mask
    with _passes(model) as passes:
        if kind == "sdar":
            with patch.object(torch, "multinomial", lambda shares, num_samples: shares.argmax(-1, True)):
                ids = generate.block_diffusion_generate(
                    model, {"input_ids": prompt}, mask, case.canvas, case.block, case.block,
                    confidence_threshold=case.threshold, stopping_criteria_idx=[case.end],
                )  # fmt: skip
        else:
            # It counts the last block of the prompt as the first of the answer.
            length = -(-(len(case.prompt) + case.canvas) // case.block) * case.block - len(case.prompt)
            blocks = -(-length // case.block)
            ids = model.generate(
                prompt, blocks * case.block, mask_id=mask, threshold=case.threshold,
                small_block_size=case.sub_block, block_size=case.block, stop_token=case.end,
            )[0]  # fmt: skip
    answer = ids[0].tolist()[len(case.prompt) :][: case.canvas]
    # A pass that only stores what is finished is no step, unless the next token is taken from it.
    steps = [(begin, tokens) for begin, tokens, stores in passes if not stores or kind != "sdar"]
    if kind != "sdar" and passes[0][2] and len(case.prompt) % case.block:
        del steps[0]
    when = []
    for at in range(len(case.prompt), len(case.prompt) + len(answer)):
        masked = [
            number
            for number, (begin, tokens) in enumerate(steps, 1)
            if at >= begin and (at >= begin + len(tokens) or tokens[at - begin] == mask)
        ]
        when.append(masked[-1])
    return {"prompt": case.prompt, "answer": answer, "when": when}


def judge(kind: str, folder: Path, published: str, generate_folder: str) -> None:
    """Prints the vectors of one family; runs where transformers is the one that the published code needs."""
    from tests.cloud_anchor.block_cases import cases

    torch.manual_seed(0)
    name, part = ("sdar", "_sdar") if kind == "sdar" else ("fast", "")
    _package(name, published)
    generate = None
    if kind == "sdar":
        _without_flash_attention()
        _package("sdar_generate", generate_folder)
        generate = importlib.import_module("sdar_generate.generate")
    settings = json.loads((folder / "config.json").read_text())
    settings = {key: value for key, value in settings.items() if key not in ("architectures", "dtype")}
    classes = ("SDARConfig", "SDARForCausalLM")
    if kind != "sdar":
        classes = ("Fast_dLLM_QwenConfig", "Fast_dLLM_QwenForCausalLM")
    config = getattr(importlib.import_module(f"{name}.configuration{part}"), classes[0])(**settings)
    config._attn_implementation = "sdpa"
    model = getattr(importlib.import_module(f"{name}.modeling{part}"), classes[1])(config).eval()
    missing = model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    assert not missing.missing_keys
    print(json.dumps([_run(model, kind, case, generate) for case in cases(kind)]))


def published(fast: str, sdar: str, generate: str, transformers: str) -> dict[str, Any]:
    """The vectors of each family, by the published code in these folders."""
    from tests.cloud_anchor.block_cases import write_model

    vectors = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, code in (("Fast_dLLM_Qwen", fast), ("sdar", sdar)):
            folder = write_model(Path(scratch) / kind, kind)
            command = [
                sys.executable,
                __file__,
                "--judge",
                kind,
                str(folder),
                code,
                generate,
                transformers,
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            vectors[kind] = json.loads(done.stdout.splitlines()[-1])
    return vectors


def main(*folders: str) -> int:
    vectors = published(*folders)
    lines = [f'"{kind}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]" for kind, found in vectors.items()]
    OUTPUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1])]
    if sys.argv[1:2] == ["--judge"]:
        sys.path[:0] = [sys.argv[6]]
        judge(sys.argv[2], Path(sys.argv[3]), *sys.argv[4:6])
        sys.exit(0)
    sys.exit(main(*sys.argv[1:]))
