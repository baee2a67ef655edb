"""Conversations over links: what a frame holds of them, and an assistant that asks by frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.client.client import ReceivedPayload
from edge_runtime.cloud import WATCHED
from edge_runtime.decode.forced import Source
from edge_runtime.errors import CloudUnavailableError
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from edge_runtime.text.chat import Message, Prompt, as_messages
from links import LinkProfile
from links.asking import LinkCloud
from links.exchange import QuestionExchange, RetryBudget
from links.frames.conversation import (
    DIVIDER,
    MAX_MESSAGES,
    SYSTEM_MARK,
    conversation_text,
    messages_of,
    shorter,
)
from links.frames.kinds import peek_frame
from links.frames.question import Question
from links.frames.reply import Refusal, RefusalCode, encode_reply
from links.kinds.udp import UdpLink
from links.profiles import Tariff, at_rate
from links.quota import Quota
from payload import AnchorSet, Shared, encode
from tests.edge_runtime.test_modes import ANCHORS, long_answered, read
from tests.edge_runtime.test_session import BUNDLE, SHORT, runtime
from tests.links.emulation import Emulation, emulated_gateway

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
    profile: LinkProfile = WIDE, loss: float = 0.0, quota: Quota | None = None
) -> tuple[EdgeSession, LinkCloud, FakeSource]:
    edge, _ = runtime()
    source = FakeSource(edge)
    emulation = Emulation(profile, loss=loss, seed=1)
    emulated_gateway(emulation, edge.question_context(predictive=False), source)
    cloud = LinkCloud(emulation.device(), RetryBudget(attempts=3), quota)
    return EdgeSession(edge, "Be brief."), cloud, source


@pytest.mark.parametrize("mode", ["prefer_on_device", "prefer_in_cloud", "only_in_cloud"])
def test_turns_over_a_link(mode: str) -> None:
    """Every turn sends the conversation, and has the anchors that came for it."""
    session, cloud, source = over_link()
    for turn in (1, 2):
        answer = session.ask("Why?", SHORT, cloud=cloud, mode=mode, threshold=0.0)
        read(answer)
        assert {t.position: t.id for t in answer.tokens if t.source is Source.ANCHOR} == ANCHORS
        assert answer.service
        assert (answer.service.failure, answer.service.left_out) == (None, 0)
        assert source.asked[-1] == list(session.messages[:-1])
        assert len(source.asked) == turn
        assert "in 1 frame, in " in str(answer.service.crossed)
        assert "s on the air" in str(answer.service.crossed)
    sent = cloud.link.sent.frames
    read(session.ask("My secret?", SHORT, cloud=cloud, mode=mode, threshold=0.0, private=True))
    assert cloud.link.sent.frames == sent


def test_the_oldest_turns_do_not_go_along_where_the_frame_is_small() -> None:
    small = LinkProfile("small", 60, 200, at_rate(8000), (0.05, 0.2), tariff=Tariff("test", "EUR", 0.5))
    _, cloud, source = over_link(small)
    session = EdgeSession(runtime()[0], messages=talk([NUMBERS, NUMBERS]))
    answer = session.ask("Why is that?", SHORT, cloud=cloud, mode="prefer_in_cloud")
    read(answer)
    assert source.asked == ["Why is that?"]
    assert answer.service
    assert answer.service.left_out == 2
    assert "1 EUR (test)" in str(answer.service.crossed)
    assert len(session.messages) == 4
    too_long = session.ask(NUMBERS, SHORT, cloud=cloud, mode="prefer_in_cloud")
    read(too_long)
    assert too_long.source == "on_device"
    assert too_long.service
    assert too_long.service.failure
    with pytest.raises(CloudUnavailableError):
        session.ask(NUMBERS, SHORT, cloud=cloud, mode="only_in_cloud")


def test_an_answer_that_was_paid_for_comes_where_that_cannot_be_kept(tmp_path: Path) -> None:
    paid = replace(WIDE, tariff=Tariff("test", "EUR", 0.5))
    quota = Quota(tmp_path / "state" / "spent.json", 9.0)
    (tmp_path / "state").write_text("a file in place of the folder")
    session, cloud, _ = over_link(paid, quota=quota)
    answer = session.ask("Why?", SHORT, cloud=cloud, mode="only_in_cloud")
    read(answer)
    assert {t.position: t.id for t in answer.tokens if t.source is Source.ANCHOR} == ANCHORS


@pytest.mark.parametrize("mode", ["prefer_on_device", "prefer_in_cloud"])
def test_when_the_money_of_a_day_is_spent_the_device_answers(tmp_path: Path, mode: str) -> None:
    paid = replace(WIDE, tariff=Tariff("test", "EUR", 0.5))
    _, cloud, source = over_link(paid, quota=Quota(tmp_path / "spent.json", 1.2))
    for left in (False, True):
        session = EdgeSession(runtime()[0])
        answer = session.ask("Why?", SHORT, cloud=cloud, mode=mode, threshold=0.0)
        read(answer)
        assert answer.service
        assert (answer.service.failure is not None) == left
    assert len(source.asked) == 1
    with pytest.raises(CloudUnavailableError):
        session.ask("And then?", SHORT, cloud=cloud, mode="only_in_cloud")


def test_a_link_that_is_lost_or_closed_leaves_the_device() -> None:
    session, cloud, _ = over_link(loss=1.0)
    for attempts in (3, 0):
        sent = cloud.link.sent.frames
        answer = session.ask("Why?", SHORT, cloud=cloud, mode="prefer_in_cloud")
        read(answer)
        assert answer.source == "on_device"
        assert answer.service
        assert answer.service.failure
        assert cloud.link.sent.frames - sent == attempts
        cloud.link.close()


def refused(data: bytes) -> bytes:
    return encode_reply(Refusal(peek_frame(data).id, RefusalCode.OTHER_CONTRACT, identity="0" * 8))


@pytest.mark.parametrize("reply", [refused, lambda data: bytes(WIDE.down + 1)], ids=["refused", "too large"])
def test_whatever_a_stranger_answers_leaves_the_devices_own_text(reply: Callable[[bytes], bytes]) -> None:
    """A refusal that nobody has authenticated, and a frame that only the other end's profile allows."""
    session, cloud, source = over_link()
    gateway = cloud.link._emulation.gateway  # type: ignore[attr-defined]
    gateway.profile = replace(WIDE, down=1000)
    gateway.listen(lambda found: gateway.send(reply(found.data), found.peer))
    answer = session.ask("Why?", SHORT, cloud=cloud, mode="prefer_in_cloud")
    read(answer)
    assert (answer.source, source.asked) == ("on_device", [])
    assert answer.service
    assert answer.service.failure
    assert cloud.link.sent.frames == 1, "no airtime for what cannot come"


def test_an_answer_that_is_left_frees_the_link() -> None:
    """The next question is on the link at once, not after the repeats of one that nobody waits for."""
    with (
        UdpLink("127.0.0.1", 0, service=True) as silent,
        UdpLink("127.0.0.1", int(silent.address.rpartition(":")[2])) as link,
    ):
        cloud = LinkCloud(link, RetryBudget(seconds=60))
        edge, _ = runtime()
        for number in (1, 2):
            answer = EdgeSession(edge).ask(long_answered(), SHORT, cloud=cloud, threshold=0.0)
            assert silent.receive(0) is None
            for _ in range(WATCHED):
                next(answer)
            assert silent.receive(10) is not None, number
            answer.close()
        assert cloud._turn.acquire(timeout=10)


def test_an_exchange_that_is_stopped_sends_no_more() -> None:
    emulation = Emulation(WIDE)
    device = emulation.device()

    def read(data: bytes, base: object) -> AnchorSet:
        raise AssertionError

    exchange = QuestionExchange(device, b"question", 7, read, stopped=lambda: device.sent.frames > 0)
    assert list(exchange.anchors()) == []
    assert exchange.attempts == 1
    assert emulation.clock.now < 1
