"""Output of an answer on the command line: streamed text, colours, figures, JSON.

Responsible for terminals and for the JSON of an answer. Not responsible for making tokens.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import Source, Token, agreement
from edge_runtime.decode.refine import Retract
from edge_runtime.system import peak_rss_bytes
from edge_runtime.text.tokenizer import TextStream

CLOUD, EDGE, RESET = "\x1b[36m", "\x1b[33m", "\x1b[0m"
"""Cyan for anchors, yellow for the device's tokens."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


Part = tuple[str, Source | None]
"""Text, and where it is from: None for words about the answer."""


class TokenPrinter:
    """Writes text to a stream token by token, with `colour` in one colour per source."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._terminal = out.isatty()
        self._current = ""
        self._in_line = False
        self._shown: list[str] = []

    def write(self, text: str, source: Source | None) -> None:
        """Writes text; source: None for words about the answer."""
        if not text:
            return
        if self._terminal:
            # Anchors are untrusted: their text must not send control sequences to this terminal.
            text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
            self._shown.append(text)
        wanted = RESET if source is None else CLOUD if source is Source.ANCHOR else EDGE
        if self._colour and wanted != self._current:
            self._out.write(wanted)
            self._current = wanted
        self._out.write(text)
        self._in_line = not text.endswith("\n")
        self._out.flush()

    def rewrite(self, parts: Sequence[Part]) -> None:
        """Replaces the text shown on a terminal; where its start has scrolled away, writes below it."""
        columns, lines = os.get_terminal_size(self._out.fileno())
        up = rows("".join(self._shown), columns) - 1
        if up < lines:
            self._out.write((f"\x1b[{up}A" if up else "") + "\r\x1b[J")
        else:
            self._out.write("\n")
        self._shown.clear()
        for text, source in parts:
            self.write(text, source)
        self._out.flush()

    def close(self) -> None:
        """Resets the colour and ends the line, into a pipe only one that has begun."""
        self._out.write((RESET if self._current else "") + "\n" * (self._terminal or self._in_line))
        self._out.flush()


def rows(text: str, columns: int) -> int:
    """Number of terminal rows of a text that starts in the first column."""
    return sum(max(1, -(-width(line) // max(columns, 1))) for line in text.split("\n"))


def width(line: str) -> int:
    """Number of terminal columns of a line: two for wide characters, none for combining ones."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in line)
    joined = sum(unicodedata.category(each) in ("Mn", "Me", "Cf") for each in line)
    return len(line.expandtabs(8)) + wide - joined


class Transcript:
    """The tokens and the text of an answer so far, printed as it grows and is retracted.

    live: print each token as it comes, instead of all at the end. words: before the answer, as they are now.
    """

    def __init__(
        self,
        decoder: Callable[[], TextStream],
        printer: TokenPrinter | None,
        live: bool,
        words: Callable[[], str] = str,
    ) -> None:
        self.tokens: list[Token] = []
        self._decoder, self._printer, self._live, self._words = decoder, printer, live, words
        self._stream = decoder()
        self._parts: list[Part] = []
        self._shown: list[Part] = []

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self._parts)

    def add(self, item: Token | Retract) -> None:
        if isinstance(item, Retract):
            tokens = self.tokens[: item.position]
            self.tokens, self._parts, self._stream = [], [], self._decoder()
            for token in tokens:
                self._push(token)
        else:
            self._push(item)
        if self._live:
            self._show()

    def _push(self, token: Token) -> None:
        self.tokens.append(token)
        self._parts.append((self._stream.push(token.id), token.source))

    def finish(self) -> None:
        """Flushes the text of a complete answer."""
        if self.tokens:
            self._parts.append((self._stream.flush(), self.tokens[-1].source))
        self._show()

    def _show(self) -> None:
        """Prints what is not shown yet, and all anew where that does not continue what is."""
        if not self._printer:
            return
        parts, shown = [(self._words(), None), *self._parts], self._shown
        if parts[: len(shown)] == shown:
            for part in parts[len(shown) :]:
                self._printer.write(*part)
        else:
            self._printer.rewrite(parts)
        self._shown = parts


