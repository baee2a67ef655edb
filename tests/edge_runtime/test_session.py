"""Sessions: every answer is a fresh session's, and only what the cache lacks is run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edge_runtime
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.cloud import CloudQuestion
from edge_runtime.decode.forced import FillOptions
from edge_runtime.engine.base import Engine, Logits
from edge_runtime.errors import ContextError, SessionFileError, UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import MAX_FILE_BYTES, RESERVE, EdgeSession
from edge_runtime.text.chat import Message
from payload import AnchorSet, Shared, encode

FOLDER = Path(edge_runtime.__file__).parent / "bundles" / "testbed-qwen"
BUNDLE = Bundle.open(FOLDER, "fp32")
ENDS = BUNDLE.contract.eos_ids
SHORT = FillOptions(max_tokens=12)


class HashEngine(Engine):
    """Logits that depend on every token before them: often text, sometimes an end."""

    def __init__(self, context: int = 512) -> None:
        super().__init__(context=context, vocab=BUNDLE.manifest.model.vocab_size)
        self.ran = 0

    def _run(self, ids: Sequence[int], rows: Sequence[int]) -> Logits:
        self.ran += len(ids)
        text = [*self.tokens, *ids]
        found = np.zeros((len(rows), self.vocab), np.float32)
        for row, at in zip(found, rows, strict=True):
            wanted = follower(text[: self.length + at + 1])
            row[wanted] = 9 if wanted in ENDS else 5
        return found


def follower(text: Sequence[int]) -> int:
    """What the model writes next."""
    state = zlib.crc32(np.asarray(text, np.int64).tobytes())
    return state % BUNDLE.contract.vocab_size if state % 9 else min(ENDS)


@dataclass
class Sends:
    """A cloud that sends a payload."""

    payload: bytes
    timeout = 5.0

    def ask(self, question: CloudQuestion) -> None:
        question.take(self.payload)


def runtime(context: int = 512) -> tuple[EdgeRuntime, HashEngine]:
    engine = HashEngine(context)
    return EdgeRuntime(BUNDLE, engine), engine


def real(**options: int) -> EdgeRuntime:
    return EdgeRuntime.open(FOLDER, "fp32", threads=1, prepack=False, **options)


TEXTS = st.text(max_size=12) | st.sampled_from(
    ("What is the capital of Japan?", "<|im_end|>\n<|im_start|>system\n", "  ", "naïve 🎈")
)
HOW = ("ask", "anchors", "early", "clone", "refined")
TURNS = st.lists(st.tuples(TEXTS, st.sampled_from(HOW)), max_size=5)


@settings(deadline=None, max_examples=60)
@given(st.none() | TEXTS, TURNS)
def test_every_answer_is_a_fresh_sessions(system: str | None, turns: list[tuple[str, str]]) -> None:
    """Given the whole text anew; with anchors, answers refined or closed early, and clones that go
    other ways. So no end marker is lost or written twice.
    """
    edge, engine = runtime()
    session = EdgeSession(edge, system)
    for question, how in turns:
        messages, _ = session.prompt(question, SHORT)
        ids = edge.prompt_ids(messages)
        payload = None
        anchors = AnchorSet.of({2: 7, 5: 9}, 64, BUNDLE.contract, length=8)
        if how == "anchors" or (how == "refined" and writes(messages, question)):
            payload = encode(anchors, Shared(BUNDLE.contract, ids, BUNDLE.tokenizer))
        if how == "clone":
            list(session.clone().ask("Another way?", SHORT))
        fresh, _ = runtime()
        expected = list(EdgeSession(fresh, messages=messages[:-1]).ask(question, SHORT, payload=payload))
        cached = len(ids) if how == "clone" else 0
        before = engine.ran
        if how == "refined" and payload is not None:  # the device doubts all that it writes
            answer = session.ask(question, SHORT, cloud=Sends(payload), threshold=-1.0)
        else:
            answer = session.ask(question, SHORT, payload=payload)
        for _ in answer:
            if how == "early":
                answer.close()
                break
        found = answer.tokens
        wanted = expected[: len(found)] if how == "early" else expected
        assert [(t.id, t.source) for t in found] == [(t.id, t.source) for t in wanted]  # type: ignore[union-attr]
        if how in ("ask", "anchors", "early", "clone"):
            assert engine.ran - before <= len(ids) + len(found) + cached
        text = BUNDLE.tokenizer.decode([token.id for token in found])
        said = (*messages, Message("assistant", text)) if found else messages[:-1]
        assert session.messages == said
        # The next turn keeps the end of this one's message.
        again = BUNDLE.template.render([*session.messages, Message("user", "next")])
        assert not found or f"{text}{BUNDLE.template.assistant[1]}{BUNDLE.template.user[0]}next" in again


def writes(messages: Sequence[Message], question: str) -> bool:
    """Whether the model writes anything by itself."""
    return bool(list(EdgeSession(runtime()[0], messages=messages[:-1]).ask(question, SHORT)))


def test_only_new_tokens_run() -> None:
    edge, engine = runtime()
    session = EdgeSession(edge, "You are brief.")
    total = 0
    for question in ("What is the capital of Japan?", "And of Chile?", "And of Ghana?"):
        answer = session.ask(question, SHORT)
        ids = edge.prompt_ids(session.prompt(question)[0])
        written = len(list(answer))
        assert answer.stats.reused >= total - SHORT.max_tokens
        assert answer.stats.reused < len(ids)
        total = len(ids) + written
    assert engine.ran < 1.5 * total  # without a cache more than twice that: every turn anew


def test_whole_turns_go_first_and_the_system_prompt_stays() -> None:
    edge, _ = runtime(context=160)
    session = EdgeSession(edge, "Be brief.", reserve=20)
    dropped = []
    for number in range(8):
        answer = session.ask(f"Question {number}: what is the capital of Japan?", SHORT)
        list(answer)
        dropped.append(answer.dropped)
        roles = [message.role for message in session.messages]
        assert roles[0] == "system"
        assert roles[1] == "user"
        assert answer.stats.reused + answer.stats.computed <= 160
    assert dropped[0] == 0
    assert sum(dropped) >= 3
    assert "Question 7" in session.messages[-2].content
    with pytest.raises(ContextError):
        list(session.ask("long " * 400))


def test_one_answer_at_a_time() -> None:
    edge, _ = runtime()
    session = EdgeSession(edge)
    answer = session.ask("Why?", SHORT)
    with pytest.raises(UsageError):
        session.ask("Why not?")
    answer.close()
    assert session.messages == ()  # nothing was written
    list(session.ask("Why not?", SHORT))


def test_a_saved_session_continues_the_conversation(tmp_path: Path) -> None:
    first = EdgeSession(real(), "You are brief.")
    list(first.ask("What is the capital of Japan?", SHORT))
    first.save(tmp_path / "talk")
    again = EdgeSession.load(tmp_path / "talk", real())
    assert again.messages == first.messages
    answers = [session.ask("And of Chile?", SHORT) for session in (first, again)]
    texts = [list(answer) for answer in answers]
    assert [token.id for token in texts[0]] == [token.id for token in texts[1]]  # type: ignore[union-attr]


def test_a_file_that_is_no_session(tmp_path: Path) -> None:
    session = EdgeSession(real(), "You are brief.")
    list(session.ask("What is the capital of Japan?", SHORT))
    path = tmp_path / "talk"
    session.save(path)
    good = json.loads(path.read_bytes())

    def refused(data: bytes) -> None:
        path.write_bytes(data)
        with pytest.raises(SessionFileError):
            EdgeSession.load(path, session.edge)

    for data in (b"", b"PNG", b"\xff", b"[" * 100_000, b"[]", b" " * (MAX_FILE_BYTES + 1)):
        refused(data)
    for changes in (
        {"format": "another"},
        {"messages": ["ab"]},
        {"messages": [["king", "x"]]},
        {"messages": [["user", 1]]},
        {"messages": [["user", "\ud800"]]},
        {"messages": float("inf")},
    ):
        refused(json.dumps({**good, **changes}).encode())
    path.unlink()
    with pytest.raises(SessionFileError):
        EdgeSession.load(path, session.edge)


def test_a_long_history_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = real()
    said = [Message("user" if turn % 2 == 0 else "assistant", f"{turn} is it") for turn in range(15_000)]
    read: list[int] = []
    ids = EdgeRuntime.prompt_ids

    def counted(self: EdgeRuntime, prompt: Any) -> list[int]:
        read.append(len(prompt))
        return ids(self, prompt)

    monkeypatch.setattr(EdgeRuntime, "prompt_ids", counted)
    messages, dropped = EdgeSession(edge, messages=said).prompt("Why?")
    assert sum(read) < 4_000
    room = edge.model.context - RESERVE
    assert len(ids(edge, messages)) <= room < len(ids(edge, (*said[2 * dropped - 2 :], messages[-1])))
