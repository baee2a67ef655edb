"""`python -m links.inspect`: what a frame says, and the payload inside, as text or JSON.

Responsible for what can be read without a tokenizer: a question's head, and its text where that is UTF-8; an
answer's payload as `payload.inspect` describes it; a refusal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from common.cli import CommandParser, run_command
from links.frames import (
    AnswerFrame,
    Challenge,
    FrameKind,
    decode_question,
    decode_reply,
    peek_frame,
    peek_question,
    split_cookie,
)
from payload.files import read_payload
from payload.inspect import InspectArguments, describe, shared_of, show
from payload.shared import Shared

EPILOG = """examples:
  python -m links.inspect frame.bin
  python -m links.inspect frame.bin --contract bundle.json --prompt-ids 785,3974,13876 --json
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m links.inspect",
        description="What a frame says, and the payload inside.",
        epilog=EPILOG,
    )
    parser.declare(InspectArguments)
    args = parser.parse(InspectArguments, argv)
    return run_command("links inspect", lambda: _run(args))


def _run(args: InspectArguments) -> None:
    data, shared = read_payload(args.file), shared_of(args)
    report, inside = describe_frame(data, shared)
    show(report if inside is None else report | describe(inside, shared), args.json)


def describe_frame(data: bytes, shared: Shared | None) -> tuple[dict[str, Any], bytes | None]:
    """What a frame says, and the payload inside, if any."""
    head = peek_frame(data)
    report: dict[str, Any] = {"frame": head.kind.label, "request_id": head.id, "frame_bytes": len(data)}
    data, cookie = split_cookie(data)
    if cookie:
        head = peek_frame(data)
        report |= {"cookie": cookie.hex(), "question": head.kind.label}
    if head.kind.is_question:
        asked = peek_question(data, shared)
        predictive = asked.kind is FrameKind.QUESTION_PREDICTIVE
        report |= {
            "model_tag" if predictive else "contract_tag": asked.tag,
            "verified": asked.verified,
            "text_bytes": asked.body_bytes,
            "fraction": asked.fraction,
            "steps": asked.steps,
            "room": asked.room,
            "predictive": asked.predictive,
        }
        if asked.kind is FrameKind.QUESTION_UTF8 and shared is not None:
            report["text"] = decode_question(data, shared).text
        return report, None
    reply = decode_reply(data)
    if isinstance(reply, AnswerFrame):
        return report | {"part": reply.part, "last": reply.last}, reply.payload
    if isinstance(reply, Challenge):
        return report | {"cookie": reply.cookie.hex()}, None
    return report | {
        "refusal": reply.code.name.lower().replace("_", "-"),
        "retry_after": reply.retry_after,
        "identity": reply.identity,
    }, None


if __name__ == "__main__":
    sys.exit(main())
