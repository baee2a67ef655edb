"""The fixture pair: shipped for tests, which name it; no command runs it unless it is named."""

from __future__ import annotations

from edge_runtime.bundle.bundle import BUNDLES

TINY_BUNDLE = BUNDLES / "tiny-qwen"
