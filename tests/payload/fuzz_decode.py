"""Feeds hostile bytes to `decode` and `peek`: nothing but a PayloadError may come out, in bounded time.

    python tests/payload/fuzz_decode.py --executions 10000000
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "vectors")]

from payload import Base, Codec, PayloadError, Shared, decode, peek  # noqa: E402
from payload.header import seal  # noqa: E402
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


def loop(executions: int, seconds: float, seed: int, keep: Path | None) -> int:
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
        if number % 10_000 == 0:
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
        atheris.Setup(sys.argv, one)
        atheris.Fuzz()
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for the slowest input")
    args = parser.parse_args()
    try:
        return loop(args.executions, args.seconds, args.seed, args.keep)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
