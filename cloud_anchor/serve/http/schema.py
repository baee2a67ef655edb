"""JSON bodies of requests and responses, as pydantic models.

Responsible for fields, types and ranges, and for the OpenAPI schema of them; ranges that depend on the model
being served are filled in by `describe` once it is loaded. Not responsible for paths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cloud_anchor.selection.select import EDGE_AWARE, SELECTIONS
from cloud_anchor.serve.batching.backend import CODECS, AnchorRequest, ServiceInfo
from cloud_anchor.serve.settings import MIN_DEADLINE
from edge_runtime.text.chat import Message
from payload.header import MAX_PAYLOAD_BYTES, MIN_PAYLOAD_BYTES

STREAM_FRACTIONS = (0.1, 0.15, 0.25)
"""Shares of the steps after which a stream sends a payload by default."""


def _whole_number(value: Any) -> Any:
    """Accept 5.0 for 5: both are integers in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole_number)
Share = Annotated[float, Field(gt=0, le=1)]
"""Share of the planned steps."""


def _never_null(schema: dict[str, Any]) -> None:
    """Remove null from a field's schema: in a request an optional field is left out, never null."""
    (kind,) = (each for each in schema.pop("anyOf") if each != {"type": "null"})
    schema.pop("default")
    schema.update(kind)


def _optional(description: str) -> Any:
    """An optional field."""
    return Field(default=None, json_schema_extra=_never_null, description=description)


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for name, value in data.items():
                if value is None and name in cls.model_fields:
                    raise ValueError(f"{name}: expected a value or no such field, found null")
        return data


class ChatMessage(_StrictModel):
    role: Literal["system", "user", "assistant"]
    content: str


def _config(shares: str) -> ConfigDict:
    """shares: the field that excludes steps."""
    either: list[Any] = [{"required": ["prompt"]}, {"required": ["messages"]}]
    excluded: dict[str, Any] = {"required": [shares, "steps"]}
    return ConfigDict(json_schema_extra={"oneOf": either, "not": excluded})


_AS_THEY_ARE = "steps select max_bytes codec contract deadline".split()
"""Fields of the bodies that requests have as well."""


class _PromptFields(_StrictModel):
    """Fields of both requests."""

    prompt: Annotated[str, Field(min_length=1)] | None = _optional(
        description="The user's question. Either this or messages."
    )
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = _optional(
        description="A conversation up to the answer. Either this or prompt."
    )
    select: Literal[tuple(SELECTIONS)] | None = _optional(  # type: ignore[valid-type]
        description="Which tokens are sent: what is committed (paper), what is predicted (confidence), or "
        "what of that the edge model would not write by itself (edge-aware)."
    )
    codec: Literal[CODECS] | None = _optional(  # type: ignore[valid-type]
        description="Codec of the payload: compact, or for a device with the edge model's bundle, default "
        "variant: portable, whose fewer anchors suffice for its portable graph, or predictive, fewest bytes."
    )
    confidence: bool | None = _optional(
        description="Carry how sure the model is of each anchor, 2 bits, for the device's doubt; by default."
    )
    contract: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = _optional(
        description="Identity of the device's contract: refused where it differs."
    )
    deadline: Annotated[float, Field(ge=MIN_DEADLINE)] | None = _optional(
        description="Seconds after which the answer is of no use."
    )

    steps: Annotated[int, Field(ge=1), WHOLE] | None = _optional(
        description="Steps to run, instead of a share."
    )
    max_bytes: Annotated[int, Field(ge=MIN_PAYLOAD_BYTES, le=MAX_PAYLOAD_BYTES), WHOLE] | None = _optional(
        description="Of each payload: the anchors that help most. What does not fit is left out, or follows "
        f"in further payloads of a stream. With select {EDGE_AWARE} only."
    )

    @model_validator(mode="after")
    def _exclusive_fields(self) -> Self:
        self.to_request()
        return self

    def to_request(self) -> AnchorRequest:
        """The validated request; raises ValueError for fields that exclude one another."""
        raise NotImplementedError

    def _request(self, name: str, shares: Sequence[float] | None, **more: Any) -> AnchorRequest:
        """The request for payloads after these shares of the steps, from the field `name`."""
        if shares is not None and self.steps is not None:
            raise ValueError(f"expected either {name} or steps, found both")
        if (self.prompt is None) == (self.messages is None):
            found = "both" if self.prompt else "none"
            raise ValueError(f"expected either prompt or messages, found {found}")
        messages = [ChatMessage(role="user", content=self.prompt)] if self.prompt else self.messages or []
        return AnchorRequest(
            tuple(Message(message.role, message.content) for message in messages),
            tuple(shares or ()),
            confidence=self.confidence is not False,
            **{field: getattr(self, field) for field in _AS_THEY_ARE},
            **more,
        )


