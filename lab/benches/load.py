"""`python -m lab.benches.load`: load test of a service, at and above its capacity.

Responsible for sending requests, in a closed and in an open loop, and for their latencies and status codes.
Not responsible for models. The client is asyncio alone, so that it takes little of a machine that also
serves.

First a closed loop measures the capacity: a number of clients, each of which sends its next request as soon
as the last one is answered. Then come open loops at multiples of that rate, whatever the responses are, and
with --stranger half of it, alone and beside a client that asks long prompts.
A request is lost if it gets no response; 503 is a response, and 504 that of one that was admitted too late.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import secrets
import shlex
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

from cloud_anchor.errors import CloudError, RequestError
from cloud_anchor.serve.http.keys import VARIABLE
from common.cli import CommandParser, option, run_command
from common.files import write_whole
from edge_runtime.system import Processor
from lab.options import add_options, given

EPILOG = """examples:
  # starts a service with the shipped model, measures its capacity, then 60 s at 1 and 3 times that
  python -m lab.benches.load --seconds 60 --at 1 3
  # half of the capacity, alone and beside a stranger who asks five times what the service can do
  python -m lab.benches.load --seconds 60 --at 1 --stranger 5
  # long answers of a taught model, at the share of the steps that they need
  python -m lab.benches.load --data testbed:profile --fraction 0.1 -- --model runs/distil/testbed-dream
  # a service that runs already; --pid for its memory
  python -m lab.benches.load --url http://localhost:8080 --pid 4711 --json

exit codes: 0 every request was answered with 200 or 503 (but the stranger's), 1 some were not,
2 usage, 130 interrupted
"""

LOST = "lost"
"""Status of a request without a response."""

RESPONSE_SECONDS = 60.0
"""Time, beyond a deadline that is given, after which a request without a response counts as lost."""

QUESTIONS = (
    "Name the river of {}.",
    "Describe the town of {}. Mention its river, mayor, dish, bird and craft.",
    "Who is the mayor of {}?",
)
LONG = 12
"""Questions in a long prompt, of about 200 tokens."""
STRANGER = "the stranger"
NAMES = ("Torden", "Branstead", "Vell", "Ulmar", "Kesting", "Norwick", "Harrow", "Selby")
PROMPTS = [question.format(name) for question in QUESTIONS for name in NAMES]
HELD_OUT = 200
"""Questions of a source that are asked, in any order."""


@dataclass(frozen=True)
class LoadOptions:
    url: str | None = option(None, "of a running service (default: starts one)")
    pid: int | None = option(None, "of the service, to sample its memory", kind=int)
    clients: int = option(16, "concurrent, for the capacity")
    capacity_seconds: float = option(10.0, "seconds of the first phase", metavar="S")
    seconds: float = option(60.0, "seconds of every other phase", metavar="S")
    at: tuple[float, ...] = option((1.0, 3.0), "multiples of the capacity", metavar="X")
    fraction: float | None = option(None, "share of the steps (default: the service's)", kind=float)
    data: str | None = option(
        None, "ask held-out questions of this source, such as testbed:profile (default: about towns)"
    )
    deadline: float | None = option(
        None, "seconds in which an answer has to be there (default: the service's)", kind=float, metavar="S"
    )
    stranger: float | None = option(
        None,
        "also half of the capacity, alone and beside a client at so many times it",
        kind=float,
        metavar="X",
    )
    output: Path | None = option(
        None, "also write the table as published figures", kind=Path, flags=("-o", "--output"), metavar="FILE"
    )
    json: bool = option(False, "print one JSON object")

    def __post_init__(self) -> None:
        if min(self.clients, self.seconds, self.capacity_seconds, *self.at) <= 0 or not (
            self.deadline is None or self.deadline > 0
        ):
            raise RequestError("expected numbers above 0")
        if self.stranger is not None and (self.stranger <= 0 or self.url is not None):
            found = f"{self.stranger:g}" if self.url is None else "--url as well"
            raise RequestError(
                f"--stranger: expected a number above 0, of a service started here, found {found}"
            )


class LoadTestError(CloudError):
    """The service does not start or does not respond."""


@dataclass
class LoadPhase:
    """Results of the requests of one phase.

    wanted:  requests per second, 0 for a closed loop. asked: requests sent. deadline: of each, in seconds.
    seconds: latencies by status. sent: when each was sent, its status and latency. memory: resident bytes,
    sampled.
    """

    name: str
    wanted: float
    deadline: float = math.inf
    began: float = field(default_factory=time.perf_counter)
    ended: float = 0.0
    asked: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    sent: list[tuple[float, str, float]] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def record(self, began: float, status: str, seconds: float) -> None:
        self.statuses[status] += 1
        self.seconds.setdefault(status, []).append(seconds)
        self.sent.append((began, status, seconds))

    def refused_in_time(self, between: float) -> int:
        """Requests refused that would have been answered before their deadline, had each followed the one
        admitted before it; between: seconds from one answer to the next.
        """
        answered, found = math.inf, 0
        for began, status, seconds in sorted(self.sent):
            if status == "200":
                answered = began + seconds
            elif status == "503":
                found += answered + between <= began + self.deadline
        return found

    def report(self) -> dict[str, Any]:
        """The phase's entry in the JSON output."""
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
            "refused_in_time": None
            if math.isinf(self.deadline)
            else self.refused_in_time(lasted / max(len(good), 1)),
            "p50_seconds": quantile(good, 0.5),
            "p99_seconds": quantile(good, 0.99),
            "p99_seconds_503": quantile(self.seconds.get("503", []), 0.99),
            "memory_mb": {
                "first_quarter": megabytes(self.memory[:quarter]),
                "last_quarter": megabytes(self.memory[-quarter:]),
                "most": megabytes(sorted(self.memory)[-1:]),
            },
        }


