"""Budgets of a day and remembered answers: counted, kept, refused, never for what is private."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge_runtime.assistant import Assistant
from edge_runtime.budget import DAY, FILE, BudgetOptions, DailyBudget, Limits, Spent
from edge_runtime.errors import BudgetSpentError, CloudUnavailableError, UsageError
from edge_runtime.memory import FILE as MEMORY_FILE
from edge_runtime.memory import AnswerMemory, Remembered
from edge_runtime.session import EdgeSession
from tests.edge_runtime.test_assistant import FakeClient
from tests.edge_runtime.test_session import SHORT, runtime

LINK = "http://localhost:1"


class Days:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 20_000 * DAY

    def __call__(self) -> float:
        return self.now


def test_a_day_by_link(tmp_path: Path) -> None:
    clock = Days()
    daily = DailyBudget(tmp_path / "new", Limits(requests=2, bytes=100, money=1.0), clock=clock)
    daily.begin(LINK)
    daily.spend(LINK, Spent(bytes=60, money=0.2))
    again = DailyBudget(tmp_path / "new", daily.limits, clock=clock)  # as another program has it
    assert again.spent(LINK) == Spent(1, 60, 0.2)
    again.begin("link sms")  # every link has its own
    again.begin(LINK)
    with pytest.raises(BudgetSpentError, match="2 requests"):
        daily.begin(LINK)
    clock.now += DAY
    daily.begin(LINK)
    clock.now -= 2 * DAY  # a clock that goes back
    assert daily.spent(LINK) == Spent(1)
    daily.spend(LINK, Spent(bytes=100))
    with pytest.raises(BudgetSpentError, match="100 bytes"):
        daily.begin(LINK)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"day": 1, "links": {"x": [1]}}', '{"day": "x", "links": {}}']
)
def test_a_file_that_is_none_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError, match=FILE):
        DailyBudget(tmp_path, Limits()).begin(LINK)


def test_what_cannot_be_counted_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="expected to keep"):
        DailyBudget(tmp_path / "file" / "folder", Limits()).begin(LINK)


def test_memory_forgets_by_age_and_by_size(tmp_path: Path) -> None:
    clock = Days()
    memory = AnswerMemory(tmp_path, 100, 400, clock)
    memory.put("a", Remembered(b"1", 0.5))
    clock.now += 60
    memory.put("b", Remembered(b"2", None))
    assert memory.get("a") == (b"1", 0.5)
    clock.now += 60
    assert memory.get("a") is None
    assert memory.get("b") == (b"2", None)
    for number in range(20):
        memory.put(f"c{number}", Remembered(b"0123456789", 0.1))
    assert (tmp_path / MEMORY_FILE).stat().st_size <= 400
    assert memory.get("b") is None
    assert memory.get("c19") is not None
    (tmp_path / MEMORY_FILE).write_text('{"c19": [1, 2]}')
    assert memory.get("c19") is None
    assert memory.key("x", ["y"]) != memory.key("x", "y")


def assistant(
    tmp_path: Path, mode: str, limits: Limits | None = None, *, remember: bool = False
) -> tuple[Assistant, FakeClient]:
    edge, _ = runtime()
    client = FakeClient(LINK, timeout=5, edge=edge)
    daily = DailyBudget(tmp_path, limits or Limits(), price=0.01)
    memory = AnswerMemory(tmp_path, DAY) if remember else None
    return Assistant(EdgeSession(edge), client, mode=mode, threshold=0.0, daily=daily, memory=memory), client


@pytest.mark.parametrize("mode", ["prefer_on_device", "prefer_in_cloud"])
def test_when_the_budget_is_spent_the_device_answers(tmp_path: Path, mode: str) -> None:
    helper, client = assistant(tmp_path, mode, Limits(requests=1))
    answer = helper.ask("Why?", SHORT)
    list(answer)
    assert answer.service
    assert answer.service.spent.requests == 1
    assert answer.service.spent.bytes > sum(answer.service.payload_bytes) > 0
    assert answer.service.spent.money == 0.01
    assert helper.daily
    assert helper.daily.spent(LINK) == answer.service.spent
    helper.session = EdgeSession(helper.session.edge)
    answer = helper.ask("And then?", SHORT)
    list(answer)
    assert answer.source == "on_device"
    assert answer.service
    assert "budget of 1 requests" in str(answer.service.failure)
    assert len(client.asked) == 1


def test_only_in_cloud_says_that_the_budget_is_spent(tmp_path: Path) -> None:
    helper, _ = assistant(tmp_path, "only_in_cloud", Limits(requests=0))
    with pytest.raises(CloudUnavailableError, match="budget"):
        list(helper.ask("Why?", SHORT))


@pytest.mark.parametrize("mode", ["prefer_on_device", "prefer_in_cloud", "only_in_cloud"])
def test_the_same_question_is_asked_once(tmp_path: Path, mode: str) -> None:
    said = []
    for _ in range(2):
        helper, client = assistant(tmp_path, mode, Limits(requests=1), remember=True)
        answer = helper.ask("Why?", SHORT)
        list(answer)
        said.append((helper.session.messages, [t.id for t in answer.tokens], answer.source))
    assert said[0] == said[1]
    assert client.asked == []
    assert answer.service
    assert answer.service.remembered
    assert answer.service.spent == Spent()
    kept = (tmp_path / MEMORY_FILE).read_text()
    assert "Why" not in kept
    # Damage is no answer: it is asked again.
    entries = {key: [when, "AAAA", doubt] for key, (when, _, doubt) in json.loads(kept).items()}
    (tmp_path / MEMORY_FILE).write_text(json.dumps(entries))
    helper, client = assistant(tmp_path, mode, remember=True)
    answer = helper.ask("Why?", SHORT)
    list(answer)
    assert len(client.asked) == 1


def test_what_is_private_leaves_no_trace(tmp_path: Path) -> None:
    """Nor does what follows it in the conversation, which would carry it along; not even from a file."""
    helper, client = assistant(tmp_path, "prefer_in_cloud", remember=True)
    list(helper.ask("My secret?", SHORT, private=True))
    helper.session.save(tmp_path / "talk")
    for session in (
        helper.session,
        helper.session.clone(),
        EdgeSession.load(tmp_path / "talk", helper.session.edge),
    ):
        helper.session = session
        list(helper.ask("And then?", SHORT))
    assert client.asked == []
    assert not (tmp_path / MEMORY_FILE).exists()
    assert not (tmp_path / FILE).exists()
    helper.session = EdgeSession(helper.session.edge)
    list(helper.ask("Another talk?", SHORT))
    assert len(client.asked) == 1


def test_options(tmp_path: Path) -> None:
    options = BudgetOptions(day_requests=3, remember=2.0, state=tmp_path)
    assert options.daily().limits == Limits(requests=3)
    assert options.memory() is not None
    assert BudgetOptions(state=tmp_path).memory() is None
    with pytest.raises(UsageError, match="bytes"):
        BudgetOptions(day_bytes=-1, state=tmp_path).daily()
