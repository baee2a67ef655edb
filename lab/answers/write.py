"""Answers of a model in a GGUF file to the questions, by llama.cpp: greedy, at most 160 tokens.

    python -m lab.answers.write MODEL.gguf lab/answers/NAME.jsonl "Name of the model"
    python -m lab.answers.write MODEL.gguf lab/answers/short/NAME.jsonl "Name of the model" --pieces 24 \\
        --behind " Answer in at most 20 words."

Needs llama-cpp-python alone. What is in the file already is not asked again. `--pieces N` answers N more.
"""

from __future__ import annotations

import hashlib
import json
from itertools import islice
from pathlib import Path

from common.cli import CommandParser

QUESTIONS = Path(__file__).with_name("questions.jsonl")
MOST_TOKENS = 160


def main() -> None:
    parser = CommandParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("name")
    parser.add_argument("--pieces", type=int, metavar="N")
    parser.add_argument("--behind", default="", metavar="TEXT", help="said behind each question")
    args = parser.parse_args()
    questions = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    if not args.output.exists():
        with args.model.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        about = {"model": args.name, "sha256": digest, "greedy": True, "most_tokens": MOST_TOKENS}
        args.output.write_text(json.dumps(about) + "\n", encoding="utf-8")
    done = {json.loads(line).get("id") for line in args.output.read_text(encoding="utf-8").splitlines()}
    left = [each for each in questions if each["id"] not in done]
    from llama_cpp import Llama  # type: ignore[import-not-found]  # an environment of its own

    model = Llama(str(args.model), n_ctx=1024, n_threads=1, verbose=False)
    with args.output.open("a", encoding="utf-8") as out:
        for each in islice(left, args.pieces):
            asked = [{"role": "user", "content": each["prompt"] + args.behind}]
            found = model.create_chat_completion(asked, temperature=0.0, max_tokens=MOST_TOKENS)
            text = found["choices"][0]["message"]["content"]
            out.write(json.dumps(each | {"text": text}, ensure_ascii=False) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
