"""Bytes that are no payload: files of other kinds, told by how they begin, and text.

Responsible for never naming a payload so: one in 10^9 payloads at most would pass for one of these. Not
responsible for payloads of later versions.
"""

from __future__ import annotations

import re

_BEGINNINGS = {
    "a PNG image": rb"\x89PNG\r\n\x1a\n",
    "a JPEG image": rb"\xff\xd8\xff[\xc0-\xfe]",
    "a GIF image": rb"GIF8[79]a",
    "a WebP, WAV or AVI file": rb"RIFF.{4}(WEBP|WAVE|AVI )",
    "a ZIP archive": rb"PK\x03\x04[\x0a\x14\x2d\x33\x3f]\0",  # with the version that unpacks it
    "a bzip2 archive": rb"BZh[1-9]1AY&SY",
    "an XZ archive": rb"\xfd7zXZ\0",
    "a GGUF model": rb"GGUF[\1-\3]\0\0\0",
    "a program": rb"\x7fELF[\1\2][\1\2]",
}
# Text may begin as a payload does (@ to _): then the more of it. No byte of the first eight is a control
# character, as the flags of optional fields are, so a payload that carries its prompt as text is none.
_TEXT = rb"(?=[^@-_]|.{24})[^\0-\x1f\x7f]{8}[^\0-\x08\x0b\x0c\x0e-\x1f\x7f]*"


def foreign(data: bytes) -> str | None:
    """What these bytes are, with its article; None for what may be a payload, of this or a later version."""
    for name, beginning in _BEGINNINGS.items():
        if re.match(beginning, data, re.DOTALL):
            return name
    if re.fullmatch(_TEXT, data, re.DOTALL):
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        return "text"
    return None
