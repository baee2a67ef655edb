"""The drawing of a chat: every character that was printed, at its column, in its colour."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from edge_runtime.assistant import Assistant
from edge_runtime.chat import Chat
from edge_runtime.console import CLOUD, EDGE, RESET
from edge_runtime.session import EdgeSession
from lab.benches.chat_screen import COLUMNS, STYLES, drawn, printed, wrapped
from tests.edge_runtime.test_session import runtime


def test_every_character_is_drawn_within_80_columns() -> None:
    text = f"{CLOUD}a<&{EDGE}{'x' * 200}{RESET}\n\nend\n"
    rows = list(wrapped(text))
    assert [len("".join(piece for piece, _ in row)) for row in rows] == [80, 80, 43, 0, 3]
    root = ElementTree.fromstring(drawn(text))
    spans = list(root.iter("{http://www.w3.org/2000/svg}tspan"))
    assert "".join(span.text or "" for span in spans) == re.sub("\x1b\\[\\d+m|\n", "", text)
    assert [span.get("style") for span in spans[:2]] == [STYLES[CLOUD], STYLES[EDGE]]


def test_what_is_typed_and_what_is_answered() -> None:
    edge, _ = runtime()
    chat = Chat(Assistant(EdgeSession(edge)), 6)
    said = printed(chat, ["Why?", "/why", "/mode"])
    assert "> Why?" in said
    assert f"{chat.assistant.session.messages[1].content}" in re.sub("\x1b\\[\\d+m", "", said)
    assert "asked    nothing" in said
    assert said.endswith("only_on_device\n")
    assert all(len(line) <= COLUMNS for line in re.sub("\x1b\\[\\d+m", "", said).splitlines())