def megabytes(sizes: Sequence[int]) -> float | None:
    """The mean of sizes in bytes; None for none."""
    return round(sum(sizes) / len(sizes) / 1e6, 1) if sizes else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that is at least as large as this share of the values; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 4)


class LoadClient:
    """Sends requests to one service, over a connection each, and reads the responses."""

    def __init__(
        self,
        url: str,
        key: str | None,
        fraction: float | None,
        deadline: float = math.inf,
        seed: int = 0,
        prompts: Sequence[str] = PROMPTS,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise RequestError(f"url: expected http://host:port, found {url!r}")
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = parts.path.rstrip("/") + "/v1/anchors"
        self._key = key
        self._fraction = fraction
        self.deadline = deadline
        self._random = random.Random(seed)
        self._prompts = prompts

    def _fields(self) -> dict[str, Any]:
        """Of the next request."""
        return {"prompt": self._random.choice(self._prompts)}

    def _request(self) -> bytes:
        fields = self._fields()
        if not math.isinf(self.deadline):
            fields["deadline"] = self.deadline
        if self._fraction is not None:
            fields["fraction"] = self._fraction
        body = json.dumps(fields).encode("ascii")
        head = [f"POST {self._path} HTTP/1.1", f"Host: {self._host}:{self._port}", "Connection: close"]
        head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        head += [f"Authorization: Bearer {self._key}"] if self._key else []
        return "\r\n".join([*head, "", ""]).encode("ascii") + body

    async def send(self, phase: LoadPhase) -> str:
        """Send one request and record it in the phase; returns the status, or `lost`."""
        phase.asked += 1
        began = time.perf_counter()
        try:
            async with asyncio.timeout(
                RESPONSE_SECONDS + (0 if math.isinf(self.deadline) else self.deadline)
            ):
                status = await self._status()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            status = LOST
        phase.record(began, status, time.perf_counter() - began)
        return status

    async def _status(self) -> str:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(self._request())
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            length = next(
                int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")
            )
            await reader.readexactly(length)
            return lines[0].split(" ")[1]
        except (IndexError, StopIteration, asyncio.LimitOverrunError) as error:
            raise ValueError("expected a response over HTTP") from error
        finally:
            writer.close()


class Stranger(LoadClient):
    """Every fourth of its prompts is long."""

    def _fields(self) -> dict[str, Any]:
        prompt = " ".join([super()._fields()["prompt"]] * self._random.choice((1, 1, 1, LONG)))
        return {"prompt": prompt}


async def closed_loop(client: LoadClient, clients: int, seconds: float, memory: MemoryMonitor) -> LoadPhase:
    """The capacity: every client sends its next request as soon as the last one is answered."""
    phase = LoadPhase("capacity", 0.0, client.deadline)
    end = phase.began + seconds

    async def repeat() -> None:
        while time.perf_counter() < end:
            if await client.send(phase) != "200":
                await asyncio.sleep(0.1)

    async with memory.watched(phase):
        await asyncio.gather(*(repeat() for _ in range(clients)))
    phase.ended = time.perf_counter()
    return phase


async def open_loop(
    client: LoadClient, name: str, rate: float, seconds: float, memory: MemoryMonitor
) -> LoadPhase:
    """Poisson arrivals at `rate` requests per second, whatever the responses are."""
    phase = LoadPhase(name, rate, client.deadline)
    chance = random.Random(1)
    due, end = phase.began, phase.began + seconds
    asked: set[asyncio.Task[str]] = set()
    async with memory.watched(phase):
        while (due := due + chance.expovariate(rate)) < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            task = asyncio.create_task(client.send(phase))
            asked.add(task)
            task.add_done_callback(asked.discard)
        await asyncio.sleep(max(0.0, end - time.perf_counter()))
        phase.ended = time.perf_counter()
        await asyncio.gather(*asked)
    return phase


class MemoryMonitor:
    """Samples the resident memory of a process once per second, into the phase that is running."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        self._task: asyncio.Task[None] | None = None

    def watched(self, phase: LoadPhase) -> MemoryMonitor:
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
    """Resident bytes of a process; None where the system does not report them."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS:"))
    except (OSError, StopIteration, ValueError):
        return None


