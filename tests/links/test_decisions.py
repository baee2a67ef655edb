"""A form's questions over a link: one frame each way, and only those that the device doubts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.client.client import ReceivedPayload
from edge_runtime.decisions import CLOUD, DEVICE, Calibration
from edge_runtime.errors import CloudUnavailableError, FormError
from edge_runtime.form import Form
from edge_runtime.runtime import EdgeRuntime
from links import ask, open_link
from links.asking import LinkCloud, LinkDecider
from links.exchange import RetryBudget
from links.frames.conversation import decision_of, decision_text
from links.frames.question import Question
from links.gateway.answering import Gateway, serve_link
from links.gateway.service import FormSource
from links.kinds.udp import UdpLink
from payload.errors import OversizedPayloadError, PayloadError
from tests.shipped import TINY_BUNDLE

TRIAGE = Path("edge_runtime/triage.json")
FORM = Form.of(TRIAGE)
TEXT = "The pump is down.\x1eSend someone."


class Nothing:
    """A source of no payloads."""

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        return iter(())


class Reader:
    """Is sure of every first option, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, list[int]]] = []

    def decide(self, form: Form, text: str, asked: Sequence[int]) -> Mapping[int, Sequence[float]]:
        self.asked.append((form.name, text, list(asked)))
        return {at: [1.0] + [0.0] * (form.sizes[at] - 1) for at in asked}


@pytest.fixture(scope="module")
def edge() -> EdgeRuntime:
    return EdgeRuntime.open(TINY_BUNDLE, "fp32", threads=1)


@pytest.fixture
def gateway(edge: EdgeRuntime) -> Iterator[tuple[Reader, int]]:
    """A reader behind a gateway that has the form, and the gateway's port."""
    reader, stop = Reader(), threading.Event()
    with open_link("udp-listen:0") as link:
        source = FormSource({FORM.name: FORM}, reader, Nothing())
        start = lambda job: threading.Thread(target=job).start()  # noqa: E731
        served = Gateway(link, edge.question_context(), source, start)
        thread = threading.Thread(target=serve_link, args=(served, stop.is_set), daemon=True)
        thread.start()
        yield reader, link._socket.getsockname()[1]  # type: ignore[attr-defined]
        stop.set()
        thread.join(10)


def test_what_the_device_doubts_is_asked_in_a_frame_and_answered_in_one(
    edge: EdgeRuntime, gateway: tuple[Reader, int]
) -> None:
    reader, port = gateway
    alone = edge.decide(TEXT, FORM)
    threshold = sorted(choice.probability for choice in alone.choices)[2]
    with UdpLink("127.0.0.1", port) as device:
        cloud = LinkCloud(device)
        found = edge.decide(
            TEXT, FORM, [Calibration(threshold=threshold)] * len(FORM.slots), LinkDecider(cloud, edge)
        )
        (exchange,) = cloud.exchanges
    unsure = [at for at, choice in enumerate(alone.choices) if choice.probability < threshold]
    assert reader.asked == [(FORM.name, TEXT.replace("\x1e", " "), unsure)]
    assert [choice.source for choice in found.choices].count(CLOUD) == len(unsure)
    assert all(found.choices[at].index == 0 for at in unsure)
    assert len(exchange.frame) <= len(TEXT) + 18
    assert exchange.accepted[0] <= 4 + 2 * len(unsure)


def test_the_command_asks_over_a_link(
    edge: EdgeRuntime, gateway: tuple[Reader, int], capsys: pytest.CaptureFixture[str]
) -> None:
    reader, port = gateway
    command = ["--link", f"udp:127.0.0.1:{port}", "--edge", str(TINY_BUNDLE), "--variant", "fp32", "--json"]
    assert ask.main([*command, "--schema", str(TRIAGE), "Help."]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)["choices"]
    (asked,) = reader.asked
    assert [at for at, choice in enumerate(found) if choice["source"] != DEVICE] == asked[2]
    assert "frame" in said.err
    assert ask.main([*command, "--schema", str(TRIAGE)]) == 2


def test_a_form_that_the_gateway_lacks_is_refused(edge: EdgeRuntime, gateway: tuple[Reader, int]) -> None:
    other = Form.of({"properties": {"a": {"type": "boolean"}}})
    with UdpLink("127.0.0.1", gateway[1]) as device, pytest.raises(CloudUnavailableError):
        LinkDecider(LinkCloud(device, RetryBudget(service=0.2)), edge).decide(other, TEXT, [0])
    assert not gateway[0].asked


@given(st.text(max_size=40), st.sets(st.integers(0, len(FORM.slots) - 1), min_size=1))
def test_what_is_asked_is_read(text: str, asked: set[int]) -> None:
    written, sent = decision_text(FORM, text, sorted(asked))
    assert decision_of(written) == (FORM.name, sorted(asked), sent)
    assert decision_of(text[1:]) is None or text.startswith("\x1c")


def test_a_source_of_forms_refuses_others_and_leaves_questions_to_the_next() -> None:
    source = FormSource({FORM.name: FORM}, Reader(), Nothing())
    for text in (f"\x1c{'0' * 8}1\x1cx", f"\x1c{FORM.name}0\x1cx", f"\x1c{FORM.name}ff\x1cx"):
        with pytest.raises(PayloadError):
            source.payloads(Question(1, text), 100)
    with pytest.raises(OversizedPayloadError):
        source.payloads(Question(1, decision_text(FORM, "x", range(6))[0]), 3)
    assert not list(source.payloads(Question(1, "Who?"), 100))


def test_a_folder_of_forms_is_read_and_an_empty_one_refused(tmp_path: Path) -> None:
    (tmp_path / "triage.json").write_text(TRIAGE.read_text())
    assert Form.in_folder(tmp_path) == {FORM.name: FORM}
    assert Form.in_folder(None) == {}
    with pytest.raises(FormError):
        Form.in_folder(tmp_path / "none")
