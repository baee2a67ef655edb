"""The texts of this folder. Not responsible for measuring them (see `lab.experiments.answers`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.bundle.manifest import ModelShape

HERE = Path(__file__).parent
QUESTIONS = "questions"
"""The file that is no source."""


@dataclass(frozen=True)
class Text:
    """A finished text with its prompt. id: the source's name, and its own there."""

    id: str
    prompt: str
    text: str

    @property
    def source(self) -> str:
        return self.id.partition(":")[0]


def wrote(source: str, model: ModelShape) -> bool:
    """Whether a model wrote a source, which has the beginning of its name."""
    return source in model.id.lower().replace(" ", "-")


def sources() -> list[str]:
    """Names of files without their ending."""
    return sorted(file.stem for file in HERE.glob("*.jsonl") if file.stem != QUESTIONS)


def texts_of(source: str) -> list[Text]:
    """A source's texts, without those that are empty."""
    lines = (HERE / f"{source}.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    rows = map(json.loads, lines)
    return [Text(f"{source}:{row['id']}", row["prompt"], row["text"]) for row in rows if row["text"].strip()]