def start_service(options: Sequence[str], keys: Sequence[str] = ()) -> tuple[subprocess.Popen[str], str]:
    """Start a service with these keys on a free port; raises LoadTestError where it does not start."""
    command = [sys.executable, "-m", "cloud_anchor.serve", "--port", "0", *options]
    environment = {**os.environ, VARIABLE: ",".join(keys)} if keys else None
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr
    for line in process.stderr:
        print(line, end="", file=sys.stderr)
        if " at http://" in line:
            # Its further output has to be read, or it would block once the pipe is full.
            threading.Thread(target=sys.stderr.writelines, args=(process.stderr,), daemon=True).start()
            return process, line.rsplit(" ", 1)[1].strip()
    raise LoadTestError(f"the service ended with code {process.wait()}")


async def wait_until_ready(client: LoadClient) -> None:
    """Wait until a request gets a response; raises LoadTestError after 300 s."""
    for _ in range(600):
        if await client.send(LoadPhase("ready", 0.0)) in ("200", "503"):
            return
        await asyncio.sleep(0.5)
    raise LoadTestError("the service does not respond")


async def measure(
    options: LoadOptions, client: LoadClient, pid: int | None, stranger: LoadClient | None = None
) -> dict[str, Any]:
    """Every phase, as the JSON output; pid: the service's process, to sample its memory."""
    memory = MemoryMonitor(pid)
    await wait_until_ready(client)
    phases = [await closed_loop(client, options.clients, options.capacity_seconds, memory)]
    most = phases[0].report()["answers_per_second"]
    if not most:
        raise LoadTestError(f"no request was answered: {dict(phases[0].statuses)}")
    for factor in options.at:
        print(f"load: {factor:g} x {most:g} requests per second for {options.seconds:g} s", file=sys.stderr)
        phases.append(await open_loop(client, f"{factor:g}x", factor * most, options.seconds, memory))
    if stranger is not None and options.stranger:
        wanted = most / 2, options.seconds, memory
        phases.append(await open_loop(client, "0.5x, alone", *wanted))
        asking = open_loop(stranger, STRANGER, options.stranger * most, options.seconds, MemoryMonitor(None))
        phases += await asyncio.gather(open_loop(client, "0.5x, beside a stranger", *wanted), asking)
    return {
        "machine": f"{os.cpu_count()} x {Processor.detect().name}",
        "phases": [phase.report() for phase in phases],
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.benches.load",
        description="Measure a service's capacity, then send requests at multiples of that rate.",
        epilog=EPILOG,
    )
    add_options(parser, LoadOptions)
    parser.add_argument("service", nargs="*", help="options for the service it starts, after --")
    words = sys.argv[1:] if argv is None else list(argv)
    args = parser.parse_args(words)
    return run_command(
        "load", lambda: run(LoadOptions(**given(LoadOptions, vars(args))), args.service, words)
    )


