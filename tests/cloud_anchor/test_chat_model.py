"""Any chat server as the cloud's model: texts that stream in, by library, command and service."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from cloud_anchor.anchor import main as anchor
from cloud_anchor.demo import main as demo
from cloud_anchor.errors import RequestError, ServerBusyError, ServerError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.select import EDGE_AWARE, Selection
from cloud_anchor.serve.settings import Limits
from edge_runtime.errors import UsageError
from edge_runtime.finished import payload_of
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import as_messages
from payload import AUTO, Base, Codec, Shared, decode
from tests.cloud_anchor.serve.service_runner import local, served
from tests.edge_runtime.client.chat_servers import chat_server, event, fails, says
from tests.shipped import TINY_BUNDLE

PROMPT = "Where does the river end?"
TEXT = "The river ends in the valley, where the town of stone is. It is old, and small. " * 3
PIECES = [TEXT[at : at + 3] for at in range(0, len(TEXT), 3)]


@pytest.fixture(scope="module")
def edge() -> EdgeRuntime:
    return EdgeRuntime.open(TINY_BUNDLE, "fp32", threads=1)


def runs(pipeline: Pipeline, *marks: int) -> list[Denoised]:
    found: Iterator[Denoised] = pipeline.model.runs(  # type: ignore[attr-defined]
        pipeline.form.ids(PROMPT), pipeline.plan([PROMPT]), marks, lambda: 20.0
    )
    return list(found)


def test_an_answer_is_the_payload_of_its_text_and_a_conversation_reaches_the_server(
    edge: EdgeRuntime,
) -> None:
    talk = as_messages(PROMPT, "Be short.")
    with chat_server(says(["<think>Hm.</think>\n", *PIECES])) as (address, asked):
        pipeline = Pipeline.open("any", backend=address, edge=edge)
        (result,) = pipeline.make([talk], pipeline.plan([talk]))
        (part,) = pipeline.select([talk], [result.run], Selection(EDGE_AWARE))
    assert pipeline.payload(result, AUTO) == payload_of(edge, TEXT.strip(), talk)
    assert 0 < len(part.anchors) <= len(result.anchors)
    assert asked[0]["messages"] == [message._asdict() for message in talk]
    assert result.run.stopped_by == "finished"
    assert result.run.steps < result.run.total_steps


def test_what_has_come_is_committed_and_grows(edge: EdgeRuntime) -> None:
    with chat_server(says(PIECES)) as (address, asked):
        pipeline = Pipeline.open("any", backend=address, edge=edge)
        found = runs(pipeline, 1, 2, 3, 4, pipeline.plan([PROMPT]).total_steps)
    assert len(asked) == 1
    assert len(found) >= 4
    contract, texts = edge.bundle.contract, []
    base: Base | None = None
    for run in found:
        (result,) = pipeline.select([PROMPT], [run], pipeline.resolve(pipeline.plan())[1])
        texts.append(edge.bundle.tokenizer.decode(list(result.anchors.ids)))
        data = pipeline.payload(result, Codec.COMPACT)
        if base is not None:  # each adds to the one before
            assert set(base.anchors.ids) <= set(result.anchors.ids)
        base = Base(data, decode(data, Shared(contract, run.prompt_ids)))
        assert (result.anchors.length is None) == (run is not found[-1])
    assert all(TEXT.startswith(text) and later.startswith(text) for text, later in pairwise(texts))
    assert all(TEXT[len(text)] == " " for text in texts[:-1])
    assert texts[-1] == TEXT.strip()


def test_a_long_answer_is_cut_to_the_canvas(edge: EdgeRuntime, caplog: pytest.LogCaptureFixture) -> None:
    with chat_server(says([TEXT])) as (address, _):
        pipeline = Pipeline.open("any", backend=address, edge=edge)
        plan = pipeline.plan([PROMPT])
        (result,) = pipeline.make([PROMPT], type(plan)(canvas=7, total_steps=4))
    assert (len(result.anchors), result.anchors.length) == (7, 7)
    assert "cut to the canvas of 7" in caplog.text


def test_failures_are_the_servers_and_a_broken_stream_is_no_answer(edge: EdgeRuntime) -> None:
    broken = says(PIECES[:9], end=event(error={"message": "out of memory"}), finish=None)
    cases = [
        (broken, ServerError),
        (says([" "]), ServerError),
        (fails(401, b'{"error": {"message": "no"}}'), ServerError),
        (fails(429, b'{"error": {"message": "busy"}}', Retry_After="99"), ServerBusyError),
        (says(["half a character \ufffd\ud800"]), UsageError),
    ]
    for behaviour, error in cases:
        with chat_server(behaviour) as (address, _):
            pipeline = Pipeline.open("any", backend=address, edge=edge)
            with pytest.raises(error):
                pipeline.make([PROMPT], pipeline.plan([PROMPT]))
    with pytest.raises(RequestError, match="bundle"):
        Pipeline.open("any", backend="openai:http://localhost:1/v1")
    with pytest.raises(RequestError, match="model"):
        Pipeline.open("tiny", backend="openai:http://localhost:1/v1", edge=edge)


def test_the_commands_ask_the_server(
    edge: EdgeRuntime, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, form, out = tmp_path / "key", tmp_path / "form.json", tmp_path / "payload.bin"
    key.write_text("secret\n")
    form.write_text('{"type": "json_object"}')
    monkeypatch.setenv("CLOUD_ANCHOR_KEY", "another service's")
    monkeypatch.chdir(tmp_path)
    thought = "<think>Hm.</think>"
    with chat_server(says([thought, *PIECES])) as (address, asked):
        about = ["--backend", address, "--model", "any", "--edge", str(TINY_BUNDLE), "--prompt", PROMPT]
        assert anchor([*about, "-o", str(out), "--json", "--no-embed-prompt"]) == 0
        report = json.loads(capsys.readouterr().out)
        more = f"{address}?key={key}&format={form}&reasoning=keep&timeout=20"
        assert anchor([*about, "--backend", more]) == 0
        assert thought in capsys.readouterr().err
        assert demo([*about, "-o", str(out.with_name("demo.bin"))]) == 0
        for wrong in ("?reasoning=no", "?timeout=x", "?shape=1", "?timeout=0"):
            assert anchor([*about, "--backend", address + wrong]) == 2
    request = edge.read(out.read_bytes(), PROMPT)
    assert edge.bundle.tokenizer.decode(request.anchors.ids) == TEXT.strip()
    assert report["length"] == len(request.anchors)
    assert [each["key"] for each in asked] == [None, "Bearer secret", None]
    assert asked[1]["response_format"] == {"type": "json_object"}
    assert asked[1]["messages"] == [{"role": "user", "content": PROMPT}]


def test_a_service_streams_payloads_that_grow(edge: EdgeRuntime) -> None:
    limits = Limits(batch=2, queue=4, deadline=20)
    with chat_server(says(PIECES)) as (address, _):
        pipeline = Pipeline.open("any", backend=address, edge=edge)
        with served(local(pipeline, limits, pipeline.plan()), limits) as client:
            body = {"prompt": PROMPT, "fractions": [0.02, 0.04, 0.05, 1.0]}
            events = client.ask("POST", "/v1/anchors/stream", body).events
            plain = client.anchors(prompt=PROMPT)
    found = [data for name, data in events if name == "payload"]
    assert len(found) >= 3
    assert [each["last"] for each in found] == [False] * (len(found) - 1) + [True]
    assert all(each["delta"] for each in found[1:])
    assert sorted(each["anchors"] for each in found) == [each["anchors"] for each in found]
    assert found[0]["anchors"] < found[-1]["anchors"] == found[-1]["length"]
    assert plain.status == 200
    ids = edge.prompt_ids(PROMPT)
    anchors = decode(plain.body, Shared(edge.bundle.contract, ids))
    assert edge.bundle.tokenizer.decode(anchors.ids) == TEXT.strip()


def test_a_service_tells_of_the_server_without_its_words(edge: EdgeRuntime) -> None:
    limits = Limits(batch=2, queue=4, deadline=20)
    refuses = fails(404, b'{"error": {"message": "no such model: secret"}}')
    with chat_server(says(PIECES), refuses) as (address, _):
        pipeline = Pipeline.open("any", backend=address, edge=edge)
        with served(local(pipeline, limits, pipeline.plan()), limits) as client:
            reply = client.anchors(prompt=PROMPT)
    assert reply.status == 502
    assert b"secret" not in reply.body


def test_no_pytorch_is_needed() -> None:
    code = "import sys; sys.modules['torch'] = None; import cloud_anchor.pipeline; "
    code += "import cloud_anchor.serve.http.app, cloud_anchor.serve.batching.local; "
    subprocess.run([sys.executable, "-c", code], check=True)
