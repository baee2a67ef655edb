"""python -m cloud_anchor.serve: start, graceful shutdown, and errors of options."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from cloud_anchor.serve.__main__ import main
from tests.cloud_anchor.serve.service_runner import Client, Reply

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def fill_environment(edge_bundle: Path) -> dict[str, str]:
    return dict(os.environ) | {"EDGE_MODEL": str(edge_bundle), "OMP_NUM_THREADS": "1"}


def started(lines: Iterable[str]) -> Client:
    """A client of the service that writes these lines as it starts."""
    assert re.search(r" serve: loading \S+$", next(iter(lines)).strip())
    address = next(line for line in lines if " at http://" in line)
    ready = next(line for line in lines if " ready after " in line)
    assert re.search(r" serve: ready after \d+\.\d s$", ready.strip())
    return Client(int(address.rsplit(":", 1)[1]))


@pytest.mark.slow
def test_it_serves_and_shuts_down_gracefully(
    dream_folder: Path, edge_bundle: Path, fill_environment: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "cloud_anchor.serve", "--model", str(dream_folder)]
    command += ["--edge", str(edge_bundle), "--port", "0", "--threads", "1", "--canvas", "48"]
    command += ["--total-steps", "400", "--fraction", "0.02"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            client = started(process.stderr)

            # The text is the same as by way of a file.
            prompt = "Where does the river end?"
            file = tmp_path / "payload.bin"
            file.write_bytes(client.anchors(prompt=prompt).body)
            fill = [sys.executable, "-m", "edge_runtime.fill", "--prompt", prompt, "--threads", "1"]
            ways = (
                [str(file)],
                ["--url", client.url],
                ["--url", client.url, "--stream", "--fraction", "0.02"],
            )
            texts = [
                subprocess.run([*fill, *way], cwd=ROOT, env=fill_environment, capture_output=True, check=True)
                for way in ways
            ]
            assert len(texts[0].stdout) > 10
            assert texts[0].stdout == texts[1].stdout == texts[2].stdout

            # What was taken is finished; what comes then is refused, and the balancer is told.
            replies: list[Reply] = []
            long = threading.Thread(
                target=lambda: replies.append(client.anchors(prompt=prompt, fraction=1.0, select="paper"))
            )
            long.start()
            end = time.monotonic() + 30
            while b"cloud_anchor_running_requests 1.0" not in client.ask("GET", "/metrics").body:
                assert time.monotonic() < end
            process.send_signal(signal.SIGTERM)
            while (ready := client.ask("GET", "/readyz")).status == 200:
                assert time.monotonic() < end
            assert (ready.status, ready.code) == (503, "stopping")
            refused = client.anchors(prompt=prompt)
            assert (refused.status, refused.code) == (503, "stopping")
            long.join(60)
            assert [reply.status for reply in replies] == [200]
            assert process.wait(30) == 0
        finally:
            process.kill()
            rest = process.stderr.read()
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--batch", "0"], 2, "batch: expected at least 1, found 0"),
        (["--port", "99999"], 2, "port: expected 0 to 65535"),
        (["--deadline", "0"], 2, "deadline: expected above 0"),
        (["--order", "random"], 2, "order: expected"),
        (["--threads", "0"], 2, "threads: expected at least 1"),
        (["--keys", "/nonexistent/keys"], 2, "expected a readable text file"),
        (["--model", "/nonexistent/model"], 4, "expected a folder with config.json"),
        (["--host", "host.invalid"], 1, "expected an address to listen on"),
    ],
)
def test_wrong_options(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments if "--port" in arguments else [*arguments, "--port", "0"]
    assert main(given) == code
    error = capsys.readouterr().err
    assert text in error
    assert "Traceback" not in error


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--port", str(taken.getsockname()[1])]) == 1
    assert "Choose another --port" in capsys.readouterr().err
