"""EdgeSession: a conversation on the device, whose turns share one KV cache.

    session = EdgeSession(EdgeRuntime.open("bundles/qwen2.5-0.5b"), system="Answer in one sentence.")
    for item in session.ask("Which river runs through Vienna?", cloud=Client("https://anchors.example.com")):
        ...
    session.save("talk.session")

Where a question is answered is its mode:

    only_on_device     the device answers alone; nothing leaves it
    prefer_on_device   the device writes at once; where it doubts what it writes the cloud is asked, and the
                       text is refined in place
    prefer_in_cloud    the cloud is asked first; where it cannot be reached the device answers alone
    only_in_cloud      the cloud's anchors, or an error

A session keeps messages as text, and an answer is the one that a fresh session gives which is handed the
whole text: the engine runs only the tokens that its cache lacks. Responsible for turns, for what is dropped
where a conversation outgrows the context, and for sessions in files. Not responsible for rendering messages
(see `text.prompt_form`), for decoding (see `runtime`) or for how a cloud is asked (see `cloud`).
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from common.files import write_whole
from edge_runtime.cloud import THRESHOLD, Cloud, CloudQuestion
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import FillOptions, Token, common_prefix
from edge_runtime.decode.refine import Retract
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import SessionFileError, UsageError
from edge_runtime.runtime import EdgeRuntime, FillRequest, Schema
from edge_runtime.text.chat import Message, as_messages

ONLY_ON_DEVICE, PREFER_ON_DEVICE = "only_on_device", "prefer_on_device"
PREFER_IN_CLOUD, ONLY_IN_CLOUD = "prefer_in_cloud", "only_in_cloud"
MODES = (ONLY_ON_DEVICE, PREFER_ON_DEVICE, PREFER_IN_CLOUD, ONLY_IN_CLOUD)

RESERVE = 128
"""Tokens kept free for an answer whose options do not limit it."""

MAGIC = b"IVSESS01"
MAX_HEADER_BYTES = 16 << 20


def mode_of(mode: str | None, cloud: Cloud | None) -> str:
    """The mode of this name, or the default with such a cloud; raises UsageError where it cannot be."""
    if mode is None:
        return ONLY_ON_DEVICE if cloud is None else PREFER_ON_DEVICE
    if mode not in MODES:
        raise UsageError(f"mode: expected one of {', '.join(MODES)}, found {mode!r:.40}")
    if mode != ONLY_ON_DEVICE and cloud is None:
        raise UsageError(f"mode: expected a cloud beside {mode}, found none")
    return mode


class EdgeSession:
    """Messages, and the runtime that answers them; clones and further sessions may share the runtime.

    One answer of a runtime is decoded at a time. reserve: tokens kept free for an answer. private: whether
    anything was said that must not leave the device; clones and files keep it.
    """

    def __init__(
        self,
        edge: EdgeRuntime,
        system: str | None = None,
        messages: Sequence[Message] = (),
        *,
        reserve: int = RESERVE,
    ) -> None:
        self.edge = edge
        self.reserve = reserve
        self.private = False
        self._messages = tuple(messages)
        if system is not None:
            self._messages = as_messages([*messages, Message("user", "")], system)[:-1]
        self._turn: Answer[Token | Retract] | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far: system prompt, questions and answers."""
        return self._messages

    def clone(self) -> EdgeSession:
        """A session with the same conversation, which goes its own way from here."""
        other = EdgeSession(self.edge, messages=self._messages, reserve=self.reserve)
        other.private = self.private
        return other

    def prompt(self, question: str, options: FillOptions | None = None) -> tuple[tuple[Message, ...], int]:
        """The messages that a question is answered with, and the number of turns dropped from them.

        Where they and the answer do not fit the context, whole turns are dropped, the oldest first; the
        system prompt and the question stay. A payload for the question has to be made for these messages.
        """
        limit = options.max_tokens if options and options.max_tokens else self.reserve
        room = self.edge.engine.context - limit
        messages = (*self._messages, Message("user", question))
        dropped = 0
        while len(self.edge.prompt_ids(messages)) > room:
            head = messages[:1] if messages[0].role == "system" else ()
            turns = messages[len(head) :]
            rest = next((at for at in range(1, len(turns)) if turns[at].role == "user"), None)
            if rest is None:
                break  # the question alone: decoding says where it does not fit
            messages, dropped = (*head, *turns[rest:]), dropped + 1
        return messages, dropped

    def ask(
        self,
        question: str,
        options: FillOptions | None = None,
        *,
        payload: bytes | None = None,
        cloud: Cloud | None = None,
        mode: str | None = None,
        private: bool = False,
        threshold: float | None = None,
        delay: float | None = None,
        schema: Schema | None = None,
    ) -> Answer[Token | Retract]:
        """The answer to the next question, with the anchors of a payload or of a cloud where there is one.

        mode:      of `MODES`; by default prefer_on_device with a cloud.
        private:   the device answers alone, whatever the mode, and so it does for the rest of the
                   conversation, which a later question would send along.
        threshold: device's doubt, 0 to 1, above which prefer_on_device asks; None for the bundle's.
        delay:     seconds after which prefer_on_device takes no more from the cloud; None for any.
        schema:    what the answer is a sentence of: JSON Schema, or any `grammar.Grammar`.

        Question and answer join the conversation when the answer ends or is closed; a closed one as far as it
        was written, and neither where nothing was. Raises what `EdgeRuntime.read` and `fill` do,
        CloudRefusedError, with only_in_cloud CloudUnavailableError, and UsageError for a mode that cannot be
        or while the answer before is still open.
        """
        mode = mode_of(mode, cloud)
        if self._turn is not None and not self._turn.ended:
            raise UsageError("session: expected the last answer to be read or closed, found it still open")
        options = self.edge.constrained(options, schema)
        self.private |= private
        messages, dropped = self.prompt(question, options)
        answer: Answer[Token | Retract]
        if cloud is not None and mode != ONLY_ON_DEVICE and not self.private:
            measured = self.edge.bundle.manifest.ask_from
            asked = CloudQuestion(
                cloud,
                self.edge,
                messages,
                stream=mode == PREFER_ON_DEVICE,
                fallback=mode != ONLY_IN_CLOUD,
                threshold=next(each for each in (threshold, measured, THRESHOLD) if each is not None),
                delay=delay,
            )
            answer = asked.answer(options)
        elif payload is not None:
            answer = self.edge.fill(self.edge.read(payload, messages), options)
        else:
            request = FillRequest(self.edge.prompt_ids(messages), self.edge.no_anchors)
            answer = self.edge.fill(request, options)
        answer.dropped = dropped
        answer.at_end = partial(self._keep, messages, answer)
        self._turn = answer
        return answer

    def _keep(self, messages: Sequence[Message], answer: Answer[Token | Retract]) -> None:
        if answer.tokens:
            text = self.edge.bundle.tokenizer.decode([token.id for token in answer.tokens])
            self._messages = (*messages, Message("assistant", text))

    def save(self, path: str | Path) -> None:
        """Writes messages and what the cache holds of them, tied to the bundle's variant by hash."""
        engine = self.edge.engine
        ids: list[int] = []
        cache: list[NDArray[np.float32]] = []
        if self._messages and isinstance(engine, OrtEngine):
            whole = self.edge.prompt_ids(self._messages)
            ids = whole[: common_prefix(engine.tokens, whole)]
            cache = engine.cached(len(ids))
        said = [list(message) for message in self._messages]
        head = {**self._identity(), "messages": said, "tokens": ids, "private": self.private}
        header = json.dumps(head, ensure_ascii=False).encode("utf-8")
        body = b"".join([MAGIC, struct.pack("<I", len(header)), header, *(part.tobytes() for part in cache)])
        write_whole(Path(path), body + hashlib.sha256(body).digest())

    @classmethod
    def load(cls, path: str | Path, edge: EdgeRuntime, *, reserve: int = RESERVE) -> Self:
        """The session of a file, its cache restored. Raises SessionFileError where it does not fit."""
        path = Path(path)
        engine = edge.engine
        most = engine.cache_bytes(engine.context) if isinstance(engine, OrtEngine) else 0
        try:
            with path.open("rb") as file:
                data = file.read(most + MAX_HEADER_BYTES + 1)
        except OSError as error:
            raise SessionFileError(f"{path}: expected a readable session, found {error}") from None
        body, digest = data[:-32], data[-32:]
        if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
            what = "one that is damaged or too large" if data.startswith(MAGIC) else "another file"
            raise SessionFileError(f"{path}: expected a whole session of this software, found {what}")
        start = len(MAGIC) + 4
        session = cls(edge, reserve=reserve)
        try:
            (size,) = struct.unpack_from("<I", body, len(MAGIC))
            head: dict[str, Any] = json.loads(body[start : start + size])
            messages = [Message(*message) for message in head["messages"]]
            session._messages = as_messages(messages) if messages else ()
            ids = [int(id_) for id_ in head["tokens"]]
            session.private = bool(head["private"])
            identity = {name: str(head[name]) for name in session._identity()}
        except (ValueError, KeyError, TypeError, RecursionError, struct.error, UsageError) as error:
            raise SessionFileError(f"{path}: expected messages and tokens, found {error!r}") from None
        for name, wanted in session._identity().items():
            if identity[name] != wanted:
                raise SessionFileError(
                    f"{path}: expected a session of {edge.bundle.path}, variant {edge.bundle.variant_name} "
                    f"({name} {wanted[:12]}), found one of another model ({identity[name][:12]})"
                )
        cache = np.frombuffer(body, np.uint8, offset=start + size)
        if isinstance(engine, OrtEngine) and ids:
            if len(ids) > engine.context or len(cache) != engine.cache_bytes(len(ids)):
                raise SessionFileError(
                    f"{path}: expected the cache of {len(ids)} tokens within a context of {engine.context}, "
                    f"found {len(cache)} bytes. Open the model with a larger context."
                )
            engine.restore(ids, cache.view(np.float32))
        return session

    def _identity(self) -> dict[str, str]:
        bundle = self.edge.bundle
        return {
            "contract": bundle.contract.identity,
            "weights": bundle.manifest.fingerprint(bundle.variant_name).hex(),
        }
