"""The texts of a calibration: questions with answers.

Responsible for the texts as token ids. Not responsible for what is measured on them (see `moments`).

None of them is a question of `check.prompts`: what is verified must not have been seen.
"""

from __future__ import annotations

import json
from pathlib import Path

from edge_runtime.text.prompt_form import PromptForm

_CONVERSATIONS = Path(__file__).with_name("conversations.json")
"""Written for this project: arithmetic, multiple choice, facts, code, prose, other languages."""


def conversations() -> list[tuple[str, str]]:
    """The built-in questions, each with its answer."""
    return [(question, answer) for question, answer in json.loads(_CONVERSATIONS.read_text("utf-8"))]


def conversation_ids(form: PromptForm) -> list[list[int]]:
    """Token ids of each of `conversations`, question and answer in the model's own form."""
    return [form.ids(question) + form.tokenizer.encode(answer) for question, answer in conversations()]
