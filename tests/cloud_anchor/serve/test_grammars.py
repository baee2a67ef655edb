"""Requests with a JSON schema: payloads made for it, and strangers' schemas that cost the service little."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cloud_anchor import pipeline as pipeline_module
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.selection.select import Selection
from cloud_anchor.serve.batching import grammars
from cloud_anchor.serve.batching.grammars import Grammars
from cloud_anchor.serve.errors import ServiceError
from edge_runtime import fill as cli
from edge_runtime.assistant import PREFER_IN_CLOUD, Assistant
from edge_runtime.client.client import Client as ServiceClient
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.session import EdgeSession
from payload import Base, Shared, decode
from payload.errors import ChecksumError
from tests.cloud_anchor.serve.service_runner import LIMITS, PLAN, Client, local, served

pytest.importorskip("llguidance")

PROMPT = "Where does the river end?"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
    "required": ["place", "sure"],
    "additionalProperties": False,
}
GRAMMAR = Grammar.json_schema(SCHEMA)
PAIR = ["--edge", "tiny-qwen"]


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline.open("tiny")


@pytest.fixture(scope="module")
def client(pipeline: Pipeline) -> Iterator[Client]:
    limits = replace(LIMITS, body_bytes=1 << 16)
    with served(local(pipeline, limits), limits) as made:
        yield made


@pytest.fixture(scope="module")
def edge() -> EdgeRuntime:
    return EdgeRuntime.open("edge_runtime/bundles/tiny-qwen", threads=1)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA, indent=2))
    return str(file)


def test_a_payload_is_made_for_the_schema_and_the_device_checks_that(
    client: Client, pipeline: Pipeline, edge: EdgeRuntime
) -> None:
    assert client.ask("GET", "/v1/contract").json["json_schema"] is True
    reply = client.anchors(prompt=PROMPT, json_schema=SCHEMA)
    (made,) = pipeline.make([PROMPT], replace(PLAN, steps=4), grammar=GRAMMAR)
    assert (reply.status, reply.body) == (200, pipeline.payload(made))
    request = edge.read(reply.body, PROMPT, GRAMMAR)
    answer = edge.fill(request, edge.options(grammar=GRAMMAR))
    text = edge.bundle.tokenizer.decode([token.id for token in answer])
    jsonschema.validate(json.loads(text), SCHEMA)
    assert [*made.draft] == edge.bundle.tokenizer.encode_bytes(text.encode()) or made.walk is not None
    assert answer.stats.dropped == answer.stats.realigned == 0
    for other in (None, Grammar.json_schema({"type": "object"})):
        with pytest.raises(ChecksumError, match="grammar"):
            edge.read(reply.body, PROMPT, other)


def test_a_stream_for_a_schema_adds_up(client: Client, edge: EdgeRuntime) -> None:
    body = {"prompt": PROMPT, "json_schema": SCHEMA, "fractions": [0.25, 0.5, 1.0]}
    events = client.ask("POST", "/v1/anchors/stream", body).body.decode().split("\n\n")
    found = [json.loads(event.partition("data: ")[2]) for event in events if "event: payload" in event]
    assert [each["step"] for each in found][:2] == [4, 8]
    assert found[-1]["last"]
    contract, base = replace(edge.bundle.contract, grammar=GRAMMAR.identity), None
    for each in found:
        data = base64.b64decode(each["payload"])
        shared = Shared(contract, edge.prompt_ids(PROMPT), base=base if each["delta"] else None)
        base = Base(data, decode(data, shared))


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_from_the_command_line_to_valid_json(
    client: Client, schema: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--url", client.url, "--prompt", PROMPT, "--json-schema", schema, "--json", way, *PAIR]
    assert cli.main(asked) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(json.loads(answer["text"]), SCHEMA)
    assert answer["service"]["payload_bytes"]
    assert answer["service"]["fell_back"] is None


def test_an_assistant_asks_with_its_schema(client: Client, edge: EdgeRuntime) -> None:
    assistant = Assistant(EdgeSession(edge), ServiceClient(client.url), mode=PREFER_IN_CLOUD)
    answer = assistant.ask(PROMPT, schema=SCHEMA)
    text = edge.bundle.tokenizer.decode([token.id for token in answer])  # type: ignore[union-attr]
    jsonschema.validate(json.loads(text), SCHEMA)
    assert answer.anchors.contract.grammar == GRAMMAR.identity
    assert answer.service is not None
    assert answer.service.payload_bytes


@pytest.mark.parametrize(
    ("fields", "status", "code", "expected"),
    [
        ({"json_schema": {"type": "banana"}}, 400, "invalid_schema", "engine can follow"),
        ({"json_schema": {"enum": [f"{n:x}" for n in range(60)] * 2, "not": {}}}, 400, "invalid_schema", ""),
        ({"json_schema": {"$ref": "http://example.com/a"}}, 400, "invalid_schema", "engine can follow"),
        ({"json_schema": [1]}, 422, "invalid_request", "json_schema"),
        ({"json_schema": None}, 422, "invalid_request", "a value or no such field"),
        ({"json_schema": SCHEMA, "max_bytes": 64}, 422, "invalid_request", "no max_bytes"),
        ({"json_schema": SCHEMA, "select": "paper"}, 422, "invalid_request", "select edge-aware"),
        ({"json_schema": SCHEMA, "codec": "predictive"}, 422, "invalid_request", "codec compact"),
        ({"json_schema": {"enum": ["x" * (1 << 16)]}}, 413, "body_too_large", "body"),
        ({"json_schema": {"type": "string", "minLength": 900}}, 400, "invalid_schema", "at most"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_error(
    client: Client, fields: dict[str, Any], status: int, code: str, expected: str
) -> None:
    reply = client.anchors(prompt=PROMPT, **fields)
    assert (reply.status, reply.code) == (status, code), reply.body
    assert expected in reply.json["error"]["expected"]


@pytest.mark.parametrize("depth", [900, 980, 5000])
def test_a_deep_schema_is_one_clear_error(client: Client, depth: int) -> None:
    for opening, closing in (('{"properties":', "}"), ("[", "]")):
        deep = f'{{"prompt":"a","json_schema":{opening * depth}{{}}{closing * depth}}}'.encode()
        reply = client.ask("POST", "/v1/anchors", deep)
        assert reply.status in (400, 413, 422), reply.body
        assert reply.code


def test_a_schema_that_would_not_end_holds_up_nobody_else(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its trial, in a process with limits, nor what it takes once it has been admitted."""
    began = threading.Event()

    def endless(engine: Any, run: Any, contract: Any, config: Any, grammar: Any, check: Any) -> Any:
        began.set()
        while True:
            time.sleep(0.01)
            check()

    monkeypatch.setattr(pipeline_module, "constrained", endless)
    with served(local(pipeline)) as client:
        replies = []
        asked = {"prompt": PROMPT, "json_schema": SCHEMA, "deadline": 2.0}
        slow = threading.Thread(target=lambda: replies.append(client.anchors(**asked)))
        slow.start()
        assert began.wait(20)
        assert client.anchors(prompt=PROMPT).status == 200
        assert not replies
        slow.join(20)
        assert (replies[0].status, replies[0].code) == (504, "deadline_exceeded")
        client.wait_until_idle()


