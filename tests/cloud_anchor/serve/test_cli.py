"""python -m cloud_anchor.serve: start, graceful shutdown, and errors of options."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from cloud_anchor.serve.__main__ import main
from edge_runtime import fill as fill_command
from tests.cloud_anchor.serve.service_runner import Client, Reply

ROOT = Path(__file__).resolve().parents[3]


def started(lines: Iterable[str]) -> Client:
    """A client of the service that writes these lines as it starts."""
    address = next(line for line in lines if " at http://" in line)
    assert any(" ready after " in line for line in lines)
    return Client(int(address.rsplit(":", 1)[1]))


@pytest.mark.slow
def test_it_serves_and_shuts_down_gracefully(
    dream_folder: Path, edge_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
            fill = ["--prompt", prompt, "--edge", str(edge_bundle), "--threads", "1"]
            stream = ["--url", client.url, "--stream", "--fraction", "0.02"]
            texts = []
            for way in ([str(file)], ["--url", client.url], stream):
                assert fill_command.main([*fill, *way]) == 0
                texts.append(capsys.readouterr().out)
            assert len(texts[0]) > 10
            assert texts[0] == texts[1] == texts[2]

            # What was taken is finished; no connection is taken any more.
            replies: list[Reply] = []
            long = threading.Thread(
                target=lambda: replies.append(client.anchors(prompt=prompt, fraction=1.0, select="paper"))
            )
            long.start()
            end = time.monotonic() + 30
            while b"cloud_anchor_running_requests 1.0" not in client.ask("GET", "/metrics").body:
                assert time.monotonic() < end
            process.send_signal(signal.SIGTERM)
            with suppress(ConnectionError):
                while client.ask("GET", "/readyz").status == 200:
                    assert time.monotonic() < end
            long.join(60)
            assert [reply.status for reply in replies] == [200]
            assert process.wait(30) == 0
        finally:
            process.kill()
            rest = process.stderr.read()
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--batch", "0"], 2),
        (["--port", "99999"], 2),
        (["--deadline", "0"], 2),
        (["--order", "random"], 2),
        (["--threads", "0"], 2),
        (["--keys", "/nonexistent/keys"], 2),
        (["--model", "/nonexistent/model"], 4),
        (["--host", "host.invalid"], 1),
    ],
)
def test_wrong_options_are_named(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments if "--port" in arguments else [*arguments, "--port", "0"]
    assert main(given) == code
    error = capsys.readouterr().err
    assert arguments[1] in error
    assert "Traceback" not in error


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--port", str(taken.getsockname()[1])]) == 1
    assert "--port" in capsys.readouterr().err
