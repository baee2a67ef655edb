"""Shared: what the writer and the reader of a payload both hold.

Responsible for naming it once, for `encode`, `decode`, `peek` and `Decoding`. Not responsible for how a codec
uses it (see `wire`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from payload.anchors import AnchorSet
from payload.codecs.predictive import Predictor
from payload.codecs.template import TokenBytes
from payload.contract import Contract


class Base(NamedTuple):
    """A payload that both sides hold, and its anchors: what a delta adds to."""

    data: bytes
    anchors: AnchorSet


@dataclass(frozen=True)
class Shared:
    """The context that both sides of a payload share; all but the contract only where a codec needs it.

    contract:   vocabulary, special ids and chat template of the models on both sides.
    prompt_ids: ids of the prompt as the edge model is given it: the user's text in the contract's chat
                template, up to where the answer begins. Codec compact is smaller with them, and its payload
                then needs exactly these ids; codec template-gzip does not use them.
    tokens:     the tokenizer, for codec template-gzip.
    base:       the payload that a delta adds to (all codecs but template-gzip).
    predictor:  the edge model behind this prompt, for the codecs that are bound to it.
    """

    contract: Contract
    prompt_ids: Sequence[int] | None = None
    tokens: TokenBytes | None = None
    base: Base | None = None
    predictor: Predictor | None = None
