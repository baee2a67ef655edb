"""What the command line shows of a stream of tokens: text as it comes, colours, figures.

Knows terminals and the JSON of an answer. Does not know how tokens are made.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from edge_runtime.decode.forced import FillStats, Source, Token, agreement
from edge_runtime.decode.refine import Retract
from edge_runtime.system import peak_rss_bytes
from edge_runtime.text.tokenizer import TextStream

CLOUD, EDGE, RESET = "\x1b[36m", "\x1b[33m", "\x1b[0m"
"""Cyan for anchors, yellow for what the device wrote."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TokenPrinter:
    """Writes text to a stream as its tokens come, in a colour for each source where `colour` is set."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._colour = colour
        self._terminal = out.isatty()
        self._current = ""
        self._shown: list[str] = []

    def write(self, text: str, source: Source) -> None:
        if not text:
            return
        if self._terminal:
            # Anchors come from elsewhere: their text must not be able to command this terminal.
            text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
            self._shown.append(text)
        wanted = CLOUD if source is Source.ANCHOR else EDGE
        if self._colour and wanted != self._current:
            self._out.write(wanted)
            self._current = wanted
        self._out.write(text)
        self._out.flush()

    def rewrite(self, parts: Sequence[tuple[str, Source]]) -> None:
        """Puts other text in the place of what a terminal shows; where that has scrolled away, below it."""
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
        """Ends the colour, and on a terminal the line."""
        self._out.write((RESET if self._current else "") + ("\n" if self._terminal else ""))
        self._out.flush()


def rows(text: str, columns: int) -> int:
    """Rows of a terminal that a text takes, from the first column on."""
    return sum(max(1, -(-width(line) // max(columns, 1))) for line in text.split("\n"))


def width(line: str) -> int:
    """Columns of a line: two for wide characters, none for those that join the one before."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in line)
    joined = sum(unicodedata.category(each) in ("Mn", "Me", "Cf") for each in line)
    return len(line.expandtabs(8)) + wide - joined


class Transcript:
    """An answer as it grows and is taken back: its tokens, its text, and what of it a printer shows.

    live: print each token as it comes, rather than all at the end.
    """

    def __init__(self, decoder: Callable[[], TextStream], printer: TokenPrinter | None, live: bool) -> None:
        self.tokens: list[Token] = []
        self._decoder, self._printer, self._live = decoder, printer, live
        self._stream = decoder()
        self._parts: list[tuple[str, Source]] = []

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self._parts)

    def take(self, item: Token | Retract) -> None:
        if isinstance(item, Retract):
            tokens = self.tokens[: item.position]
            self.tokens, self._parts, self._stream = [], [], self._decoder()
            for token in tokens:
                self._push(token)
            if self._printer and self._live:
                self._printer.rewrite(self._parts)
            return
        self._push(item)
        if self._printer and self._live:
            self._printer.write(*self._parts[-1])

    def _push(self, token: Token) -> None:
        self.tokens.append(token)
        self._parts.append((self._stream.push(token.id), token.source))

    def finish(self) -> None:
        """The answer is complete."""
        if self.tokens:
            self._parts.append((self._stream.flush(), self.tokens[-1].source))
        if self._printer:
            for part in self._parts[-1:] if self._live else self._parts:
                self._printer.write(*part)


def answer_json(
    text: str, tokens: Sequence[Token], stats: FillStats, *, anchors: int, prompt_tokens: int, load: float
) -> dict[str, Any]:
    """What `--json` prints; anchors counts those of the payload, seconds are wall time."""
    return {
        "text": text,
        "tokens": [
            {"id": t.id, "position": t.position, "source": str(t.source), "logprob": t.logprob}
            for t in tokens
        ],
        "passes": stats.passes,
        "anchors": anchors,
        "prompt_tokens": prompt_tokens,
        "seconds": {"load": load, "prefill": stats.prefill, "fill": stats.fill},
        "peak_rss_bytes": peak_rss_bytes(),
    }


def summary(tokens: Sequence[Token], stats: FillStats, *, prompt_tokens: int, load: float) -> str:
    """The figures of an answer, in a few lines for people."""
    anchored = sum(t.source is Source.ANCHOR for t in tokens)
    agreed = agreement(tokens)
    spent = stats.prefill + stats.fill
    lines = [
        f"tokens     {len(tokens)}: {anchored} from the cloud, {len(tokens) - anchored} from the edge; "
        f"ended by {stats.stop or 'interruption'}",
        f"passes     {stats.passes} ({stats.passes / max(len(tokens), 1):.2f} a token); "
        + (f"{stats.accepted} of {stats.drafted} guesses right; " if stats.drafted else "")
        + f"prompt {prompt_tokens} tokens, {stats.reused} of them cached",
        f"seconds    load {load:.2f}, prefill {stats.prefill:.3f}, fill {stats.fill:.3f} "
        f"({len(tokens) / max(spent, 1e-9):.0f} tokens a second)",
        f"agreement  {'not scored' if agreed is None else format(agreed, '.2f')} "
        "(the edge's mean probability of the cloud's tokens)",
        f"memory     {peak_rss_bytes() / 1e6:.0f} MB at its peak",
    ]
    return "\n".join(lines)
