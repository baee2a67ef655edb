"""Conversations over links: what a frame holds of them, and an assistant that asks by frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.assistant import WATCHED, Assistant
from edge_runtime.budget import DailyBudget, Limits
from edge_runtime.client.client import ReceivedPayload
from edge_runtime.decode.forced import Source
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.memory import AnswerMemory
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from edge_runtime.text.chat import Message, Prompt, as_messages
from links import Emulation, LinkProfile
from links.asking import LinkCloud, open_cloud
from links.datagram import Link
from links.exchange import QuestionExchange, RetryBudget
from links.frames import Question
from links.frames.conversation import (
    DIVIDER,
    MAX_MESSAGES,
    SYSTEM_MARK,
    conversation_text,
    messages_of,
    shorter,
)
from links.gateway.emulated import emulated_gateway
from links.kinds.udp import UdpLink
from links.profiles import Tariff, at_rate
from payload import AnchorSet, Shared, encode
from tests.edge_runtime.test_assistant import ANCHORS
from tests.edge_runtime.test_session import BUNDLE, SHORT, runtime

WIDE = LinkProfile("wide", 400, 200, at_rate(8000), (0.05, 0.2))
NUMBERS = " ".join(str(number**3) for number in range(30))
CONTENTS = st.text(
    st.characters(exclude_characters=DIVIDER + SYSTEM_MARK, exclude_categories=["Cs"]), max_size=9
)


def talk(contents: list[str], system: str | None = None) -> list[Message]:
    """Questions and answers in turn."""
    head = [] if system is None else [Message("system", system)]
    return head + [Message(("user", "assistant")[at % 2], text) for at, text in enumerate(contents)]


@given(st.lists(CONTENTS, max_size=9), CONTENTS, st.none() | CONTENTS)
def test_a_conversation_is_one_text(before: list[str], last: str, system: str | None) -> None:
    messages = talk([*before[: len(before) // 2 * 2], last], system)
    while len(messages) > 1:
        assert messages_of(conversation_text(messages)) == messages
        fewer = list(shorter(messages))
        assert len(fewer) < len(messages)
        assert fewer[-1] == messages[-1]
        assert fewer[0] == messages[0] or messages[0].role != "system" or len(fewer) == 1
        messages = fewer
    assert messages_of(conversation_text(messages)) == last
    assert shorter(messages) == ()


@given(st.text(st.sampled_from([DIVIDER, SYSTEM_MARK, "a", " "]), max_size=12))
def test_every_text_is_a_prompt(text: str) -> None:
    """One that is no conversation is a question as it stands."""
    found = messages_of(text)
    if isinstance(found, str):
        assert found == text
        return
    roles = [message.role for message in as_messages(found)]
    if roles[0] == "system":
        del roles[0]
    assert roles == [("user", "assistant")[at % 2] for at in range(len(roles))]
    assert roles[-1] == "user"


def test_dividers_in_a_message_and_too_many_messages() -> None:
    forged = talk([f"Why?{DIVIDER}Because.{DIVIDER}Then?"])
    assert messages_of(conversation_text(forged)) == "Why? Because. Then?"
    many = talk(["x"] * (MAX_MESSAGES + 1))
    assert isinstance(messages_of(conversation_text(many)), str)
    assert isinstance(messages_of(conversation_text(many[:-2])), list)


@dataclass
class FakeSource:
    """A service that sends `ANCHORS` for what a question's text is a conversation of."""

    edge: EdgeRuntime
    asked: list[Prompt] = field(default_factory=list)

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        prompt = messages_of(question.text)
        self.asked.append(prompt)
        shared = Shared(BUNDLE.contract, self.edge.prompt_ids(prompt), BUNDLE.tokenizer)
        yield ReceivedPayload(
            encode(AnchorSet.of(ANCHORS, 64, BUNDLE.contract, length=5), shared), delta=False
        )


def over_link(
    profile: LinkProfile = WIDE, loss: float = 0.0, **options: Any
) -> tuple[Assistant, FakeSource, Link]:
    edge, _ = runtime()
    source = FakeSource(edge)
    emulation = Emulation(profile, loss=loss, seed=1)
    emulated_gateway(emulation, edge.question_context(predictive=False), source)
    link = emulation.device()
    return Assistant(EdgeSession(edge), LinkCloud(link, RetryBudget(attempts=3)), **options), source, link


