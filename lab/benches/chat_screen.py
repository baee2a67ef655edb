"""python -m lab.benches.chat_screen: a conversation of `edge_runtime.chat` as it looks, as an SVG.

Types lines into a chat with a service and draws what it prints, 80 columns wide, with its colours.
Responsible for the drawing. Not responsible for the chat (see `edge_runtime.chat`).
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from common.cli import CommandParser, run_command
from common.files import write_whole
from edge_runtime.assistant import Assistant
from edge_runtime.budget import DailyBudget, Limits
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.chat import Chat
from edge_runtime.client.client import Client
from edge_runtime.console import CLOUD, EDGE, RESET
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession

COLUMNS = 80
LINES = (
    "What is the capital of Japan?",
    "/why",
    "/new",
    "Repeat: Tokyo, Nairobi.",
    "/why",
)
BOLD = "\x1b[1m"
STYLES = {
    CLOUD: "fill:#56b6c2",
    EDGE: "fill:#e5c07b",
    BOLD: "fill:#ffffff;font-weight:bold",
    RESET: "fill:#abb2bf",
}
WIDTH, HEIGHT, MARGIN = 8.0, 18, 12
"""Pixels of a character, of a line, and around them."""


def printed(chat: Chat, lines: Sequence[str]) -> str:
    """What the chat prints when these lines are typed, with its colours."""
    out = io.StringIO()
    chat.colour = True
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for line in lines:
            print(f"{BOLD}> {line}{RESET}")
            chat.do(line)
    return out.getvalue()


def wrapped(text: str) -> Iterator[list[tuple[str, str]]]:
    """Rows of at most `COLUMNS` characters: runs of text with their style."""
    style = RESET
    for line in text.rstrip("\n").split("\n"):
        row: list[tuple[str, str]] = []
        used = 0
        for part in re.split("(\x1b\\[\\d+m)", line):
            if part in STYLES:
                style = part
                continue
            while part:
                piece, part = part[: COLUMNS - used], part[COLUMNS - used :]
                row.append((piece, style))
                used += len(piece)
                if part:
                    yield row
                    row, used = [], 0
        yield row


def drawn(text: str) -> str:
    """The SVG of what was printed."""
    rows = list(wrapped(text))
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(rows) * HEIGHT + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="monospace" font-size="13.3">',
        f'<rect width="{width:.0f}" height="{height}" rx="6" fill="#21252b"/>',
    ]
    for number, row in enumerate(rows):
        at = 0
        spans = []
        for piece, style in row:
            spans.append(
                f'<tspan x="{MARGIN + at * WIDTH:g}" textLength="{len(piece) * WIDTH:g}" '
                f'style="{STYLES[style]}">{escape(piece)}</tspan>'
            )
            at += len(piece)
        if spans:
            y = MARGIN + number * HEIGHT + 13
            lines.append(f'<text y="{y}" xml:space="preserve">{"".join(spans)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.chat_screen",
        description="Draw a conversation of edge_runtime.chat with a service.",
        epilog="example:\n  python -m cloud_anchor.serve --model testbed --port 8080 &\n"
        "  python -m lab.benches.chat_screen http://localhost:8080 -o edge_runtime/chat.svg",
    )
    parser.add_argument("url", help="the service")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--edge", default="testbed-qwen", help="the bundle (testbed-qwen)")
    parser.add_argument("--state", type=Path, default=Path("runs/chat_screen"), help="folder of the budget")
    parser.add_argument("--line", action="append", help="to be typed, in place of the script; several")
    args = parser.parse_args(argv)

    def run() -> None:
        edge = EdgeRuntime.open(find_bundles("", args.edge)[0])
        daily = DailyBudget(args.state, Limits(requests=50))
        assistant = Assistant(EdgeSession(edge), Client(args.url, timeout=120), daily=daily)
        write_whole(args.output, drawn(printed(Chat(assistant, None), args.line or LINES)).encode())

    return run_command("chat_screen", run)


if __name__ == "__main__":
    sys.exit(main())
