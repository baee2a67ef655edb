"""Feeds hostile bytes to the readers of payloads or of frames: nothing but a PayloadError may come out, in
bounded time.

    python tests/payload/fuzz_decode.py --executions 10000000
    python tests/payload/fuzz_decode.py --frames --seconds 3600
    python tests/payload/fuzz_decode.py --atheris -max_total_time=3600      (needs the package atheris)

Half of the inputs are raw; the other half are sealed, with the check made right, so that the codecs behind it
are reached. Inputs are mutations of the test vectors. The slowest is kept in --keep, to be put into
tests/payload/hostile by hand.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "vectors")]

from links.frames import AnswerFrame, FrameKind, Question, decode_question, decode_reply, split_cookie  # noqa: E402
from links.frames.question import seal_question  # noqa: E402
from payload import Base, Codec, PayloadError, Shared, decode, peek  # noqa: E402
from payload.header import crc16, seal  # noqa: E402
from tests.vectors.toy_vocabulary import ToyTokens, contract  # noqa: E402

TOY = contract()
QWEN = contract(151_643, "c")
TOKENS = ToyTokens()
PROMPT = [3838, 374, 279, 6722, 315, 9625, 30]
SLOW = 0.05


def one(data: bytes) -> None:
    """Run one input. The first byte says how to use the rest; anything but a PayloadError escapes."""
    if not data:
        return
    how, data = data[0], data[1:]
    reader = QWEN if how & 1 else TOY
    prompt = PROMPT if how & 2 else None
    try:
        if how & 4:
            flags, codec = data[:1] or b"\0", Codec((how >> 3) % 3)
            extras = bytes([flags[0] % 15 + 1]) if how & 64 else b""
            compact = codec is Codec.COMPACT
            base = None
            if how & 128 and compact:
                known = decode(seal(reader, codec, b"\x12\x34\x56\x78"), Shared(reader))
                base = Base(b"base", known)
            data = seal(reader, codec, data[1:], extras, prompt_ids=prompt if compact else None, base=base)
            peek(data)
            decode(data, Shared(reader, prompt, TOKENS, base))
        else:
            peek(data)
            decode(data, Shared(reader, prompt, TOKENS))
    except PayloadError:
        pass


def seeds() -> list[bytes]:
    """Payloads of the vectors, and their bodies to be sealed again."""
    rows = json.loads((HERE.parent / "vectors" / "payload_vectors.json").read_text())["vectors"]
    raw = [bytes.fromhex(row["payload"]) for row in rows]
    out = [b"\0" + data for data in raw]
    for data in raw:
        if len(data) > 4:
            out.append(bytes([4 | (data[0] >> 3 & 3) << 3 | (data[0] & 1) << 6]) + data[4:])
    return out


class TableModel:
    """A quick `payload.Predictor`: sixteen rows, by the length of the text."""

    identity = b"t" * 32
    prompt_ids: Sequence[int] = (1, 2)

    def __init__(self) -> None:
        rows = np.random.default_rng(1).normal(0, 3, (16, TOY.vocab_size + 1))
        self._rows = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)

    def read(self, text: Sequence[int], start: int) -> Iterator[np.ndarray]:
        return (self._rows[position % 16] for position in range(start, len(text) + 1))


ASKED = Shared(TOY, PROMPT, TOKENS, predictor=None)
MODELLED = Shared(TOY, tokens=TOKENS, predictor=TableModel())


def one_frame(data: bytes) -> None:
    """Run one input as a frame. The first byte says how; anything but a PayloadError escapes."""
    if not data:
        return
    how, data = data[0], data[1:]
    try:
        if how & 1:
            # A question whose check holds: its fields and its text are reached.
            kind = FrameKind((how >> 1) % 3)
            frame = bytearray(seal_question(Question(1, "a"), kind, MODELLED, data[1:], data[:1]))
            flags = how >> 5
            check = int.from_bytes(frame[4:6], "big") ^ crc16(bytes(frame[:4] + frame[6:]))
            frame[0] |= flags
            frame[4:6] = (check ^ crc16(bytes(frame[:4] + frame[6:]))).to_bytes(2, "big")
            decode_question(bytes(frame), MODELLED)
        elif how & 2:
            # A refusal whose check holds.
            head = bytes([FrameKind.REFUSAL << 3 | how >> 5, 0, 1])
            decode_reply(head + crc16(head + data).to_bytes(2, "big") + data)
        elif how & 4:
            decode_question(data, MODELLED)
        else:
            split_cookie(data)
            reply = decode_reply(data)
            if isinstance(reply, AnswerFrame):
                decode(reply.payload, ASKED)
    except PayloadError:
        pass


def frame_seeds() -> list[bytes]:
    """Frames of the vectors, as they are and as texts and details to be sealed again."""
    rows = json.loads((HERE.parent / "vectors" / "frame_vectors.json").read_text())["vectors"]
    raw = [bytes.fromhex(row["frame"]) for row in rows]
    out = [bytes([how]) + data for data in raw for how in (0, 4)]
    for data in raw:
        out += [bytes([flags << 5 | kind << 1 | 1]) + data[6:] for kind in range(3) for flags in (0, 6)]
        out.append(bytes([(data[:1] or b"\0")[0] << 5 & 0xE0 | 2]) + data[5:])
    return out


def mutate(luck: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(luck.choice((1, 1, 1, 2, 4, 8))):
        at = luck.randrange(len(out) + 1)
        kind = luck.randrange(6)
        if kind == 0 and out:
            out[min(at, len(out) - 1)] ^= 1 << luck.randrange(8)
        elif kind == 1:
            out[at:at] = luck.randbytes(luck.choice((1, 2, 8)))
        elif kind == 2:
            del out[at : at + luck.choice((1, 2, 8))]
        elif kind == 3 and out:
            out[min(at, len(out) - 1)] = luck.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 4:
            out += luck.choice((b"\0", b"\xff")) * luck.choice((1, 8, 64))
        else:
            out[at:] = luck.randbytes(luck.randrange(24))
    return bytes(out[:4096])


def loop(
    executions: int,
    seconds: float,
    seed: int,
    keep: Path | None,
    one: Callable[[bytes], None] = one,
    seeds: Callable[[], list[bytes]] = seeds,
) -> int:
    luck = random.Random(seed)
    pool = seeds()
    one(pool[0])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest, started = 0.0, time.monotonic()
    slow = 0
    for number in range(1, executions + 1):
        if time.monotonic() - started > seconds:
            break
        data = mutate(luck, luck.choice(pool))
        before = time.process_time()
        try:
            one(data)
        except Exception:
            print(f"\nexecution {number}: {data.hex()}", file=sys.stderr)
            raise
        took = time.process_time() - before
        slow += took > SLOW
        if took > slowest:
            slowest = took
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / "slowest.bin").write_bytes(data)
        if number % 1000 == 0 or number == executions:
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
            print(
                f"\r{number} executions, {number / (time.monotonic() - started):.0f} a second, slowest "
                f"{1000 * slowest:.1f} ms, over 50 ms: {slow}, grown {grown / 1024:.1f} MB",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    return 0


def main() -> int:
    if "--atheris" in sys.argv:
        import atheris

        sys.argv.remove("--atheris")
        atheris.instrument_all()
        frames = "--frames" in sys.argv
        sys.argv = [each for each in sys.argv if each != "--frames"]
        atheris.Setup(sys.argv, one_frame if frames else one)
        atheris.Fuzz()
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the slowest input")
    parser.add_argument("--frames", action="store_true", help="frames in place of payloads")
    args = parser.parse_args()
    readers = (one_frame, frame_seeds) if args.frames else (one, seeds)
    try:
        return loop(args.executions, args.seconds, args.seed, args.keep, *readers)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