def test_only_so_many_schemas_wait_for_their_trial(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    monkeypatch.setattr(grammars, "CompiledGrammar", lambda grammar, vocabulary: go.wait(20) and grammar)

    async def ask() -> list[Any]:
        found = Grammars(pipeline, replace(LIMITS, schemas=3))
        work = [
            asyncio.ensure_future(found.compiled(Grammar.json_schema({"const": n}), 20)) for n in range(3)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ServiceError, match="fewer than 3 schemas"):
            await found.compiled(Grammar.json_schema({"const": 3}), 20)
        go.set()
        made = await asyncio.gather(*work)
        assert await found.compiled(Grammar.json_schema({"const": 1}), 20) is made[1]
        found.close()
        return made

    assert len(asyncio.run(ask())) == 3


def test_a_service_without_an_edge_model_is_asked_without_the_schema(
    schema: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bare = Pipeline.open("tiny", edge=None)
    bare.scorer, bare.predictive_model = None, None
    with served(local(bare)) as client:
        assert client.ask("GET", "/v1/contract").json["json_schema"] is False
        reply = client.anchors(prompt=PROMPT, json_schema=SCHEMA)
        assert (reply.status, reply.code) == (422, "schema_unsupported")
        assert "json_schema" not in json.dumps(
            client.ask("GET", "/openapi.json").json["components"]["schemas"]["AnchorsRequest"]
        )
        asked = ["--url", client.url, "--prompt", PROMPT, "--json-schema", schema, "--json", *PAIR]
        assert cli.main(asked) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    jsonschema.validate(json.loads(answer["text"]), SCHEMA)
    assert "asked for one without" in err
    assert answer["service"]["payload_bytes"]


def test_no_default_of_a_service_is_broken_by_a_schema(pipeline: Pipeline) -> None:
    for selection in (Selection(max_bytes=64), Selection("paper")):
        backend = local(pipeline)
        backend.selection = selection
        backend.info = backend._info("test")
        with served(backend) as client:
            assert client.anchors(prompt=PROMPT, json_schema=SCHEMA).code == "schema_unsupported"
