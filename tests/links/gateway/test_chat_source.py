"""A gateway that asks a chat server: one process at the radio, and the whole text on the device."""

from __future__ import annotations

import threading

import pytest

from edge_runtime.client.chat_server import ChatServer
from edge_runtime.errors import CloudUnavailableError, UsageError
from edge_runtime.finished import chain_of, payload_of
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import ONLY_IN_CLOUD, EdgeSession
from links import open_link
from links.asking import LinkCloud
from links.frames.question import Question
from links.gateway.answering import Gateway, serve_link
from links.gateway.service import ChatSource
from links.kinds.udp import UdpLink
from payload import Base, Codec, Shared, decode
from tests.edge_runtime.client.chat_servers import chat_server, fails, says
from tests.shipped import TINY_BUNDLE

TEXT = "The river ends in the valley, where the town of stone is. It is old, and small."
PROMPT = "Where does the river end?"


@pytest.fixture(scope="module")
def edge() -> EdgeRuntime:
    return EdgeRuntime.open(TINY_BUNDLE, "fp32", threads=1)


@pytest.mark.parametrize("codec", [Codec.COMPACT, Codec.PREDICTIVE])
@pytest.mark.parametrize("room", [24, 40, 400])
def test_a_chain_holds_the_text_and_each_part_is_of_use_alone(
    edge: EdgeRuntime, room: int, codec: Codec
) -> None:
    ids = edge.prompt_ids(PROMPT)
    shared = Shared(
        edge.bundle.contract, ids, predictor=edge.predictor(ids) if codec is Codec.PREDICTIVE else None
    )
    base, parts = None, list(chain_of(edge, TEXT, PROMPT, room, codec))
    seen = 0
    for number, (data, delta, last) in enumerate(parts):
        assert len(data) <= room
        assert delta == (number > 0)
        assert last == (number == len(parts) - 1)
        anchors = decode(data, Shared(shared.contract, ids, predictor=shared.predictor, base=base))
        assert len(anchors) > seen
        assert anchors.positions == tuple(range(len(anchors)))
        seen, base = len(anchors), Base(data, anchors)
    assert edge.bundle.tokenizer.decode(anchors.ids) == TEXT
    assert anchors.length == len(anchors)
    if len(parts) == 1:
        assert parts[0][0] == payload_of(edge, TEXT, PROMPT, codec)
    else:
        assert room < 400


def test_a_frame_too_small_for_a_token_is_refused(edge: EdgeRuntime) -> None:
    with pytest.raises(UsageError):
        list(chain_of(edge, TEXT, PROMPT, 5, Codec.COMPACT))


def test_a_question_over_udp_gets_the_text_of_the_server(edge: EdgeRuntime) -> None:
    stop = threading.Event()
    with (
        chat_server(says(["<think>Hm.</think>", TEXT[:20], TEXT[20:]])) as (address, asked),
        open_link("udp-listen:0") as link,
    ):
        source = ChatSource(ChatServer.open(address, "any"), edge)
        gateway = Gateway(
            link, edge.question_context(), source, lambda job: threading.Thread(target=job).start()
        )
        thread = threading.Thread(target=serve_link, args=(gateway, stop.is_set), daemon=True)
        thread.start()
        try:
            port = link._socket.getsockname()[1]  # type: ignore[attr-defined]
            with UdpLink("127.0.0.1", port) as device:
                session = EdgeSession(edge)
                answer = session.ask(PROMPT, cloud=LinkCloud(device), mode=ONLY_IN_CLOUD)
                list(answer)
        finally:
            stop.set()
            thread.join(10)
    assert edge.bundle.tokenizer.decode([token.id for token in answer.tokens]) == TEXT
    assert asked[0]["messages"] == [{"role": "user", "content": PROMPT}]


def test_an_empty_answer_and_a_broken_server_are_failures(edge: EdgeRuntime) -> None:
    for behaviour in (says([" "]), says(["<think>only"]), fails(400, b"no", "text/plain")):
        with chat_server(behaviour) as (address, _), pytest.raises(CloudUnavailableError):
            list(ChatSource(ChatServer.open(address, "any"), edge).payloads(Question(1, PROMPT), 100))
