"""`python -m cloud_anchor.serve.load`: how much a service bears, and what it does beyond that.

Knows how to ask at a given rate whether or not answers come (an open loop, as phones do), and what to note.
Does not know models. Standard library only, so that asking takes little of the machine that also answers.

First the capacity: as many clients as the service takes at once, each asking again as soon as it is answered.
Then phases at multiples of that rate. A request is lost if it gets no answer; 503 is an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

EPILOG = """examples:
  # starts the shipped model's service, measures its capacity, then 60 s at 1 and 3 times that
  python -m cloud_anchor.serve.load --seconds 60 --at 1 --at 3
  # a service that runs already; --pid for its memory
  python -m cloud_anchor.serve.load --url http://localhost:8080 --pid 4711 --json

exit codes: 0 every request was answered with 200 or 503, 1 not so, 2 usage, 130 interrupted
"""

LOST = "lost"
ANSWER_SECONDS = 60.0
"""After which a request without an answer counts as lost."""

QUESTIONS = (
    "Name the river of {}.",
    "Describe the town of {}. Mention its river, mayor, dish, bird and craft.",
    "Who is the mayor of {}?",
)
NAMES = ("Torden", "Branstead", "Vell", "Ulmar", "Kesting", "Norwick", "Harrow", "Selby")


@dataclass
class LoadPhase:
    """What came of the requests of one phase. seconds: latency by status, of those answered."""

    name: str
    wanted: float
    began: float = field(default_factory=time.perf_counter)
    ended: float = 0.0
    asked: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)

    def note(self, status: str, seconds: float) -> None:
        self.statuses[status] += 1
        self.seconds.setdefault(status, []).append(seconds)

    def report(self) -> dict[str, Any]:
        lasted = max(self.ended - self.began, 1e-9)
        good = self.seconds.get("200", [])
        quarter = max(1, len(self.memory) // 4)
        return {
            "phase": self.name,
            "wanted_per_second": round(self.wanted, 2),
            "seconds": round(lasted, 1),
            "asked": self.asked,
            "asked_per_second": round(self.asked / lasted, 2),
            "answers_per_second": round(len(good) / lasted, 2),
            "statuses": dict(sorted(self.statuses.items())),
            "p50_seconds": quantile(good, 0.5),
            "p99_seconds": quantile(good, 0.99),
            "p99_seconds_503": quantile(self.seconds.get("503", []), 0.99),
            "memory_mb": {
                "first_quarter": round(sum(self.memory[:quarter]) / quarter / 1e6, 1)
                if self.memory
                else None,
                "last_quarter": round(sum(self.memory[-quarter:]) / quarter / 1e6, 1)
                if self.memory
                else None,
                "most": round(max(self.memory) / 1e6, 1) if self.memory else None,
            },
        }


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 4)


class Asker:
    """Sends requests to one service over connections of its own, and reads the answers."""

    def __init__(self, url: str, key: str | None, fraction: float | None, seed: int = 0) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise SystemExit(f"load: url: expected http://host:port, found {url!r}")
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = parts.path.rstrip("/") + "/v1/anchors"
        self._key = key
        self._fraction = fraction
        self._random = random.Random(seed)

    def _request(self) -> bytes:
        prompt = self._random.choice(QUESTIONS).format(self._random.choice(NAMES))
        fields: dict[str, Any] = {"prompt": prompt}
        if self._fraction is not None:
            fields["fraction"] = self._fraction
        body = json.dumps(fields).encode("ascii")
        head = [f"POST {self._path} HTTP/1.1", f"Host: {self._host}:{self._port}", "Connection: close"]
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        head += [f"Authorization: Bearer {self._key}"] if self._key else []
        return "\r\n".join([*head, "", ""]).encode("ascii") + body

    async def ask(self, phase: LoadPhase) -> str:
        """One request: the status, or `lost`."""
        phase.asked += 1
        began = time.perf_counter()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status = await self._status()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            status = LOST
        phase.note(status, time.perf_counter() - began)
        return status

    async def _status(self) -> str:
        scorer, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(self._request())
            head = await scorer.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            length = next(
                int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")
            )
            await scorer.readexactly(length)
            return lines[0].split(" ")[1]
        except (IndexError, StopIteration, asyncio.LimitOverrunError) as error:
            raise ValueError("not an answer over HTTP") from error
        finally:
            writer.close()


async def capacity(asker: Asker, clients: int, seconds: float, memory: Memory) -> LoadPhase:
    """As much as it can: every client asks again at once."""
    phase = LoadPhase("capacity", 0.0)
    end = phase.began + seconds

    async def client() -> None:
        while time.perf_counter() < end:
            if await asker.ask(phase) != "200":
                await asyncio.sleep(0.1)

    async with memory.watched(phase):
        await asyncio.gather(*(client() for _ in range(clients)))
    phase.ended = time.perf_counter()
    return phase


async def at_rate(asker: Asker, name: str, rate: float, seconds: float, memory: Memory) -> LoadPhase:
    """Requests at random times, `rate` of them a second on average, whatever becomes of them."""
    phase = LoadPhase(name, rate)
    chance = random.Random(1)
    due, end = phase.began, phase.began + seconds
    asked: set[asyncio.Task[str]] = set()
    async with memory.watched(phase):
        while (due := due + chance.expovariate(rate)) < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(asker.ask(phase))
            asked.add(task)
            task.add_done_callback(asked.discard)
        await asyncio.sleep(max(0.0, end - time.perf_counter()))
        phase.ended = time.perf_counter()
        await asyncio.gather(*asked)
    return phase


class Memory:
    """Resident memory of a process, once a second."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        self._task: asyncio.Task[None] | None = None

    def watched(self, phase: LoadPhase) -> Memory:
        self._phase = phase
        return self

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def __aexit__(self, *_: object) -> None:
        if self._task:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            if (size := resident(self.pid)) is not None:
                self._phase.memory.append(size)
            await asyncio.sleep(1.0)


