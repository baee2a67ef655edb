"""The load test: every answer is counted by its status, and which refusals were needless."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cloud_anchor.pipeline import Pipeline
from tests.cloud_anchor.serve.service_runner import local, served

LOAD = Path("lab/benches/load.py")


def test_every_answer_is_counted_by_its_status() -> None:
    pytest.importorskip("gevent", reason="locust is not installed")
    with served(local(Pipeline.open("tiny", device="cpu"))) as client:
        command = [sys.executable, "-m", "locust", "-f", str(LOAD), "--headless", "-H", client.url, "--json"]
        options = "-u 12 -r 12 -t 3s --rate 60 --fraction 0.25 --deadline 5".split()
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "would have been answered in time: " in done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(rows) <= {"200", "503"}
    assert rows["200"]["num_requests"] > 0
    assert not sum(row["num_failures"] for row in rows.values())


def test_a_refusal_is_needless_where_the_next_answer_would_have_been_in_time() -> None:
    """In a process of its own: locust replaces the interpreter's sockets."""
    pytest.importorskip("gevent", reason="locust is not installed")
    # The second answer is there after 5 s; the one behind it would be 2.5 s later.
    script = """if True:
        from lab.benches.load import refused_in_time
        sent = [(0.5, "200", 0.1), (1.0, "200", 4.0), *((at, "503", 0.0) for at in (0.0, 1.5, 2.5))]
        print(refused_in_time(sent, 5.0), refused_in_time(sent, 6.0), refused_in_time(sent[2:], 5.0))
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "2", "0"]
