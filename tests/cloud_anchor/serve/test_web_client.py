"""The client in TypeScript against a real service: its answer is the one that Python's client gets."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from edge_runtime.client.client import Client
from edge_runtime.cloud import CloudQuestion
from edge_runtime.decode.refine import Retract
from edge_runtime.runtime import EdgeRuntime
from tests.cloud_anchor.serve import page_browser
from tests.shipped import TINY_BUNDLE

RUNTIME = Path(__file__).resolve().parents[3] / "web" / "edge-runtime"


@pytest.mark.skipif(
    shutil.which("node") is None or not (RUNTIME / "dist").is_dir(), reason="needs Node.js and make web-page"
)
def test_a_stream_is_refined_to_pythons_answer() -> None:
    question = page_browser.PICTURE_QUESTION
    with page_browser.shipped_page() as address:
        command = ["node", "examples/ask.js", address, str(TINY_BUNDLE), question]
        done = subprocess.run(command, cwd=RUNTIME, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        edge = EdgeRuntime.open(TINY_BUNDLE, "fp32", threads=1)
        asked = CloudQuestion(Client(address, timeout=60), edge, question, stream=True, fallback=False)
        answer = asked.answer()
        ids: list[int] = []
        for event in answer:
            if isinstance(event, Retract):
                del ids[event.position :]
            else:
                ids.append(event.id)
    assert found["service"]["failure"] is None
    assert answer.service is not None
    assert found["service"]["payloadBytes"] == answer.service.payload_bytes
    assert found["text"] == edge.bundle.tokenizer.decode(ids)
    assert found["doubt"] == pytest.approx(answer.doubt)