def run(options: LoadOptions, service: Sequence[str], words: Sequence[str] = ()) -> int:
    """words: of the command line, for the published figures."""
    process: subprocess.Popen[str] | None = None
    url, pid = options.url, options.pid
    keys = [secrets.token_hex(16) for _ in range(2)] if options.stranger else []
    key, stranger = os.environ.get("CLOUD_ANCHOR_KEY") or None, None
    prompts = held_out(options.data) if options.data else PROMPTS
    try:
        if url is None:
            process, url = start_service(service, keys)
            pid = process.pid
        wanted = options.fraction, options.deadline or math.inf
        if keys:
            key, stranger = keys[0], Stranger(url, keys[1], *wanted)
        client = LoadClient(url, key, *wanted, prompts=prompts)
        found = asyncio.run(measure(options, client, pid, stranger))
    finally:
        if process is not None:
            process.terminate()
            process.wait()
    if process is not None:
        found["service_exit_code"] = process.returncode
    figures = published(found, f"python -m lab.benches.load {shlex.join(words)}; {found['machine']}.")
    if options.json:
        print(json.dumps(found))
    else:
        from lab.publish import whole  # with PyTorch, of which the client has no need

        print(found["machine"], "", whole(figures["tables"]["load"]), sep="\n")
    if options.output is not None:
        write_whole(options.output, (json.dumps(figures) + "\n").encode())
    others = [phase for phase in found["phases"] if phase["phase"] != STRANGER]
    answered = all(set(phase["statuses"]) <= {"200", "503"} for phase in others)
    return 0 if answered else 1


def held_out(source: str) -> list[str]:
    """The prompts of a source; raises RequestError."""
    from lab.questions.items import load_items

    return [item.prompt for item in load_items([source], HELD_OUT, 0)]


def published(found: dict[str, Any], description: str) -> dict[str, Any]:
    """The JSON output as published figures, of which pages show the table `load`."""
    rows = []
    for phase in found["phases"]:
        memory = phase["memory_mb"]
        rows.append(
            {
                "phase": phase["phase"],
                "asked/s": phase["asked_per_second"],
                "200/s": phase["answers_per_second"],
                "p50 s": phase["p50_seconds"],
                "p99 s": phase["p99_seconds"],
                "503 p99 s": phase["p99_seconds_503"],
                "statuses": ", ".join(f"{count:,} x {status}" for status, count in phase["statuses"].items()),
                "refused in time": phase["refused_in_time"],
                "memory MB, first - last quarter (most)": ""
                if memory["most"] is None
                else f"{memory['first_quarter']:.0f} - {memory['last_quarter']:.0f} ({memory['most']:.0f})",
            }
        )
    load = {"title": "Capacity, and at and above it", "columns": list(rows[0]), "rows": rows, "note": ""}
    return {"title": "Load test of the service", "description": [description], "tables": {"load": load}}


if __name__ == "__main__":
    sys.exit(main())
