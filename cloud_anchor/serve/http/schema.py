"""JSON bodies of requests and responses, as pydantic models.

Responsible for fields, types and ranges, and for the OpenAPI schema of them; ranges that depend on the model
being served are filled in by `describe` once it is loaded. Not responsible for paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cloud_anchor.sampling.config import ORDERS
from cloud_anchor.sampling.stops import STOPS
from cloud_anchor.selection.select import EDGE_AWARE, SELECTIONS
from cloud_anchor.serve.batching.backend import CODECS, AnchorRequest, ServiceInfo
from cloud_anchor.serve.settings import MIN_DEADLINE
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


_PROMPT_OR_MESSAGES: dict[str, Any] = {
    "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
}


class _PromptFields(_StrictModel):
    """Fields of both requests."""

    prompt: Annotated[str, Field(min_length=1)] | None = _optional(
        description="The user's question. Either this or messages."
    )
    messages: Annotated[list[ChatMessage], Field(min_length=1)] | None = _optional(
        description="A conversation up to the answer. Either this or prompt."
    )
    order: Literal[ORDERS] | None = _optional(description="Order of commits.")  # type: ignore[valid-type]
    stop: Literal[tuple(STOPS)] | None = _optional(  # type: ignore[valid-type]
        description="A rule that may end the run before its steps are done."
    )
    select: Literal[SELECTIONS] | None = _optional(  # type: ignore[valid-type]
        description="Which tokens are sent: what is committed (paper), what is predicted (confidence), or "
        "what of that the edge model would not write by itself (edge-aware)."
    )
    codec: Literal[CODECS] | None = _optional(  # type: ignore[valid-type]
        description="Codec of the payload: compact, or predictive, which takes the fewest bytes and is "
        "decoded with the edge model's bundle, default variant."
    )
    confidence: bool | None = _optional(
        description="Carry how sure the diffusion model is of each anchor (2 bits), for the device's doubt."
    )
    model: str | None = _optional(description="Refused where the service has another one.")
    contract: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = _optional(
        description="Identity of the device's contract: refused where it differs."
    )
    deadline: Annotated[float, Field(ge=MIN_DEADLINE)] | None = _optional(
        description="Seconds after which the answer is of no use."
    )

    def _common(self) -> dict[str, Any]:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError(
                "expected either prompt or messages, found " + ("both" if self.prompt else "none")
            )
        messages = [("user", self.prompt)] if self.messages is None else self.messages
        return {
            "messages": tuple(m if isinstance(m, tuple) else (m.role, m.content) for m in messages),
            "order": self.order,
            "stop": self.stop,
            "select": self.select,
            "codec": self.codec,
            "confidence": bool(self.confidence),
            "model": self.model,
            "contract": self.contract,
            "deadline": self.deadline,
        }


def _check_budget(max_bytes: int | None, select: str | None) -> None:
    """Raises ValueError for a budget with a selection that has no order of gain."""
    if max_bytes is not None and select not in (None, EDGE_AWARE):
        raise ValueError(f"expected max_bytes with select {EDGE_AWARE} only, found select {select}")


class AnchorsBody(_PromptFields):
    """One payload: after a share of the steps, or a number of them; at most so many bytes."""

    model_config = ConfigDict(
        title="AnchorsRequest",
        json_schema_extra=_PROMPT_OR_MESSAGES | {"not": {"required": ["fraction", "steps"]}},
    )

    fraction: Share | None = _optional(description="Share of the planned steps to run.")
    steps: Annotated[int, Field(ge=1), WHOLE] | None = _optional(
        description="Steps to run, instead of a share."
    )
    max_bytes: Annotated[int, Field(ge=MIN_PAYLOAD_BYTES, le=MAX_PAYLOAD_BYTES), WHOLE] | None = _optional(
        description=f"Keep the anchors that help most. With select {EDGE_AWARE} only."
    )

    @model_validator(mode="after")
    def _exclusive_fields(self) -> AnchorsBody:
        self.to_request()
        return self

    def to_request(self) -> AnchorRequest:
        """The validated request; raises ValueError for fields that exclude one another."""
        if self.fraction is not None and self.steps is not None:
            raise ValueError("expected either fraction or steps, found both")
        _check_budget(self.max_bytes, self.select)
        fractions = () if self.fraction is None else (self.fraction,)
        return AnchorRequest(
            **self._common(), fractions=fractions, steps=self.steps, max_bytes=self.max_bytes
        )


class StreamBody(_PromptFields):
    """A payload, or a chain of them, after each of several shares of the steps."""

    model_config = ConfigDict(
        title="StreamRequest",
        json_schema_extra=_PROMPT_OR_MESSAGES | {"not": {"required": ["fractions", "steps"]}},
    )

    fractions: Annotated[list[Share], Field(min_length=1)] | None = _optional(
        description=f"Shares of the steps, in any order; {', '.join(map(str, STREAM_FRACTIONS))} by default."
    )

    steps: Annotated[int, Field(ge=1), WHOLE] | None = _optional(
        description="Steps to run, instead of shares."
    )
    max_bytes: Annotated[int, Field(ge=MIN_PAYLOAD_BYTES, le=MAX_PAYLOAD_BYTES), WHOLE] | None = _optional(
        description="Of each payload: what does not fit follows in further ones that add to it, the anchors "
        f"that help most first. With select {EDGE_AWARE} only."
    )

    @model_validator(mode="after")
    def _exclusive_fields(self) -> StreamBody:
        self.to_request()
        return self

    def to_request(self) -> AnchorRequest:
        """The validated request; raises ValueError for fields that exclude one another."""
        if self.fractions is not None and self.steps is not None:
            raise ValueError("expected either fractions or steps, found both")
        _check_budget(self.max_bytes, self.select)
        fractions = () if self.steps is not None else tuple(self.fractions or STREAM_FRACTIONS)
        return AnchorRequest(
            **self._common(),
            fractions=fractions,
            steps=self.steps,
            max_bytes=self.max_bytes,
            chain=self.max_bytes is not None,
        )


class TraceBody(_StrictModel):
    """One question of the page."""

    prompt: Annotated[str, Field(min_length=1)]
    fraction: Share | None = _optional(description="Share of the planned steps to run.")


class AnchorsAnswer(BaseModel):
    """A payload in JSON, for those who asked for `application/json`; also the data of a stream's events."""

    payload: str = Field(description="base64")
    bytes: int
    anchors: int
    length: int | None = Field(description="Tokens of the answer, where known.")
    step: int
    total_steps: int
    canvas: int
    delta: bool = Field(description="Whether it adds to the payload before it in the stream.")
    last: bool
    contract: str = Field(description="Identity of the contract it was made for.")


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
    orders: list[str]
    stops: list[str]
    deadline: float


EVENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "One event. The data of `payload` is an AnchorsAnswer in JSON, of `error` what an "
    "ErrorAnswer holds, of `done` an empty object.",
    "properties": {"event": {"enum": ["payload", "error", "done"]}, "data": {"type": "string"}},
    "required": ["event", "data"],
}


class ErrorText(BaseModel):
    code: str
    expected: str
    found: str
    remedy: str


class ErrorAnswer(BaseModel):
    error: ErrorText


class StateAnswer(BaseModel):
    status: str


def describe(schema: dict[str, Any], info: ServiceInfo) -> dict[str, Any]:
    """The OpenAPI description with the ranges of the model being served filled in."""
    bodies = schema["components"]["schemas"]
    for name in ("AnchorsBody", "StreamBody"):
        fields = bodies[name]["properties"]
        fields["select"]["enum"] = list(info.selections)
        fields["codec"]["enum"] = list(info.codecs)
        fields["deadline"]["maximum"] = info.limits.deadline
        fields["messages"]["maxItems"] = info.limits.messages
        fields["steps"]["maximum"] = info.total_steps
    bodies["StreamBody"]["properties"]["fractions"]["maxItems"] = info.limits.payloads
    others = [how for how in info.selections if how != EDGE_AWARE]
    clash: dict[str, Any] = {"required": ["max_bytes", "select"], "properties": {"select": {"enum": others}}}
    if info.selections[0] != EDGE_AWARE:  # then leaving it out clashes as well
        clash = {
            "required": ["max_bytes"],
            "not": {"required": ["select"], "properties": {"select": {"const": EDGE_AWARE}}},
        }
    for name in ("AnchorsBody", "StreamBody"):
        body = bodies[name]
        if info.budget:
            body["not"] = {"anyOf": [body["not"], clash]}
        else:
            del body["properties"]["max_bytes"]
    return schema