class AnchorsRequest(_PromptFields):
    """One payload: after a share of the steps, or a number of them; at most so many bytes."""

    model_config = _config("fraction")

    fraction: Share | None = _optional(description="Share of the planned steps to run.")

    def to_request(self) -> AnchorRequest:
        return self._request("fraction", None if self.fraction is None else [self.fraction])


class StreamRequest(_PromptFields):
    """A payload, or a chain of them, after each of several shares of the steps."""

    model_config = _config("fractions")

    fractions: Annotated[list[Share], Field(min_length=1)] | None = _optional(
        description=f"Shares of the steps, in any order; {', '.join(map(str, STREAM_FRACTIONS))} by default."
    )

    def to_request(self) -> AnchorRequest:
        shares = STREAM_FRACTIONS if self.fractions is None and self.steps is None else self.fractions
        return self._request("fractions", shares, chain=self.max_bytes is not None)


class DecisionsRequest(_StrictModel):
    """Questions with listed options about a text."""

    form: dict[str, Any] | str = Field(
        description="A JSON Schema of booleans, enums, integers of at most 64 values and arrays of enums, or "
        "the name of a form that the service has: the first 8 hex digits of its identity."
    )
    text: str
    asked: Annotated[list[Annotated[int, Field(ge=0), WHOLE]], Field(max_length=64)] | None = _optional(
        description="The questions to answer, by their place in the form; all by default."
    )
    passes: Annotated[int, Field(ge=1, le=8), WHOLE] | None = _optional(
        description="Passes of the model, 1 by default: each but the last fixes the surest answers first."
    )


class TraceBody(_StrictModel):
    """One question of the page."""

    prompt: Annotated[str, Field(min_length=1)]
    fraction: Share | None = _optional(description="Share of the planned steps to run.")
    device: bool = Field(
        default=True, description="Write the device's part here, rather than where it is read."
    )


class ContractAnswer(BaseModel):
    """The contract, plan and limits of the service."""

    model: str
    identity: str
    contract: dict[str, Any]
    canvas: int
    total_steps: int
    steps: int
    prompt_tokens: int
    selections: list[str]
    codecs: list[str]
    deadline: float
    bundle: str | None = Field(description="Path of the bundle for its devices, where it gives one.")


class BundleAnswer(BaseModel):
    """The bundle for the service's devices: name, contract, bytes in all, size and hash of each file."""

    name: str
    identity: str
    bytes: int
    files: dict[str, dict[str, int | str]]


def event_schema(says: str, *names: str) -> dict[str, Any]:
    """Of one server-sent event of a stream. names: of its events, where they have any."""
    named = {"event": {"enum": list(names)}} if names else {}
    properties = {**named, "data": {"type": "string", "description": says}}
    return {"type": "object", "properties": properties, "required": list(properties)}


BODIES: dict[str, Any] = json.loads((Path(__file__).parent / "bodies.json").read_text(encoding="utf-8"))
"""Schemas of bodies that are not read here, by name. A ChatRequest is what the endpoint's class takes, where
answers are not sampled.
"""


class StateAnswer(BaseModel):
    status: str


def describe(schema: dict[str, Any], info: ServiceInfo) -> dict[str, Any]:
    """The OpenAPI description with the ranges of the model being served filled in."""
    bodies = schema["components"]["schemas"]
    walking = [how for how in info.selections if SELECTIONS[how].walks]
    others = [how for how in info.selections if how not in walking]
    # max_bytes beside a selection that it is not for; where that is the default, leaving it out clashes too.
    without_walk: dict[str, Any] = {"required": ["max_bytes"]}
    if info.selections[0] in walking:
        without_walk["required"] += ["select"]
        without_walk["properties"] = {"select": {"enum": others}}
    else:
        without_walk["not"] = {"required": ["select"], "properties": {"select": {"enum": walking}}}
    for body in (bodies["AnchorsRequest"], bodies["StreamRequest"]):
        fields = body["properties"]
        fields["select"]["enum"] = list(info.selections)
        fields["codec"]["enum"] = list(info.codecs)
        fields["deadline"]["maximum"] = info.limits.deadline
        fields["messages"]["maxItems"] = info.limits.messages
        fields["steps"]["maximum"] = info.total_steps
        if walking:
            body["not"] = {"anyOf": [body["not"], without_walk]}
        else:
            del fields["max_bytes"]
    bodies["StreamRequest"]["properties"]["fractions"]["maxItems"] = info.limits.payloads
    bodies |= deepcopy(BODIES)
    bodies["ChatRequest"]["properties"]["messages"]["maxItems"] = info.limits.messages
    return schema
