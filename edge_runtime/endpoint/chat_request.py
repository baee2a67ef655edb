"""A request of OpenAI's chat protocol, and the text of its answer as it settles.

Responsible for what of the protocol is offered, and for stop texts. Not responsible for HTTP (see `app`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edge_runtime.decode.sampling import Sampling
from edge_runtime.errors import UsageError
from edge_runtime.text.chat import Message, as_messages
from edge_runtime.text.tokenizer import TextStream

MAX_MESSAGES = 1024
MAX_STOPS = 16


@dataclass(frozen=True)
class ChatRequest:
    """A request's body. stop: texts at the first of which the answer ends."""

    messages: tuple[Message, ...]
    stream: bool
    max_tokens: int | None
    sampling: Sampling | None
    stop: tuple[str, ...]

    @classmethod
    def of(cls, data: Any) -> ChatRequest:
        """The request of a parsed body; raises UsageError for what is missing, wrong or not offered."""
        if not isinstance(data, dict):
            raise UsageError(f"body: expected a JSON object, found {data!r:.60}")

        def field(name: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
            value = data.get(name)
            if value is None:
                return default
            if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
                raise UsageError(f"{name}: expected another type, found {value!r:.60}")
            if isinstance(value, int) and abs(value) >= 1 << 64:
                raise UsageError(f"{name}: expected a number below 2**64, found {value!r:.60}")
            return value

        for name in ("tools", "functions", "response_format", "logit_bias"):
            if data.get(name):
                raise UsageError(f"{name}: expected none, which this endpoint does not offer, found some")
        if field("n", int, 1) != 1:
            raise UsageError(f"n: expected 1, found {data['n']}")
        given = field("messages", list, [])
        if len(given) > MAX_MESSAGES:
            raise UsageError(f"messages: expected at most {MAX_MESSAGES}, found {len(given)}")
        messages = as_messages([_message(each) for each in given])
        if messages[-1].role != "user":
            raise UsageError(f"messages: expected the last of role user, found {messages[-1].role}")
        temperature = field("temperature", (int, float), 0)
        sampling = Sampling(float(temperature), field("top_p", (int, float)), field("seed", int, 0))
        stop = field("stop", (str, list), [])
        stops = [stop] if isinstance(stop, str) else stop
        if len(stops) > MAX_STOPS or not all(isinstance(text, str) for text in stops):
            raise UsageError(f"stop: expected at most {MAX_STOPS} texts, found {stops!r:.60}")
        limits = {name: field(name, int) for name in ("max_completion_tokens", "max_tokens")}
        for name, limit in limits.items():
            if limit is not None and limit < 1:
                raise UsageError(f"{name}: expected at least 1, found {limit}")
        field("stream_options", dict)
        return cls(
            messages,
            field("stream", bool, False),
            limits["max_completion_tokens"] or limits["max_tokens"],
            sampling if temperature else None,
            tuple(filter(None, stops)),
        )


def _message(value: Any) -> Any:
    """A message in the project's form: texts of parts joined, a developer's as a system's."""
    if not isinstance(value, dict):
        return value
    role, content = value.get("role"), value.get("content")
    if isinstance(content, list):
        parts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in content]
        if any(not isinstance(part, str) for part in parts):
            raise UsageError("content: expected parts of type text alone, found others")
        content = "".join(map(str, parts))
    return {"role": "system" if role == "developer" else role, "content": content}


class SettledText:
    """The text of an answer as it settles, up to the first stop; `push` returns what is new and sure."""

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        self._stream, self._stops = stream, stops
        self._held, self.stopped = "", False
        self._longest = max((len(stop) - 1 for stop in stops), default=0)

    def push(self, id_: int) -> str:
        return self._settle(self._stream.push(id_), self._longest)

    def flush(self) -> str:
        return self._settle(self._stream.flush(), 0)

    def _settle(self, text: str, held: int) -> str:
        if self.stopped:
            return ""
        self._held += text
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if places:
            self.stopped, sure = True, self._held[: min(places)]
            return sure
        at = max(0, len(self._held) - held)
        sure, self._held = self._held[:at], self._held[at:]
        return sure
