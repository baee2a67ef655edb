"""Questions that a checkpoint's folder offers as examples: `examples.json`, a list of texts.

Responsible for the file. Not responsible for who shows them (see `serve.page`, `demo`).
"""

from __future__ import annotations

import json
from pathlib import Path

from cloud_anchor.errors import CheckpointError

EXAMPLES = "examples.json"

MAX_EXAMPLES = 12


def read_examples(folder: Path) -> list[str]:
    """The questions in a checkpoint's folder, none where it has no such file; raises CheckpointError."""
    path = folder / EXAMPLES
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: expected JSON, found: {error}") from error
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise CheckpointError(f"{path}: expected a list of questions, found {found!r:.60}")
    return found[:MAX_EXAMPLES]
