"""Modes: where a turn is answered, what leaves the device, and what the answer says of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.cloud import WATCHED, CloudQuestion, device_doubt
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import Source, Token
from edge_runtime.decode.refine import Retract
from edge_runtime.decode.sampling import Sampling
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.session import MODES, EdgeSession
from edge_runtime.text.chat import Prompt
from payload import AnchorSet, Shared, encode
from tests.edge_runtime.test_session import BUNDLE, SHORT, runtime

ANCHORS = {0: 11, 1: 12, 3: 14}


@dataclass
class FakeCloud:
    """A cloud that sends `ANCHORS`, or cannot be reached; it notes what it is asked."""

    down: bool = False
    slow: float = 0.0
    asked: list[Prompt] = field(default_factory=list)

    timeout = 5.0

    def ask(self, question: CloudQuestion) -> None:
        self.asked.append(question.prompt)
        time.sleep(self.slow)
        if self.down:
            raise CloudUnavailableError("nobody is there")
        shared = Shared(BUNDLE.contract, question.prompt_ids, BUNDLE.tokenizer)
        question.take(encode(AnchorSet.of(ANCHORS, 64, BUNDLE.contract, length=5), shared))


def read(answer: Answer[Any]) -> list[int]:
    list(answer)
    return [token.id for token in answer.tokens]


def fresh() -> EdgeSession:
    return EdgeSession(runtime()[0])


def long_answered() -> str:
    """A question that the model of hashes answers in more tokens than are watched."""
    return next(each for each in map(str, range(99)) if len(read(fresh().ask(each, SHORT))) > WATCHED + 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_private_question_never_leaves(mode: str, tmp_path: Path) -> None:
    """Nor does what follows it in the conversation, which would carry it along; not even from a file."""
    session, cloud = fresh(), FakeCloud()
    session.ask("My secret?", SHORT, cloud=cloud, mode=mode, threshold=0.0, private=True).close()
    session.save(tmp_path / "talk")
    for each in (session, session.clone(), EdgeSession.load(tmp_path / "talk", session.edge)):
        read(each.ask("And then?", SHORT, cloud=cloud, mode=mode, threshold=0.0))
    assert cloud.asked == []


@pytest.mark.parametrize("mode", ["prefer_in_cloud", "only_in_cloud"])
def test_the_cloud_first(mode: str) -> None:
    session, cloud = fresh(), FakeCloud()
    answer = session.ask("Why?", SHORT, cloud=cloud, mode=mode)
    read(answer)
    assert {t.position: t.id for t in answer.tokens if t.source is Source.ANCHOR} == ANCHORS
    assert answer.source == "mixed"
    assert cloud.asked == [session.messages[:1]]
    read(session.ask("And then?", SHORT, cloud=cloud, mode=mode))
    assert cloud.asked[1] == session.messages[:3]  # the conversation, not the question alone


@pytest.mark.parametrize("mode", ["prefer_in_cloud", "prefer_on_device"])
def test_without_a_network_the_device_answers(mode: str) -> None:
    session, cloud = fresh(), FakeCloud(down=True)
    answer = session.ask("Why?", SHORT, cloud=cloud, mode=mode, threshold=0.0)
    assert read(answer) == read(fresh().ask("Why?", SHORT))
    assert answer.source == "on_device"
    assert answer.service
    assert answer.service.failure == "nobody is there"
    with pytest.raises(CloudUnavailableError):
        session.ask("And then?", SHORT, cloud=cloud, mode="only_in_cloud")


def test_the_device_asks_where_it_doubts() -> None:
    """The text becomes that of the anchors, and what was shown is taken back, not started again."""
    session, wanted, cloud = fresh(), fresh(), FakeCloud()
    ids = read(wanted.ask("Why?", SHORT, cloud=FakeCloud(), mode="only_in_cloud"))
    answer = session.ask("Why?", SHORT, cloud=cloud, threshold=0.0)
    shown = 0
    for item in answer:
        shown += isinstance(item, Token)
        if shown == WATCHED:
            time.sleep(0.2)  # the payload arrives while the device writes
    assert len(cloud.asked) == 1
    assert answer.service
    assert (answer.service.doubt_before or 0) > 0
    assert [token.id for token in answer.tokens] == ids
    assert session.messages == wanted.messages
    assert answer.source == "mixed"
    assert shown > len(answer.tokens)


def test_after_the_delay_nothing_is_taken_back() -> None:
    """A payload that came and was not seen is not taken either; the text is the device's."""
    question, cloud = long_answered(), FakeCloud()
    wanted = read(fresh().ask(question, SHORT))
    answer = fresh().ask(question, SHORT, cloud=cloud, threshold=0.0, delay=0.1)
    items = []
    for item in answer:
        items.append(item)
        if len(items) == WATCHED:
            time.sleep(0.3)  # the payload has arrived, too late
    assert len(cloud.asked) == 1
    assert [token.id for token in items if isinstance(token, Token)] == wanted
    assert not any(isinstance(item, Retract) for item in items)
    assert answer.service
    assert answer.service.settled
    # At the end of its text the device waits no longer than that either.
    started = time.monotonic()
    assert read(fresh().ask(question, SHORT, cloud=FakeCloud(slow=20), threshold=0.0, delay=0.2)) == wanted
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("options", [{"threshold": 1.0}, {"mode": "only_on_device"}])
def test_a_sure_device_asks_nobody(options: dict[str, Any]) -> None:
    cloud = FakeCloud()
    answer = fresh().ask("Why?", SHORT, cloud=cloud, **options)
    assert not any(isinstance(item, Retract) for item in answer)
    assert [token.id for token in answer.tokens] == read(fresh().ask("Why?", SHORT))
    assert cloud.asked == []
    assert answer.source == "on_device"


def test_doubt() -> None:
    assert device_doubt([]) is None
    assert device_doubt([Token(1, 0, Source.ANCHOR, -9.0)]) is None
    sure = [Token(1, 0, Source.FILL, 0.0), Token(2, 1, Source.FILL, 0.0)]
    assert device_doubt(sure) == 0
    assert device_doubt([*sure, Token(1, 2, Source.FILL, -3.0)]) == pytest.approx(1 - 2.718281828**-1)


def test_what_cannot_be_asked() -> None:
    session = fresh()
    for options in (
        {"mode": "cloud", "cloud": FakeCloud()},
        {"mode": "prefer_in_cloud"},
        {"options": replace(SHORT, sampling=Sampling(1.0)), "cloud": FakeCloud()},
    ):
        with pytest.raises(UsageError):
            session.ask("Why?", **options)  # type: ignore[arg-type]
