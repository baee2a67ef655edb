"""An answer in plain text, for a peer that has no model: as messages that fit the link.

Responsible for where the text is broken. Not responsible for who is answered (see `gateway.answering`).
"""

from __future__ import annotations

MOST_MESSAGES = 12
"""Of an answer; at some seconds of airtime each, more would take the channel from everybody else."""
ENDS = "…"


def messages(text: str, room: int) -> list[bytes]:
    """The text in UTF-8, in messages of at most `room` bytes (8 or more), broken at white space where there
    is some. What is behind MOST_MESSAGES is left out, and an ellipsis says so.
    """
    found: list[bytes] = []
    text = text.encode(errors="replace").decode().strip()
    while text:
        last = len(found) == MOST_MESSAGES - 1
        part = text
        if len(text.encode()) > room:
            # A character that does not fit as a whole is not in it.
            part = text.encode()[: room - len(ENDS.encode()) * last].decode(errors="ignore")
            whole = max(part.rfind(" "), part.rfind("\n"))
            part = part[:whole] if whole > 0 and not text[len(part)].isspace() else part
        text = text[len(part) :].lstrip()
        found.append((part.rstrip() + ENDS * bool(last and text)).encode())
        if last:
            break
    return found
