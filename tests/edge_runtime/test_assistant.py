"""Modes: where a turn is answered, what leaves the device, and what the answer says of it."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from edge_runtime.assistant import MODES, WATCHED, Assistant, device_doubt
from edge_runtime.client.client import Client, ReceivedPayload
from edge_runtime.decode.forced import Source, Token
from edge_runtime.decode.refine import Retract
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from edge_runtime.text.chat import Prompt
from payload import AnchorSet, Shared, encode
from tests.edge_runtime.test_session import BUNDLE, SHORT, runtime

ANCHORS = {0: 11, 1: 12, 3: 14}


@dataclass(frozen=True)
class FakeClient(Client):
    """A service that sends `ANCHORS`, or cannot be reached; it notes what it is asked."""

    edge: EdgeRuntime | None = None
    down: bool = False
    slow: float = 0.0
    asked: list[Prompt] = field(default_factory=list)

    def fetch(self, prompt: Prompt, **fields: Any) -> bytes:
        self.asked.append(prompt)
        time.sleep(self.slow)
        if self.down:
            raise CloudUnavailableError("nobody is there")
        assert self.edge is not None
        shared = Shared(BUNDLE.contract, self.edge.prompt_ids(prompt), BUNDLE.tokenizer)
        return encode(AnchorSet.of(ANCHORS, 64, BUNDLE.contract, length=5), shared)

    def stream(self, prompt: Prompt, **fields: Any) -> Generator[ReceivedPayload]:
        yield ReceivedPayload(self.fetch(prompt), delta=False)


def assistant(
    mode: str | None = None, *, down: bool = False, slow: float = 0.0, **options: float
) -> tuple[Assistant, FakeClient]:
    edge, _ = runtime()
    client = FakeClient("http://localhost:1", timeout=5, edge=edge, down=down, slow=slow)
    return Assistant(EdgeSession(edge), client, mode=mode, **options), client


def test_the_device_alone_asks_nobody() -> None:
    helper, client = assistant("only_on_device")
    answer = helper.ask("Why?", SHORT)
    list(answer)
    assert answer.source == "on_device"
    assert client.asked == []


@pytest.mark.parametrize("mode", MODES)
def test_a_private_question_never_leaves(mode: str) -> None:
    helper, client = assistant(mode, threshold=0.0)
    list(helper.ask("My secret?", SHORT, private=True))
    assert client.asked == []
    assert helper.session.messages[0].content == "My secret?"


@pytest.mark.parametrize("mode", ["prefer_in_cloud", "only_in_cloud"])
def test_the_cloud_first(mode: str) -> None:
    helper, client = assistant(mode)
    answer = helper.ask("Why?", SHORT)
    tokens = list(answer)
    assert {t.position: t.id for t in tokens if t.source is Source.ANCHOR} == ANCHORS  # type: ignore[union-attr]
    assert answer.source == "mixed"
    assert client.asked == [helper.session.messages[:1]]
    list(helper.ask("And then?", SHORT))
    assert client.asked[1] == helper.session.messages[:3]  # the conversation, not the question alone


def test_without_a_network() -> None:
    helper, _ = assistant("prefer_in_cloud", down=True)
    answer = helper.ask("Why?", SHORT)
    list(answer)
    assert answer.source == "on_device"
    assert answer.service
    assert answer.service.failure == "nobody is there"
    helper.mode = "only_in_cloud"
    with pytest.raises(CloudUnavailableError):
        list(helper.ask("And then?", SHORT))
    helper.mode = "prefer_on_device"
    helper.threshold = 0.0
    answer = helper.ask("And then?", SHORT)
    list(answer)
    assert answer.source == "on_device"
    assert answer.service
    assert answer.service.failure


def test_the_device_asks_where_it_doubts() -> None:
    """The text becomes that of the anchors, and what was shown is taken back, not started again."""
    helper, client = assistant("prefer_on_device", threshold=0.0)
    expected, _ = assistant("only_in_cloud")
    wanted = expected.ask("Why?", SHORT)
    list(wanted)
    answer = helper.ask("Why?", SHORT)
    shown = 0
    for item in answer:
        shown += isinstance(item, Token)
        if shown == WATCHED:
            time.sleep(0.2)  # the payload arrives while the device writes
    assert len(client.asked) == 1
    assert answer.service
    assert (answer.service.doubt_before or 0) > helper.threshold
    assert [t.id for t in answer.tokens] == [t.id for t in wanted.tokens]
    assert helper.session.messages == expected.session.messages
    assert answer.source == "mixed"
    assert shown > len(answer.tokens)


def test_after_the_delay_nothing_is_taken_back() -> None:
    """A payload that came and was not seen is not taken either; the text is the device's."""
    helper, client = assistant("prefer_on_device", threshold=0.0)

    def alone(question: str) -> list[int]:
        answer = assistant("only_on_device")[0].ask(question, SHORT)
        list(answer)
        return [token.id for token in answer.tokens]

    question = next(each for each in map(str, range(99)) if len(alone(each)) > WATCHED + 1)
    wanted = alone(question)
    answer = helper.ask(question, SHORT, delay=0.1)
    items = []
    for item in answer:
        items.append(item)
        if len(items) == WATCHED:
            time.sleep(0.3)  # the payload has arrived, too late
    assert len(client.asked) == 1
    assert [token.id for token in items if isinstance(token, Token)] == wanted
    assert not any(isinstance(item, Retract) for item in items)
    assert answer.service
    assert answer.service.settled
    # At the end of its text the device waits no longer than that either.
    slow, _ = assistant("prefer_on_device", threshold=0.0, slow=20)
    started = time.monotonic()
    assert [token.id for token in slow.ask(question, SHORT, delay=0.2)] == wanted  # type: ignore[union-attr]
    assert time.monotonic() - started < 5


def test_a_sure_device_asks_nobody() -> None:
    helper, client = assistant("prefer_on_device", threshold=1.0)
    answer = helper.ask("Why?", SHORT)
    assert not any(isinstance(item, Retract) for item in answer)
    assert client.asked == []
    assert answer.source == "on_device"
    alone, _ = assistant("only_on_device")
    list(alone.ask("Why?", SHORT))
    assert helper.session.messages == alone.session.messages


def test_doubt() -> None:
    assert device_doubt([]) is None
    assert device_doubt([Token(1, 0, Source.ANCHOR, -9.0)]) is None
    sure = [Token(1, 0, Source.FILL, 0.0), Token(2, 1, Source.FILL, 0.0)]
    assert device_doubt(sure) == 0
    assert device_doubt([*sure, Token(1, 2, Source.FILL, -3.0)]) == pytest.approx(1 - 2.718281828**-1)


def test_modes_are_named_and_need_a_service() -> None:
    helper, _ = assistant()
    assert helper.mode == "prefer_on_device"
    with pytest.raises(UsageError, match="only_on_device, prefer_on_device"):
        helper.mode = "cloud"
    alone = Assistant(helper.session)
    assert alone.mode == "only_on_device"
    with pytest.raises(UsageError, match="--url"):
        alone.mode = "prefer_in_cloud"
