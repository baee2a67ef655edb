"""A server that speaks vLLM's protocol for DiffusionGemma, written from vLLM 0.33's own checks of requests
and the answers of a server of 0.32.

It has no model: a canvas is a function of the prompt and the steps, more certain with each step. Its faults
are scripted, so that every way in which a server fails can be met.
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Fault = str | None
"""busy, error, drop, hang, slow, garbage, short or wrong; None: it answers."""


@dataclass
class FakeVllm:
    """Used as a context manager; `requests` are the bodies that it was asked, `faults` those of the next
    requests, `fault` of any other. places: runs at the same time; step_seconds: of each.
    """

    model: str = "dg"
    root: str = "google/diffusiongemma-26B-A4B-it"
    canvas: int = 16
    vocabulary: int = 308
    context: int = 512
    end: int = 302
    words: int = 300
    length: int = 9
    key: str | None = None
    places: int = 64
    step_seconds: float = 0.0
    fault: Callable[[], Fault] = lambda: None
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    runs: int = 0

    def __enter__(self) -> Self:
        self._free = threading.Semaphore(self.places)
        self._lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                if fake.refuses(self.headers.get("Authorization")):
                    return self.answer(401, {"error": "Unauthorized"})
                card = {"id": fake.model, "root": fake.root, "max_model_len": fake.context, "object": "model"}
                self.answer(200, {"object": "list", "data": [card]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if fake.refuses(self.headers.get("Authorization")):
                    return self.answer(401, {"error": "Unauthorized"})
                status, answer = fake.complete(body)
                if status == 0:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.answer(status, answer, {"Retry-After": "0"} if status in (429, 503) else {})

            def answer(self, status: int, content: object, headers: Mapping[str, str] | None = None) -> None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                stated = {"Content-Length": str(len(data)), "Content-Type": "application/json"}
                for name, value in {**stated, **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def refuses(self, authorization: str | None) -> bool:
        return self.key is not None and authorization != f"Bearer {self.key}"

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            self.requests.append(body)
            fault = self.faults.popleft() if self.faults else self.fault()
        if fault == "busy":
            return 503, error(503, "Server is overloaded, please try again later.")
        wrong = self._problem(body)
        if wrong is not None:
            return wrong
        with self._free:
            with self._lock:
                self.running += 1
                self.runs += 1
                self.most_running = max(self.running, self.most_running)
            time.sleep(self.step_seconds * body["vllm_xargs"]["diffusion_max_steps"])
            with self._lock:
                self.running -= 1
        if fault == "hang":
            time.sleep(3)
        answers: dict[Fault, tuple[int, Any]] = {
            "error": (500, error(500, "EngineCore encountered an issue.\x1b[31m See stack trace.")),
            "drop": (0, None),
            "garbage": (200, b"<html>not a model</html>"),
            "wrong": (200, {"choices": [{"token_ids": [1, 2], "logprobs": {"token_logprobs": [0.0]}}]}),
        }
        return answers.get(fault) or (200, self._answer(body, short=fault == "short"))

    def _problem(self, body: dict[str, Any]) -> tuple[int, Any] | None:
        """What vLLM refuses of a request: its fields, then `validate_diffusion_sampling_params`."""
        if body.get("model") != self.model:
            return 404, error(404, f"The model `{body.get('model')}` does not exist.")
        prompt, extra = body["prompt"], body["vllm_xargs"]
        width = extra.get("diffusion_canvas_length", self.canvas)
        steps, read_only = extra.get("diffusion_max_steps"), extra.get("diffusion_read_only")
        unsupported = {"temperature": 1.0, "seed": None, "min_p": 0.0, "min_tokens": 0, "logit_bias": None}
        problems = {
            "extra_args values": not all(type(value) in (int, float, str, list) for value in extra.values()),
            "prompt": not prompt
            or not all(type(id_) is int and 0 <= id_ < self.vocabulary for id_ in prompt),
            "diffusion_canvas_length": type(width) is not int or not 0 < width <= self.canvas,
            "diffusion_max_steps": type(steps) is not int or steps < 1,
            "diffusion_read_only": read_only not in (0, 1),
            "sampling parameters": any(body.get(name, usual) != usual for name, usual in unsupported.items()),
            f"maximum context length is {self.context} tokens": len(prompt) >= self.context,
        }
        found = next((name for name, wrong in problems.items() if wrong), None)
        return None if found is None else (400, error(400, f"{found} is not supported"))

    def _answer(self, body: dict[str, Any], short: bool) -> dict[str, Any]:
        extra = body["vllm_xargs"]
        size = min(body["max_tokens"], extra["diffusion_canvas_length"], self.context - len(body["prompt"]))
        ids, chances = canvas_of(body["prompt"], extra["diffusion_max_steps"], size, self)
        if short:
            ids, chances = ids[: size // 2], chances[: size // 2]
        logprobs = {
            "token_logprobs": [math.log(each) for each in chances],
            "tokens": [""] * len(ids),
            "text_offset": [0] * len(ids),
            "top_logprobs": [None] * len(ids),
        }
        choice = {"index": 0, "text": "", "finish_reason": "length", "token_ids": ids, "logprobs": logprobs}
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids)}
        return {"id": "cmpl-1", "object": "text_completion", "model": self.model, "choices": [choice]} | {
            "usage": usage
        }


def canvas_of(prompt: list[int], steps: int, size: int, fake: FakeVllm) -> tuple[list[int], list[float]]:
    """The tokens of an answer and their probabilities; from the first step on the answer ends alike."""
    draw = random.Random(str(prompt))
    final = [draw.randrange(fake.words) for _ in range(min(fake.length, size))]
    final += [fake.end] * (size - len(final))
    chances = [min(0.99, 0.2 + 0.2 * steps + 0.3 * draw.random()) for _ in final]
    return final, chances


def error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "Error", "param": None, "code": code}}
