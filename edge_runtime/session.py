"""EdgeSession: a conversation on the device.

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
whole text: the model runs only the tokens that no cache has. Responsible for turns, for what is dropped
where a conversation outgrows the context, and for sessions in files. Not responsible for rendering messages
(see `text.prompt_form`), for decoding (see `runtime`) or for how a cloud is asked (see `cloud`).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from common.files import read_bounded, write_whole
from edge_runtime.cloud import THRESHOLD, Cloud, CloudQuestion
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import FillOptions, Token
from edge_runtime.decode.refine import Retract
from edge_runtime.errors import SessionFileError, UsageError
from edge_runtime.runtime import EdgeRuntime, FillRequest, Schema
from edge_runtime.text.chat import Message, as_messages

ONLY_ON_DEVICE, PREFER_ON_DEVICE = "only_on_device", "prefer_on_device"
PREFER_IN_CLOUD, ONLY_IN_CLOUD = "prefer_in_cloud", "only_in_cloud"
MODES = (ONLY_ON_DEVICE, PREFER_ON_DEVICE, PREFER_IN_CLOUD, ONLY_IN_CLOUD)

RESERVE = 128
"""Tokens kept free for an answer whose options do not limit it."""

FORMAT = "inverse speculation session 2"
MAX_FILE_BYTES = 16 << 20


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

    reserve: tokens kept free for an answer. private: whether
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
        room = self.edge.model.context - limit
        turns = (*self._messages, Message("user", question))
        head = turns[:1] if turns[0].role == "system" else ()
        turns = turns[len(head) :]
        starts = [0, *(at for at in range(1, len(turns)) if turns[at].role == "user")]

        def fits(dropped: int) -> bool:
            return len(self.edge.prompt_ids((*head, *turns[starts[dropped] :]))) <= room

        # Backwards from the question, which stays though it may not fit, in doubling steps: a history far
        # beyond the context is not read.
        dropped, step = len(starts) - 1, 1
        while dropped and fits(max(0, dropped - step)):
            dropped, step = max(0, dropped - step), 2 * step
        least = max(0, dropped - step)
        dropped = least + bisect_left(range(least, dropped), True, key=fits)
        return (*head, *turns[starts[dropped] :]), dropped

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
        """Writes the conversation as JSON; a session that is loaded reads its text anew."""
        said = [list(message) for message in self._messages]
        text = json.dumps({"format": FORMAT, "private": self.private, "messages": said}, ensure_ascii=False)
        write_whole(Path(path), text.encode("utf-8"))

    @classmethod
    def load(cls, path: str | Path, edge: EdgeRuntime, *, reserve: int = RESERVE) -> Self:
        """The session of a file, for any bundle. Raises SessionFileError where it is none."""
        path = Path(path)
        data = read_bounded(path, MAX_FILE_BYTES, SessionFileError)
        session = cls(edge, reserve=reserve)
        try:
            head: dict[str, Any] = json.loads(data)
            if head["format"] != FORMAT:
                raise ValueError(f"format {head['format']!r:.40}")
            messages = [Message(*message) for message in head["messages"]]
            session._messages = as_messages(messages) if messages else ()
            "".join(content for _, content in messages).encode("utf-8")  # half a character is refused
            session.private = bool(head["private"])
        except (ValueError, KeyError, TypeError, RecursionError, UsageError) as error:
            raise SessionFileError(f"{path}: expected {FORMAT} as JSON, found {error!r:.200}") from None
        return session