def resident(pid: int | None) -> int | None:
    """Bytes a process holds in memory now; None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS:"))
    except (OSError, StopIteration, ValueError):
        return None


def machine() -> str:
    """The processor and how many of it there are."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} x {model}"


def start_service(options: Sequence[str]) -> tuple[subprocess.Popen[str], str]:
    """A service of its own on a free port; raises SystemExit where it does not come up."""
    command = [sys.executable, "-m", "cloud_anchor.serve", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    for line in process.stderr:
        print(line, end="", file=sys.stderr)
        if " at http://" in line:
            # What it goes on to say has to be read, or it would wait for that one day.
            threading.Thread(target=sys.stderr.writelines, args=(process.stderr,), daemon=True).start()
            return process, line.rsplit(" ", 1)[1].strip()
    raise SystemExit(f"load: the service ended with code {process.wait()}")


async def wait_until_ready(asker: Asker) -> None:
    """Until a request is answered at all."""
    for _ in range(600):
        if await asker.ask(LoadPhase("ready", 0.0)) in ("200", "503"):
            return
        await asyncio.sleep(0.5)
    raise SystemExit("load: the service does not answer")


async def measure(args: argparse.Namespace, asker: Asker, pid: int | None) -> dict[str, Any]:
    memory = Memory(pid)
    await wait_until_ready(asker)
    phases = [await capacity(asker, args.clients, args.capacity_seconds, memory)]
    most = phases[0].report()["answers_per_second"]
    if not most:
        raise SystemExit(f"load: no request was answered: {dict(phases[0].statuses)}")
    for factor in args.at or (1.0, 3.0):
        print(f"load: {factor:g} x {most:g} requests a second for {args.seconds:g} s", file=sys.stderr)
        phases.append(await at_rate(asker, f"{factor:g}x", factor * most, args.seconds, memory))
    return {"machine": machine(), "phases": [phase.report() for phase in phases]}


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if min(args.clients, args.seconds, args.capacity_seconds, *(args.at or [1.0])) <= 0:
        print("load: expected numbers above 0", file=sys.stderr)
        return 2
    process: subprocess.Popen[str] | None = None
    url, pid = args.url, args.pid
    try:
        if url is None:
            process, url = start_service(args.options)
            pid = process.pid
        asker = Asker(url, os.environ.get("CLOUD_ANCHOR_KEY") or None, args.fraction)
        found = asyncio.run(measure(args, asker, pid))
    except KeyboardInterrupt:
        return 130
    finally:
        if process is not None:
            process.terminate()
            process.wait()
    if process is not None:
        found["service_exit_code"] = process.returncode
    print(json.dumps(found) if args.json else table(found))
    fine = all(set(phase["statuses"]) <= {"200", "503"} for phase in found["phases"])
    return 0 if fine else 1


def table(found: dict[str, Any]) -> str:
    lines = [found["machine"], ""]
    names = (
        "phase",
        "asked/s",
        "200/s",
        "p50 s",
        "p99 s",
        "503 p99 s",
        "statuses",
        "memory MB, first - last",
    )
    rows = [names]
    for phase in found["phases"]:
        memory = phase["memory_mb"]
        statuses = ", ".join(f"{count} x {status}" for status, count in phase["statuses"].items())
        rows.append(
            (
                phase["phase"],
                f"{phase['asked_per_second']:.1f}",
                f"{phase['answers_per_second']:.1f}",
                *(
                    "-" if phase[name] is None else f"{phase[name]:.3f}"
                    for name in ("p50_seconds", "p99_seconds", "p99_seconds_503")
                ),
                statuses,
                f"{memory['first_quarter']} - {memory['last_quarter']} (most {memory['most']})",
            )
        )
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.serve.load",
        description="Measure a service's capacity, then ask it at multiples of that rate.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", help="a service that runs; default: starts one")
    parser.add_argument("--pid", type=int, help="its process, to note its memory")
    parser.add_argument("--clients", type=int, default=16, help="at once, for the capacity (default 16)")
    parser.add_argument("--capacity-seconds", type=float, default=10.0, metavar="S", help="default 10")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of a phase (default 60)")
    parser.add_argument(
        "--at",
        type=float,
        action="append",
        metavar="X",
        help="multiple of the capacity; several (default 1, 3)",
    )
    parser.add_argument("--fraction", type=float, help="share of the steps (default: the service's)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("options", nargs="*", help="for the service it starts, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
