"""What a device should be sparing with: time or memory.

Knows the settings of an engine, and those that trade one for the other; none of them changes a token. Does
not know how they are applied (see `ort_engine` and `forced`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


@dataclass(frozen=True)
class Profile:
    """Settings of an engine and of the passes it is given.

    arena: keep working memory between passes rather than give it back to the system.
    spin:  let threads wait actively within a pass.
    max_chunk, max_rows: most tokens and most rows of logits of one pass.
    max_scores_bytes: attention whose scores of one pass could take more is computed in blocks, which can take
    1.6 times as long (ONNX Runtime 1.31 on x86).
    """

    arena: bool
    spin: bool
    max_chunk: int
    max_rows: int
    max_scores_bytes: int


LATENCY = Profile(arena=True, spin=True, max_chunk=512, max_rows=64, max_scores_bytes=64 << 20)
MEMORY = Profile(arena=False, spin=False, max_chunk=64, max_rows=16, max_scores_bytes=0)
PROFILES = {"latency": LATENCY, "memory": MEMORY}


class EngineSettings(TypedDict, total=False):
    """Settings of an engine, as `OrtEngine.open` takes and explains them."""

    context: int | None
    threads: int | None
    profile: Profile
    deterministic: bool
