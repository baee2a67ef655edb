"""A graph with float32 activations, whose logits agree across processors.

Graphs with quantised weights round activations to 8 bits on the fly where the processor is fast at that. A
sum that differs in its last bit may then round the other way, and logits differ by some hundredths; other
processors do not round at all. With float32 activations they agree to about 1e-4, at the price of slower
passes.

Responsible for the one attribute that states it in a graph's bytes. Not responsible for loading graphs.
"""

from __future__ import annotations

import re

from edge_runtime.errors import EngineError

_NAME = b"accuracy_level"
_ATTRIBUTE = re.compile(re.escape(b"\x0a\x0e" + _NAME + b"\x18") + rb"([\x00-\x04])")
"""AttributeProto: field 1 the name, field 3 the integer."""

_FLOAT32 = b"\x01"


def with_fp32_activations(graph: bytes) -> bytes:
    """Returns an ONNX graph whose quantised products keep activations in float32. Raises EngineError."""
    changed, count = _ATTRIBUTE.subn(lambda found: found.group()[:-1] + _FLOAT32, graph)
    if count != graph.count(_NAME):
        raise EngineError(
            f"graph: expected {_NAME.decode()} of 0 to 4 in {graph.count(_NAME)} places, found it in {count}"
            ". Convert the model again."
        )
    return changed
