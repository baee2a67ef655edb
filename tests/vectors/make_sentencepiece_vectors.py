"""Writes sentencepiece_vectors.json: texts and conversations with their ids in a vocabulary of Gemma's kind.

The file stands alone: it has the tokenizer, so that any implementation can be tested on it. Characters are
the symbols of the merges, a space is one of them, bytes stand for what is no token, and runs of spaces and
lines are found before anything is merged. Run it again after a change of those rules:

    python -m tests.vectors.make_sentencepiece_vectors
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from edge_runtime.text.chat import ChatTemplate, Message
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.tokenizer import Tokenizer
from payload import Contract
from tests.checkpoints import OTHER_CORPUS

OUTPUT = Path(__file__).with_name("sentencepiece_vectors.json")
SPACE = "\u2581"
SPECIAL = ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>")
SYMBOLS = ("\n", "\n\n", "\n\n\n", "  ", "   ", "    ", "\t", "<table>", "</table>", "[image]")
TEMPLATE = {
    "default_system": None,
    "system": ["<start_of_turn>user\n", "\n\n"],
    "user": ["<start_of_turn>user\n", "<end_of_turn>\n"],
    "assistant": ["<start_of_turn>model\n", "<end_of_turn>\n"],
    "generation": "<start_of_turn>model\n",
    "start": "<bos>",
}

TEXTS = (
    "",
    " ",
    "a",
    "Where does the river end?",
    " a space before, two after  ",
    "     five,  two\n\n\n\nfour lines\r\n\tand a tab",
    "re\u0301union na\u00efve caf\u00e9 \u2014 \u65e5\u672c\u8a9e \U0001f388\U0001f389 \U00012000",
    "\u2581 is a sign of its own \u2581\u2581",
    "<bos>names<end_of_turn> of <table>special</table> tokens<end_of_turn",
    "<0x0A><0xE2> are bytes by name",
    "\ufb01 is no ligature here \u00a0 \u3000",
    "\x00\x01\x7f\u0085 control",
    "You are reading <unknown> words, the the the the the",
)


def tokenizer_json() -> dict[str, Any]:
    """The parsed tokenizer.json: special tokens, a user's symbols, every byte, words."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, normalizers, trainers

    backend = Backend(models.BPE())
    backend.normalizer = normalizers.Replace(" ", SPACE)
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False)
    backend.train_from_iterator(
        [*OTHER_CORPUS, "the river, the hill and the town: where do they end?"] * 2, trainer
    )
    trained = json.loads(backend.to_str())["model"]
    learned = sorted(trained["vocab"], key=trained["vocab"].get)
    names = dict.fromkeys([*SPECIAL, *SYMBOLS, *(f"<0x{byte:02X}>" for byte in range(256)), *learned])
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    vocab = {name: id_ for id_, name in enumerate(names)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocab[name], "content": name, **plain, "special": name in SPECIAL}
            for name in (*SPECIAL, *SYMBOLS)
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": trained["merges"],
        },
    }


def texts() -> list[str]:
    """Those above, and random ones of what they consist of."""
    draw = random.Random(20)
    parts = [*"".join(TEXTS), *SPECIAL, *SYMBOLS, "the", " river", " end", *OTHER_CORPUS[0].split()]
    return [*TEXTS, *("".join(draw.choices(parts, k=draw.randint(1, 24))) for _ in range(200))]


def main() -> None:
    data = tokenizer_json()
    tokenizer, template = Tokenizer.from_json(json.dumps(data)), ChatTemplate.from_json(TEMPLATE)
    plain = [{"text": text, "ids": tokenizer.encode(text)} for text in texts()]
    form = PromptForm(tokenizer, template, Contract.of(data, TEMPLATE))
    talks = []
    for text in texts()[:60]:
        messages = [Message("user", text), Message("assistant", text[::-1]), Message("user", "Go on  ")]
        talks.append({"messages": [each._asdict() for each in messages], "ids": form.ids(messages)})
    document = {"tokenizer": data, "template": TEMPLATE, "texts": plain, "conversations": talks}
    OUTPUT.write_text(json.dumps(document).replace('{"text"', '\n{"text"') + "\n", encoding="ascii")
    print(f"{OUTPUT}: {len(plain)} texts, {len(talks)} conversations, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
