"""Engine settings, and profiles of them that trade time for memory.

Responsible for names and values; none of them changes a token. Not responsible for applying them (see
`runtime`, `ort_engine`, `forced`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

ORT, GENAI = "onnxruntime", "onnxruntime-genai"
ENGINES = (ORT, GENAI)
"""Names of the engines that fill answers: `OrtEngine`, `GenaiEngine`."""


@dataclass(frozen=True)
class Profile:
    """Settings of an engine and of its passes.

    arena: keep working memory between passes instead of returning it to the system.
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
    """Keyword arguments of `OrtEngine.open`, explained there."""

    context: int | None
    threads: int | None
    profile: Profile
    deterministic: bool
