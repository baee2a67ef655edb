"""The KV cache of a transformers model, cut to a length, on every generation of that library.

Responsible for the one operation whose meaning changed: `crop` takes a length in transformers 4, the number
of tokens to remove in transformers 5. Not responsible for running a model.
"""

from __future__ import annotations

from typing import Any


def crop_cache(cache: Any, length: int) -> None:
    """Removes all but the first `length` tokens from a `transformers.DynamicCache`.

    Layer by layer: after an interrupted pass the first ones hold more tokens than the others.
    """
    for layer in cache.layers:
        surplus = layer.get_seq_length() - length
        if surplus > 0:
            layer.crop(-surplus)  # negative: tokens to remove, for both
