"""Text, colours and corrections on a terminal."""

from __future__ import annotations

import io
import os
from typing import Any, cast

import pytest

from edge_runtime.console import TokenPrinter, Transcript, rows
from edge_runtime.decode.forced import Source, Token
from edge_runtime.decode.refine import Retract


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def test_text_from_elsewhere_cannot_command_a_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for out in (terminal, pipe):
        printer = TokenPrinter(out, colour=False)
        printer.write("a\x1b[2J\x9b\tb\n", Source.ANCHOR)
        printer.close()
    assert terminal.getvalue() == "a\ufffd[2J\ufffd\tb\n\n"
    assert pipe.getvalue() == "a\x1b[2J\x9b\tb\n"


def test_a_colour_starts_where_the_source_changes() -> None:
    out = Terminal()
    printer = TokenPrinter(out, colour=True)
    for text, source in (("a", Source.ANCHOR), ("b", Source.ANCHOR), ("", Source.FILL), ("c", Source.FILL)):
        printer.write(text, source)
    printer.close()
    assert out.getvalue() == "\x1b[36mab\x1b[33mc\x1b[0m\n"


class Letters:
    """A decoder whose ids are letters."""

    def push(self, id_: int) -> str:
        return chr(id_)

    def flush(self) -> str:
        return ""


def letters(text: str, source: Source = Source.FILL, start: int = 0) -> list[Token]:
    return [Token(ord(letter), start + i, source, None) for i, letter in enumerate(text)]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("", 10, 1),
        ("0123456789", 10, 1),
        ("0123456789a", 10, 2),
        ("a\nb\n", 10, 3),
        ("中文字", 4, 2),
        ("é" * 10, 10, 1),
        ("\tx", 8, 2),
        ("abc", 0, 3),
    ],
)
def test_rows_of_a_terminal(text: str, columns: int, expected: int) -> None:
    assert rows(text, columns) == expected


def test_what_is_taken_back_is_erased_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((4, 24)))
    transcript = Transcript(cast(Any, Letters), TokenPrinter(out, colour=False), live=True)
    for token in letters("abcdef"):
        transcript.add(token)
    transcript.add(Retract(2))
    transcript.add(letters("X", Source.ANCHOR, 2)[0])
    transcript.finish()
    assert out.getvalue() == "abcdef\x1b[1A\r\x1b[Jab" + "X"
    assert transcript.text == "abX"
    assert [token.position for token in transcript.tokens] == [0, 1, 2]


def test_what_has_scrolled_away_is_written_again_below(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((2, 3)))
    transcript = Transcript(cast(Any, Letters), TokenPrinter(out, colour=False), live=True)
    for item in (*letters("abcdefgh"), Retract(1)):
        transcript.add(item)
    assert out.getvalue() == "abcdefgh\na"


def test_words_about_an_answer_come_before_it_though_they_are_known_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, words = Terminal(), iter(["", "", "? ", "? ", "? "])
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((80, 24)))
    transcript = Transcript(cast(Any, Letters), TokenPrinter(out, colour=False), True, lambda: next(words))
    for token in letters("abcd"):
        transcript.add(token)
    transcript.finish()
    assert out.getvalue() == "ab\r\x1b[J? abcd"
    assert transcript.text == "abcd"


def test_where_nothing_can_be_erased_only_the_end_is_shown() -> None:
    out = io.StringIO()
    transcript = Transcript(cast(Any, Letters), TokenPrinter(out, colour=False), live=False)
    for item in (*letters("abc"), Retract(0), *letters("xyz")):
        transcript.add(item)
    assert out.getvalue() == ""
    transcript.finish()
    assert out.getvalue() == "xyz"
