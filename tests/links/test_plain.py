"""Answers in plain text: what a message holds, and what is left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from links.plain import ENDS, MOST_MESSAGES, messages


@given(st.text(st.characters(codec="utf-8"), max_size=400), st.integers(8, 60))
def test_every_message_fits_and_together_they_are_the_text(text: str, room: int) -> None:
    found = messages(text, room)
    assert all(1 <= len(data) <= room for data in found)
    assert len(found) <= MOST_MESSAGES
    said = "".join("".join(data.decode().split()) for data in found)
    whole = "".join(text.split())
    assert said == whole or (len(found) == MOST_MESSAGES and whole.startswith(said.removesuffix(ENDS)))


def test_words_stay_whole() -> None:
    assert messages("One two three, four.", 8) == [b"One two", b"three,", b"four."]
    assert messages("Straßenbahn", 8) == ["Straßen".encode(), b"bahn"]
