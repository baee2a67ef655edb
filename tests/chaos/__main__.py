"""`python -m tests.chaos --minutes 10`: service, gateway and endpoint under load, everything going wrong.

They run as processes with the tiny pair. Clients over HTTP and devices over sealed UDP ask twice as often as
the service can answer, two devices run `edge_runtime.fill` again and again, two clients talk to an endpoint.
Meanwhile clients are killed, connections stay half-open, noise comes over the link, the service is paused,
the disk is full (no file of a server may grow), and the wall clock jumps by days. Exit code 0 where all
answers were right or documented errors, everything admitted was answered, and memory stayed flat.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cloud_anchor.shipped import PAIRS
from common.cli import CommandParser, option, run_command
from common.errors import UserError
from edge_runtime.runtime import EdgeRuntime
from links.exchange import QuestionExchange, RetryBudget
from links.frames.question import Question, encode_question
from links.kinds.udp import UdpLink
from links.seal import Seal, SealedLink, make_pair
from payload import PayloadError, Shared, decode

PROMPTS = ("Where is it?", "Who are you?", "Describe a town and its river.", "Which river?")
DOCUMENTED = {"overloaded", "deadline_exceeded", "body_too_slow", "not_ready", "stopping"}
BATCH, QUEUE, DEADLINE = 4, 8, 10.0
STEPS = 4
DEVICES = 4
FILLS = 2
"""Devices that fill as processes, and as many clients of the endpoint."""
FILL_CODES = {0: "right answers", 5: "refused", 7: "the device alone"}
LONGEST_ANSWER = 24
"""Tokens of the endpoint's answers."""
START_SECONDS = 180.0
GRACE_SECONDS = 20.0
"""After a deadline, in which an answer has to be complete: the service may be paused in between."""

MOST_GROWTH = 48 << 20
"""Bytes that a process may grow by after the first fifth of the time."""

FAULTS = ("killed clients", "half-open connections", "noise", "paused service", "full disk", "clock jumps")


class ChaosError(UserError):
    """A process did not start, or ended."""


@dataclass(frozen=True)
class ChaosArguments:
    minutes: float = option(10.0, "of chaos, after the start (default 10)", metavar="N")
    seed: int = option(1, "of the order of what goes wrong (default 1)", metavar="N")
    json: bool = option(False, "print one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m tests.chaos",
        description="A service, a gateway and an endpoint under load, while everything goes wrong.",
        epilog="example:\n  python -m tests.chaos --minutes 0.5",
    )
    parser.declare(ChaosArguments)
    args = parser.parse(ChaosArguments, argv)
    return run_command("chaos", lambda: _run(args))


def _run(args: ChaosArguments) -> int:
    report = Chaos(60 * args.minutes, args.seed).run()
    if args.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:<44}{value}")
    return 1 if report["faults found"] else 0