def lead(answer: Answer[Token | Retract]) -> str:
    """The words before an answer that is not what was asked for; empty before another."""
    if answer.alone:
        return "This device alone: "
    return "The cloud is not sure: " if answer.not_sure else ""


def answer_json(transcript: Transcript, answer: Answer[Token | Retract], *, load: float) -> dict[str, Any]:
    """The object that `--json` prints for a finished answer. load: seconds before the first token was
    requested.
    """
    stats = answer.stats
    result: dict[str, Any] = {
        "text": transcript.text,
        "tokens": [
            {"id": t.id, "position": t.position, "source": str(t.source), "logprob": t.logprob}
            for t in transcript.tokens
        ],
        "passes": stats.passes,
        "anchors": len(answer.anchors),
        "doubt": answer.doubt,
        "not_sure": answer.not_sure,
        "alone": answer.alone,
        "prompt_tokens": len(answer.prompt_ids),
        "seconds": {"load": load, "prefill": stats.prefill, "fill": stats.fill},
        "peak_rss_bytes": peak_rss_bytes(),
    }
    for name in ("realigned", "dropped", "forced"):
        if (count := getattr(stats, name)) is not None:
            result[name] = count
    if answer.service:
        service = answer.service
        result["service"] = {
            "payload_bytes": service.payload_bytes,
            "fell_back": service.fell_back,
            "trouble": service.failure,
        }
    return result


def doubt_line(value: float | None, not_sure_from: float | None) -> str:
    """An answer's doubt in words, and what the bundle's threshold says of it."""
    if value is None:
        return "unknown: the payload does not say how sure the cloud is"
    verdict = ""
    if not_sure_from is not None:
        verdict = f"{'not sure' if value >= not_sure_from else 'sure'}, {not_sure_from:g} is the limit; "
    return f"{value:.2f} ({verdict}one minus the cloud's mean probability of its tokens)"


def summary(
    transcript: Transcript, answer: Answer[Token | Retract], *, load: float, not_sure_from: float | None
) -> str:
    """The figures of a finished answer, in a few lines for people."""
    tokens, stats, service = transcript.tokens, answer.stats, answer.service
    early = sum(
        t.source is Source.FILL and answer.anchors.by_position.get(t.position) == t.id for t in tokens
    )
    anchored = sum(t.source is Source.ANCHOR for t in tokens) + early
    before = f" ({early} of them written here before they came)" if early else ""
    agreed = agreement(tokens)
    spent = stats.prefill + stats.fill
    grammar = []
    if stats.forced is not None:
        grammar = [
            f"grammar    {stats.forced} tokens forced; of {len(answer.anchors)} anchors {stats.realigned} "
            f"realigned, {stats.dropped} dropped"
        ]
    sizes = " and ".join(map(str, service.payload_bytes)) if service else ""
    lines = [f"service    {f'payloads of {sizes} bytes' if sizes else 'no payload'}"] if service else []
    lines += [
        f"tokens     {len(tokens)}: {anchored} from the cloud{before}, {len(tokens) - anchored} from the "
        f"edge; ended by {stats.stop or 'interruption'}",
        *grammar,
        f"passes     {stats.passes} ({stats.passes / max(len(tokens), 1):.2f} a token); "
        f"prompt {len(answer.prompt_ids)} tokens, {stats.reused} of them cached",
        f"seconds    load {load:.2f}, prefill {stats.prefill:.3f}, fill {stats.fill:.3f} "
        f"({len(tokens) / max(spent, 1e-9):.0f} tokens a second)",
        f"agreement  {'not scored' if agreed is None else format(agreed, '.2f')} "
        "(the edge's mean probability of the cloud's tokens)",
        f"doubt      {doubt_line(answer.doubt, not_sure_from)}",
        f"memory     {peak_rss_bytes() / 1e6:.0f} MB at its peak",
    ]
    return "\n".join(lines)