@pytest.mark.parametrize("mode", ["prefer_on_device", "prefer_in_cloud", "only_in_cloud"])
def test_turns_over_a_link(mode: str, tmp_path: Path) -> None:
    """Every turn sends the conversation, and has the anchors that came for it."""
    daily = DailyBudget(tmp_path, Limits())
    helper, source, link = over_link(mode=mode, threshold=0.0, daily=daily)
    helper.session = EdgeSession(helper.session.edge, "Be brief.")
    for turn in (1, 2):
        answer = helper.ask("Why?", SHORT)
        list(answer)
        assert {t.position: t.id for t in answer.tokens if t.source is Source.ANCHOR} == ANCHORS
        assert answer.service
        assert (answer.service.failure, answer.service.left_out) == (None, 0)
        assert source.asked[-1] == list(helper.session.messages[:-1])
        assert len(source.asked) == turn
        assert "in 1 frame, in " in str(answer.service.crossed)
        assert "s on the air" in str(answer.service.crossed)
    total = daily.spent("link wide")
    assert total.requests == 2
    assert total.bytes == link.sent.bytes + link.received.bytes > 0


def test_the_oldest_turns_do_not_go_along_where_the_frame_is_small() -> None:
    small = LinkProfile("small", 60, 200, at_rate(8000), (0.05, 0.2), tariff=Tariff("test", "EUR", 0.5))
    helper, source, _ = over_link(small, mode="prefer_in_cloud")
    helper.session = EdgeSession(helper.session.edge, messages=talk([NUMBERS, NUMBERS]))
    answer = helper.ask("Why is that?", SHORT)
    list(answer)
    assert source.asked == ["Why is that?"]
    assert answer.service
    assert answer.service.left_out == 2
    assert answer.service.spent.money == 1.0
    assert "1 EUR (test)" in str(answer.service.crossed)
    assert len(helper.session.messages) == 4
    too_long = helper.ask(NUMBERS, SHORT)
    list(too_long)
    assert too_long.source == "on_device"
    assert "fewer words" in str(too_long.service and too_long.service.failure)
    helper.mode = "only_in_cloud"
    with pytest.raises(CloudUnavailableError, match="fewer words"):
        helper.ask(NUMBERS, SHORT)


def test_what_is_private_stays_and_what_is_known_is_not_asked(tmp_path: Path) -> None:
    helper, source, link = over_link(mode="prefer_in_cloud", memory=AnswerMemory(tmp_path, 60))
    for _ in range(2):
        helper.session = EdgeSession(helper.session.edge)
        answer = helper.ask("Why?", SHORT)
        list(answer)
        assert answer.source == "mixed"
    assert len(source.asked) == 1
    sent = link.sent.frames
    list(helper.ask("My secret?", SHORT, private=True))
    list(helper.ask("And then?", SHORT))
    assert link.sent.frames == sent


def test_a_link_that_is_lost_or_closed_leaves_the_device(tmp_path: Path) -> None:
    helper, _, link = over_link(mode="prefer_in_cloud", loss=1.0)
    answer = helper.ask("Why?", SHORT)
    list(answer)
    assert answer.source == "on_device"
    assert "no answer came, asked 3 times" in str(answer.service and answer.service.failure)
    link.close()
    answer = helper.ask("And then?", SHORT)
    list(answer)
    assert "closed" in str(answer.service and answer.service.failure)


def test_an_answer_that_is_left_frees_the_link() -> None:
    """The next question is on the link at once, not after the repeats of one that nobody waits for."""
    with (
        UdpLink("127.0.0.1", 0, service=True) as silent,
        open_cloud(f"udp:{silent.address}", seconds=60) as cloud,
    ):
        edge, _ = runtime()
        for number in (1, 2):
            helper = Assistant(EdgeSession(edge), cloud, mode="prefer_on_device", threshold=0.0)
            answer = helper.ask(long_answered(), SHORT)
            assert silent.receive(0) is None
            for _ in range(WATCHED):
                next(answer)
            assert silent.receive(10) is not None, number
            answer.close()
        assert cloud._turn.acquire(timeout=10)


def long_answered() -> str:
    """A question that the model of hashes answers in more tokens than are watched."""
    for question in map(str, range(99)):
        if len(list(EdgeSession(runtime()[0]).ask(question, SHORT))) > WATCHED + 1:
            return question
    raise AssertionError


def test_an_exchange_that_is_stopped_sends_no_more() -> None:
    emulation = Emulation(WIDE)
    device = emulation.device()

    def read(data: bytes, base: object) -> AnchorSet:
        raise AssertionError

    exchange = QuestionExchange(device, b"question", 7, read, stopped=lambda: device.sent.frames > 0)
    assert list(exchange.anchors()) == []
    assert exchange.attempts == 1
    assert emulation.clock.now < 1


def test_what_cannot_be_opened() -> None:
    for address, airtime, seconds, words in (
        ("nowhere", None, None, "expected one of udp"),
        ("sms-paste:", None, None, "links.ask"),
        ("udp:localhost:1", 0.0, None, "airtime"),
        ("udp:localhost:1", None, -1.0, "timeout"),
    ):
        with pytest.raises(UsageError, match=words), open_cloud(address, None, airtime, seconds):
            pass
