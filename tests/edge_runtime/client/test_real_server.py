"""A real llama.cpp server as the cloud: LLAMA_GGUF names a model, LLAMA_PYTHON a Python with
llama-cpp-python[server].
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cloud_anchor.pipeline import Pipeline
from edge_runtime.client.chat_server import PREFIX, ChatServer
from edge_runtime.errors import CloudRefusedError, CloudUnavailableError
from edge_runtime.finished import payload_of
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import as_messages
from payload import AUTO
from tests.shipped import TINY_BUNDLE

PROMPTS = [
    "What is tin?",
    "Write a Python function that adds two numbers, in a code fence.",
    "Say hi \U0001f600",
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    missing = [name for name in ("LLAMA_GGUF", "LLAMA_PYTHON") if name not in os.environ]
    if missing:
        pytest.skip(f"no llama.cpp server: set {' and '.join(missing)}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = ["--model", os.environ["LLAMA_GGUF"], "--n_ctx", "2048"]
    command = [os.environ["LLAMA_PYTHON"], "-m", "llama_cpp.server", *model, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 300
        while server.poll() is None and time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                    break
            except OSError:
                time.sleep(0.5)
        else:
            pytest.fail("the server did not start")
        yield f"{PREFIX}http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()


def opened(address: str) -> ChatServer:
    return replace(ChatServer.open(address, "any", timeout=300), max_tokens=60)


def whole(address: str, prompt: str) -> str:
    """The same answer, not streamed."""
    message = {"role": "user", "content": prompt}
    body = {"model": "any", "messages": [message], "temperature": 0, "max_tokens": 60}
    url = f"{address.removeprefix(PREFIX)}/chat/completions"
    asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=300) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_its_stream_is_its_answer_and_the_device_writes_the_same_bytes(address: str, prompt: str) -> None:
    server, edge = opened(address), EdgeRuntime.open(TINY_BUNDLE, "fp32", threads=1)
    pieces = list(server.answer(prompt))
    text = "".join(pieces).strip()
    assert len(pieces) > 1
    assert text == whole(address, prompt).strip()
    pipeline = Pipeline.open("any", backend=server, edge=edge)
    (result,) = pipeline.make([prompt], pipeline.plan([prompt]))
    data = pipeline.payload(result, AUTO)
    assert data == payload_of(edge, text, prompt)
    written = edge.fill(edge.read(data, prompt))
    assert b"".join(edge.bundle.tokenizer.token_bytes(token.id) for token in written).decode() == text


def test_conversations_json_and_refusals(address: str) -> None:
    talk = as_messages([{"role": "user", "content": "Name a metal."}], "Answer in JSON.")
    found = "".join(replace(opened(address), response_format={"type": "json_object"}).answer(talk))
    assert found.lstrip().startswith("{")
    with pytest.raises((CloudUnavailableError, CloudRefusedError)):
        "".join(opened(address + "/nowhere").answer("Hi"))
