"""A small evaluation on the way: answers of the averaged weights to held-out questions.

Responsible for plain decoding, one token a step, and for the share of right answers. Not responsible for the
experiments (see `lab`), which sample through the pipeline.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from lab.pairs.pair import Pair
from lab.pairs.tokens import id_of
from lab.pairs.trainer import PairTrainer

STEPS = 1000
"""Training steps between two evaluations."""
_ROUND = 32


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """A question in the chat form of the training rows."""
    return list(tokenizer.encode(f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n").ids)


@torch.inference_mode()
def write_on(model: Qwen2ForCausalLM, prompt: list[int], room: int, end: int) -> list[int]:
    """Greedy continuation of at most `room` tokens, up to the end marker."""
    ids = torch.tensor([prompt], device=model.device)
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=room, do_sample=False, eos_token_id=end
    )
    said: list[int] = out[0, len(prompt) :].tolist()
    return said[: said.index(end)] if end in said else said


@torch.inference_mode()
def denoise(model: Qwen2ForCausalLM, prompt: list[int], room: int, mask: int) -> tuple[list[int], list[int]]:
    """A canvas of `room` tokens, the most confident one a pass: (final ids, the first pass's ids)."""
    ids = torch.tensor([prompt + [mask] * room], device=model.device)
    first: list[int] = []
    for _ in range(room):
        # The logits are shifted: those before a position predict it. The full mask is None.
        hidden = model.model(input_ids=ids, attention_mask={"full_attention": None}, use_cache=False)
        logits = model.lm_head(hidden.last_hidden_state[0, len(prompt) - 1 : -1]).float()
        logits[:, mask] = -torch.inf
        sure, best = logits.softmax(-1).max(-1)
        first = first or best.tolist()
        canvas = ids[0, len(prompt) :]
        place = int(sure.masked_fill(canvas != mask, -1).argmax())
        canvas[place] = best[place]
    return ids[0, len(prompt) :].tolist(), first


def probe(trainer: PairTrainer, tokenizer: Tokenizer, pair: Pair) -> dict[str, float]:
    """Share of right answers to the pair's questions by kind; for a masked model also `first`, the share of
    an answer's final tokens that its first pass has at their places, over answers whose reference has 60
    tokens or more."""
    model = trainer.averaged().eval()
    masked = trainer.step > trainer.recipe.causal_steps
    end = id_of(tokenizer, "<|im_end|>")
    right: dict[str, list[bool]] = defaultdict(list)
    first: list[float] = []
    for problem in pair.held_out(pair.probed):
        prompt = prompt_ids(tokenizer, problem.prompt)
        length = len(tokenizer.encode(problem.answer).ids)
        room = min(
            -(-(length + 16) // _ROUND) * _ROUND,
            trainer.shape["max_position_embeddings"] - len(prompt),
        )
        if masked:
            said, drafted = denoise(model, prompt, room, trainer.mask_id)
            count = said.index(end) if end in said else room
            if length >= 60 and count:
                first.append(sum(a == b for a, b in zip(said[:count], drafted[:count], strict=True)) / count)
            said = said[:count]
        else:
            said = write_on(model, prompt, room, end)
        right[problem.family].append(pair.is_right(problem, tokenizer.decode(said)))
    result = {kind: sum(found) / len(found) for kind, found in right.items()}
    return result | ({"first": sum(first) / len(first)} if first else {})


def record(trainer: PairTrainer, tokenizer: Tokenizer, pair: Pair, file: Path) -> None:
    """Append one evaluation to a file of JSON lines, in place of one of the same or a later step."""
    lines = file.read_text().splitlines() if file.exists() else []
    kept = [line for line in lines if json.loads(line)["step"] < trainer.step]
    row = {"step": trainer.step} | {k: round(v, 3) for k, v in probe(trainer, tokenizer, pair).items()}
    file.write_text("".join(line + "\n" for line in [*kept, json.dumps(row)]))