class Chaos:
    """One run. Every thread counts what it sees; `wrong` holds what must not be."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds, self.luck = seconds, random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.slowest = 0.0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._edge = EdgeRuntime.open(PAIRS["tiny"].bundle, threads=1)
        contract = self._edge.bundle.contract
        self._shared = {text: Shared(contract, self._edge.prompt_ids(text)) for text in PROMPTS}
        self._right: dict[str, bytes] = {}

    def run(self) -> dict[str, object]:
        with tempfile.TemporaryDirectory() as folder, self._processes(Path(folder)):
            self._right = {text: self._ask(text)[1] for text in PROMPTS}
            self._alone = {text: self._chat(text)[1] for text in PROMPTS}
            rate = self._capacity()
            threads = [threading.Thread(target=self._device, args=(each,)) for each in range(DEVICES)]
            for each in range(FILLS):
                threads.append(threading.Thread(target=self._filling, args=(each,)))
                threads.append(threading.Thread(target=self._chatting, args=(each,)))
            threads.append(threading.Thread(target=self._go_wrong))
            for thread in threads:
                thread.start()
            memory = self._load(2 * rate)
            self._stop.set()
            for thread in threads:
                thread.join(120)
                if thread.is_alive():
                    self._fault("a device or a fault did not end")
            for text, data in self._right.items():  # all is well again
                if self._ask(text)[1] != data:
                    self._fault(f"afterwards the answer to {text!r} is another")
            for name, process in self._running.items():
                if process.poll() is not None:
                    self._fault(f"the {name} ended with {process.returncode}")
        grown = {
            name: values[-1] - max(values[: max(1, len(values) // 5)]) for name, values in memory.items()
        }
        for name, size in grown.items():
            if size > MOST_GROWTH:
                self._fault(f"the {name} grew by {size >> 20} MB")
        counts = {f"{name}": count for name, count in sorted(self.seen.items())}
        return {
            "seconds": round(self.seconds),
            "capacity, answers a second": round(rate, 1),
            "load, requests a second": round(2 * rate, 1),
            **counts,
            "slowest answer, s": round(self.slowest, 1),
            **{f"{name}: grown, MB": round(size / (1 << 20), 1) for name, size in grown.items()},
            "faults found": self.wrong[:20],
        }

    # the processes

    @contextmanager
    def _processes(self, folder: Path) -> Iterator[None]:
        """The service and the gateway; their files are in the folder."""
        clock = folder / "clock"
        clock.write_text("0")
        here = Path(__file__).parent
        environment = {
            **os.environ,
            "CHAOS_CLOCK": str(clock),
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": f"{here / 'clock'}:{here.parents[1]}",
        }
        self._clock, self._running, self._folder = clock, dict[str, subprocess.Popen[bytes]](), folder
        seals = [make_pair(folder / f"device-{each}") for each in range(DEVICES)]
        self._seals = [device for device, _ in seals]
        pair = PAIRS["tiny"]
        limits = f"--batch {BATCH} --queue {QUEUE} --deadline {DEADLINE} --threads 1"
        service = f"-m cloud_anchor.serve --model {pair.checkpoint} --edge {pair.bundle} --port 0 --page off"
        try:
            self.port = int(
                self._start("service", f"{service} {limits}", r"at http://127.0.0.1:(\d+)", environment)
            )
            end = time.monotonic() + START_SECONDS
            while not self._is_ready() and time.monotonic() < end:
                time.sleep(0.2)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind(("127.0.0.1", 0))
                self.udp = free.getsockname()[1]
            named = " ".join(f"--seal {gateway}" for _, gateway in seals)
            address = f"udp-listen:{self.udp}?price=0.000001&currency=USD"
            url = f"http://127.0.0.1:{self.port}"
            gateway = f"-m links.gateway --link {address} --service {url}"
            options = f"--edge {pair.bundle} --threads 1 --timeout {DEADLINE}"
            self._start("gateway", f"{gateway} {named} {options}", r"(gateway: udp)", environment)
            endpoint = f"-m edge_runtime.endpoint --edge {pair.bundle} --threads 1 --port 0"
            self.endpoint = int(self._start("endpoint", endpoint, r"http://127.0.0.1:(\d+)", environment))
            self._environment = environment
            yield
        finally:
            for process in self._running.values():
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
            for name, process in self._running.items():
                try:
                    process.wait(DEADLINE + 4 * GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    self._fault(f"the {name} did not end by SIGTERM")
                    process.kill()
                    process.wait()

    def _start(self, name: str, command: str, says: str, environment: dict[str, str]) -> str:
        """Start a process and wait until it says so; what it says."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *command.split()], env=environment, stderr=out, stdout=out
            )
        self._running[name] = process
        end = time.monotonic() + START_SECONDS
        while (found := re.search(says, log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > end:
                raise ChaosError(f"{name}: expected it to start, found:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        return found[1]

    def _is_ready(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        return False

    # those who ask

    def _ask(self, text: str) -> tuple[int, bytes]:
        """Status and body of a request; both documented, or a fault is counted."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE + GRACE_SECONDS)
        began = time.monotonic()
        try:
            body = json.dumps({"prompt": text, "steps": STEPS})
            connection.request("POST", "/v1/anchors", body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            data = reply.read()
        except (OSError, http.client.HTTPException) as error:
            self._fault(f"a request had no answer: {error!r}")
            return 0, b""
        finally:
            connection.close()
        with self._lock:
            self.slowest = max(self.slowest, time.monotonic() - began)
        if reply.status == 200:
            self._count("HTTP: right answers" if self._is_right(text, data) else "HTTP: wrong answers")
        else:
            code = json.loads(data)["error"]["code"]
            self._count(f"HTTP: refused, {code}")
            if code not in DOCUMENTED:
                self._fault(f"a request was answered {reply.status} {code}")
        return reply.status, data

    def _is_right(self, text: str, data: bytes) -> bool:
        """Whether a payload is that of an idle service, or at least one of this prompt."""
        if data == self._right.get(text, data):
            return True
        try:
            decode(data, self._shared[text])
        except PayloadError as error:
            self._fault(f"a payload for {text!r} cannot be read: {error}")
            return False
        self._count("HTTP: of them, other anchors than alone")
        return True

    def _capacity(self) -> float:
        """Answers a second of as many clients as rows of a batch."""
        began, before = time.monotonic(), self.seen["HTTP: right answers"]

        def client() -> None:
            while time.monotonic() < began + 4:
                self._ask(self.luck.choice(PROMPTS))

        threads = [threading.Thread(target=client) for _ in range(BATCH)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return max(1.0, (self.seen["HTTP: right answers"] - before) / (time.monotonic() - began))

    def _load(self, rate: float) -> dict[str, list[int]]:
        """So many requests a second, whatever becomes of them; the memory of the processes, once a second."""
        memory: dict[str, list[int]] = {name: [] for name in self._running}
        asking: list[threading.Thread] = []
        end, due, sampled = time.monotonic() + self.seconds, time.monotonic(), 0.0
        while time.monotonic() < end:
            thread = threading.Thread(target=self._ask, args=(self.luck.choice(PROMPTS),))
            thread.start()
            asking = [each for each in asking if each.is_alive()] + [thread]
            if time.monotonic() - sampled >= 1:
                sampled = time.monotonic()
                for name, process in self._running.items():
                    memory[name].append(_memory(process.pid))
            due += self.luck.expovariate(rate)
            time.sleep(max(0.0, due - time.monotonic()))
        for thread in asking:
            thread.join(DEADLINE + 2 * GRACE_SECONDS)
        return memory

    def _device(self, number: int) -> None:
        """Ask over the link, one question after the other; some devices vanish after their question."""
        luck, contract = random.Random(number), self._edge.bundle.contract
        seal = Seal(self._seals[number])
        while not self._stop.is_set():
            text = luck.choice(PROMPTS)
            question = Question(luck.randrange(1 << 16), text, steps=STEPS, predictive=False)
            frame = encode_question(question, Shared(contract), "utf-8")
            with UdpLink("127.0.0.1", self.udp) as udp:
                link = SealedLink(udp, [seal])
                if luck.random() < 0.2:
                    link.send(frame)
                    self._count("devices that vanished")
                    continue
                shared = self._shared[text]
                exchange = QuestionExchange(
                    link,
                    frame,
                    question.id,
                    lambda data, base, shared=shared: decode(
                        data, Shared(contract, shared.prompt_ids, base=base)
                    ),  # type: ignore[misc]
                    RetryBudget(attempts=6, seconds=60.0, service=2.0),
                )
                for _ in exchange.anchors():
                    pass
            refusal = exchange.refusal.code.name.lower() if exchange.refusal else "none in time"
            self._count("link: right answers" if exchange.complete else f"link: refused, {refusal}")

    def _filling(self, number: int) -> None:
        """Ask the service with processes of `edge_runtime.fill`, one after the other; some are killed."""
        luck = random.Random(100 + number)
        where = f"--url http://127.0.0.1:{self.port} --edge {PAIRS['tiny'].bundle} --timeout {DEADLINE}"
        command = [sys.executable, "-m", "edge_runtime.fill", *where.split(), "--threads", "1", "--prompt"]
        while not self._stop.is_set():
            process = subprocess.Popen(
                [*command, luck.choice(PROMPTS)],
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            killed = luck.random() < 0.2
            if killed:
                self._stop.wait(luck.uniform(0.5, 3.0))
                process.send_signal(luck.choice((signal.SIGKILL, signal.SIGINT)))
            try:
                said = process.communicate(timeout=DEADLINE + 2 * GRACE_SECONDS)[1].decode()
            except subprocess.TimeoutExpired:
                process.kill()
                said = process.communicate()[1].decode()
                self._fault("a device's process did not end")
                continue
            if killed:
                self._count("fill: killed")
            elif process.returncode in FILL_CODES and "Traceback" not in said:
                self._count(f"fill: {FILL_CODES[process.returncode]}")
            else:
                self._fault(f"fill ended with {process.returncode}: {said[-300:]}")

    def _chatting(self, number: int) -> None:
        """Ask the endpoint, whose answer is always the one it gave alone; leave some answers half."""
        luck = random.Random(200 + number)
        while not self._stop.is_set():
            self._stop.wait(luck.uniform(0, 0.5))
            text, leaves = luck.choice(PROMPTS), luck.random() < 0.2
            try:
                status, answer = self._chat(text, stream=luck.random() < 0.5, leaves=leaves)
            except (OSError, http.client.HTTPException) as error:
                self._fault(f"the endpoint did not answer: {error!r}")
                continue
            if leaves:
                self._count("endpoint: left half")
                continue
            right = (status, answer) == (200, self._alone[text])
            self._count(f"endpoint: {'right' if right else 'wrong'} answers")
            if not right:
                self._fault(f"the endpoint answered {status} {answer!r} to {text!r}")

    def _chat(self, text: str, *, stream: bool = False, leaves: bool = False) -> tuple[int, str]:
        """Status and text of an answer of the endpoint, with its doubts; leaves: go without reading it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.endpoint, timeout=2 * GRACE_SECONDS)
        messages = [{"role": "user", "content": text}]
        body = json.dumps({"messages": messages, "max_tokens": LONGEST_ANSWER, "stream": stream})
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", body, headers)
            if leaves:
                return 0, ""
            reply = connection.getresponse()
            data = reply.read().decode()
        finally:
            connection.close()
        if reply.status != 200:
            return reply.status, data
        if not stream:
            return 200, json.loads(data)["choices"][0]["message"]["content"]
        events = re.findall(r"^data: (\{.*)$", data, re.MULTILINE)
        parts = [choice["delta"] for each in events for choice in json.loads(each)["choices"]]
        return 200, "".join(part.get("content") or "" for part in parts)

    # what goes wrong

    def _go_wrong(self) -> None:
        """One thing after another, in an order that the seed decides; the first ones are all of them."""
        waiting = list(FAULTS)
        self.luck.shuffle(waiting)
        while not self._stop.is_set():
            fault = waiting.pop() if waiting else self.luck.choice(FAULTS)
            self._count(f"faults made: {fault}")
            getattr(self, "_" + fault.replace(" ", "_").replace("-", "_"))()
            self._stop.wait(self.luck.uniform(0.2, 1.0))

    def _killed_clients(self) -> None:
        for _ in range(BATCH):
            connection = self._connected()
            body = json.dumps({"prompt": self.luck.choice(PROMPTS), "fractions": [0.2, 1.0]}).encode()
            head = "POST /v1/anchors/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            self._stop.wait(self.luck.uniform(0.0, 0.2))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()  # with a reset, in the middle of the answer

    def _half_open_connections(self) -> None:
        for part in (
            b"",
            b"POST /v1/anch",
            b"POST /v1/anchors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
        ):
            connection = self._connected()
            connection.sendall(part)
            self._left_open = [
                *getattr(self, "_left_open", [])[-20:],
                connection,
            ]  # the others are closed as garbage

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=GRACE_SECONDS)

    def _noise(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(50):
                sender.sendto(self.luck.randbytes(self.luck.randrange(1, 200)), ("127.0.0.1", self.udp))

    def _paused_service(self) -> None:
        process = self._running["service"]
        process.send_signal(signal.SIGSTOP)
        self._stop.wait(self.luck.uniform(0.5, 3.0))
        process.send_signal(signal.SIGCONT)

    def _full_disk(self) -> None:
        """No file of the processes may be written beyond its first byte, as on a disk without room."""
        for process in self._running.values():
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        self._stop.wait(self.luck.uniform(0.5, 3.0))
        for process in self._running.values():
            resource.prlimit(
                process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )

    def _clock_jumps(self) -> None:
        self._clock.write_text(str(self.luck.choice((-40, -1, 1, 40)) * 86_400.0))

    # what is seen

    def _count(self, what: str) -> None:
        with self._lock:
            self.seen[what] += 1

    def _fault(self, what: str) -> None:
        with self._lock:
            self.wrong.append(what)


def _memory(pid: int) -> int:
    """Bytes of a process in memory; 0 for one that has ended."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) << 10
    return 0


if __name__ == "__main__":
    sys.exit(main())
