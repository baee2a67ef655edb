"""The page: its paths and headers, the trace behind it, and the whole of it in a browser."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud_anchor.errors import CheckpointError, RequestError
from cloud_anchor.model.checkpoint import EXAMPLES, read_examples
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.serve import __main__ as command
from cloud_anchor.serve.batching.forecast import InProgress
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.errors import ServiceError
from cloud_anchor.serve.http.keys import ApiKeys
from cloud_anchor.serve.page import DEVICE_FILES, FILES, Page, device_path
from cloud_anchor.serve.trace import ALONE, COLUMNS, Tracer
from cloud_anchor.shipped import DEFAULT_MODEL
from edge_runtime.predictor import read_logits
from edge_runtime.runtime import EdgeRuntime, FillRequest
from payload import AnchorSet
from tests.cloud_anchor.serve import page_browser
from tests.cloud_anchor.serve.service_runner import LIMITS, PLAN, Client, local, served

PROMPT = "Where does the river end?"
KEY = "k" * 24
Events = list[tuple[str, Any]]


def page_of(backend: LocalBackend, edge: EdgeRuntime, most: int = 4) -> Page:
    return Page(Tracer(backend, edge, most), [PROMPT])


@pytest.fixture(scope="module")
def client(pipeline: Pipeline, edge: EdgeRuntime) -> Iterator[Client]:
    backend = local(pipeline)
    with served(backend, page=page_of(backend, edge)) as made:
        yield made


def column(events: Events, name: str) -> Events:
    return [(kind, data) for kind, data in events if data.get("column") == name]


# Paths and headers.


@pytest.mark.parametrize("path", FILES)
def test_the_files_are_there_and_the_policy_allows_only_them(client: Client, path: str) -> None:
    reply = client.ask("GET", path)
    assert reply.status == 200
    assert reply.headers["content-type"] == FILES[path][1]
    assert not re.search(r"innerHTML|eval\(", reply.body.decode())
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["form-action"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {policy[kind] for kind in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"


def test_a_service_without_the_page_has_none_of_its_paths(pipeline: Pipeline) -> None:
    with served(local(pipeline)) as client:
        for path in (*FILES, "/v1/page"):
            assert client.ask("GET", path).code == "unknown_path"
        assert client.ask("POST", "/v1/trace", {"prompt": PROMPT}).code == "unknown_path"


def test_the_page_needs_no_key_and_its_questions_do(pipeline: Pipeline, edge: EdgeRuntime) -> None:
    backend = local(pipeline)
    with served(backend, keys=ApiKeys([KEY]), page=page_of(backend, edge)) as client:
        assert client.ask("GET", "/").status == 200
        for method, path, body in (("GET", "/v1/page", None), ("POST", "/v1/trace", {"prompt": PROMPT})):
            assert client.ask(method, path, body).code == "unauthorized"
            assert client.ask(method, f"{path}?key={KEY}", body).code == "unauthorized"
            assert client.ask(method, path, body, Authorization=f"Bearer {KEY}").status == 200


@pytest.mark.parametrize("fields", [{}, {"prompt": ""}, {"fraction": 0}, {"select": "paper"}])
def test_bad_questions_are_refused(client: Client, fields: dict[str, Any]) -> None:
    body = {"prompt": "x", **fields} if fields else {}
    assert client.ask("POST", "/v1/trace", body).code == "invalid_request"


def test_a_question_outside_the_shipped_world_is_told_what_the_pair_knows(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.backend, "info", replace(client.backend.info, model=DEFAULT_MODEL))
    reply = client.ask("POST", "/v1/trace", {"prompt": "hello"})
    assert (reply.status, reply.code) == (422, "unknown_subject")
    assert client.ask("POST", "/v1/trace", {"prompt": "What is the capital of Japan?"}).status == 200


def test_the_description_has_the_trace_and_not_the_pages_own_paths(client: Client) -> None:
    schema = client.ask("GET", "/openapi.json").json
    assert not {"/", "/v1/page"} & set(schema["paths"])
    (event,) = schema["paths"]["/v1/trace"]["post"]["responses"]["200"]["content"].values()
    assert {"step", "token", "error"} <= set(event["schema"]["properties"]["event"]["enum"])
    assert set(schema["components"]["schemas"]["CanvasDraft"]["required"]) >= {"step", "text", "tokens"}


# The trace.


@pytest.fixture(scope="module")
def events(client: Client) -> Events:
    return client.ask("POST", "/v1/trace", {"prompt": PROMPT, "fraction": 0.5}).events


def test_a_trace_has_every_part_in_order(events: Events) -> None:
    assert events[0][0] == "plan"
    assert events[0][1]["columns"] == list(COLUMNS)
    assert events[-1] == ("done", {})
    for name in COLUMNS[:2]:
        kinds = [kind for kind, _ in column(events, name)]
        text = kinds.count("token")
        steps = kinds.count("step")
        assert kinds == ["step"] * steps + ["payload", "sent"] + ["token"] * text + ["reasons", "end"]
        assert steps > 0 < text
    assert {kind for kind, _ in column(events, ALONE)} == {"token", "end"}


@pytest.mark.parametrize("name", COLUMNS[:2])
def test_the_steps_are_those_of_the_run(events: Events, name: str, pipeline: Pipeline) -> None:
    steps = [data for kind, data in column(events, name) if kind == "step"]
    assert [data["step"] for data in steps] == list(range(1, len(steps) + 1))
    for before, after in itertools.pairwise(steps):
        assert after["committed"] >= before["committed"]
        for old, new in zip(before["tokens"], after["tokens"], strict=False):
            if old[2]:
                assert new == old  # what is committed never changes
    for data in steps:
        assert len(data["tokens"]) <= data["canvas"] == PLAN.canvas
        for _, sure, when in data["tokens"]:
            assert 0 <= when <= data["step"]
            assert 0 <= sure <= 1
            assert sure > 0 or not when


@pytest.mark.parametrize("name", COLUMNS[:2])
def test_bytes_and_text_are_those_that_a_device_has(
    events: Events, name: str, client: Client, edge: EdgeRuntime
) -> None:
    found = dict(column(events, name))
    data = client.anchors(prompt=PROMPT, fraction=0.5, select=name, confidence=True).body
    assert found["payload"]["hex"] == data.hex()
    assert found["payload"]["bytes"] == len(data)
    request = edge.read(data, PROMPT)
    assert [position for position, _ in found["sent"]["sent"]] == list(request.anchors.positions)
    assert found["sent"]["doubt"] == request.doubt is not None
    assert found["payload"]["anchors"] == len(request.anchors) > 0
    answer = edge.fill(request)
    expected = list(answer)
    shown = [data for kind, data in column(events, name) if kind == "token"]
    assert "".join(data["text"] for data in shown) == edge.bundle.tokenizer.decode([t.id for t in expected])
    assert [data["position"] for data in shown if data["anchor"]] == list(request.anchors.positions)
    assert found["end"]["tokens"] == len(expected)
    assert found["end"]["passes"] == answer.stats.passes


def test_the_device_alone_has_nothing(events: Events, edge: EdgeRuntime) -> None:
    nothing = AnchorSet.empty(PLAN.canvas, edge.bundle.contract)
    alone = list(edge.fill(FillRequest(edge.prompt_ids(PROMPT), nothing)))
    shown = [data for kind, data in column(events, ALONE) if kind == "token"]
    assert "".join(data["text"] for data in shown) == edge.bundle.tokenizer.decode([t.id for t in alone])
    assert not any(data["anchor"] for data in shown)


@pytest.mark.parametrize("name", COLUMNS[:2])
def test_the_reason_of_an_anchor_is_what_the_device_would_have_written(
    events: Events, name: str, edge: EdgeRuntime
) -> None:
    found = dict(column(events, name))
    request = edge.read(bytes.fromhex(found["payload"]["hex"]), PROMPT)
    text = [token.id for token in edge.fill(request)]
    rows = list(read_logits(edge.engine, request.prompt_ids, text))
    ends = sorted(edge.bundle.contract.eos_ids)
    assert [position for position, *_ in found["reasons"]["reasons"]] == list(request.anchors.positions)
    for position, token, same, margin in found["reasons"]["reasons"]:
        logits = np.array(rows[position])
        logits[ends] = -np.inf
        second, first = np.sort(logits)[-2:]
        best = int(logits.argmax())
        assert token == edge.bundle.tokenizer.token_bytes(best).decode("utf-8", "replace")
        assert same == (best == request.anchors.by_position[position])
        assert margin == pytest.approx(float(first - second), abs=0.02)


def test_a_device_with_another_vocabulary(across: Pipeline, other_edge: EdgeRuntime) -> None:
    backend = local(across)
    with served(backend, page=page_of(backend, other_edge)) as client:
        found = client.ask("POST", "/v1/trace", {"prompt": PROMPT}).events
    assert found[0][1]["aligned"] is False
    assert found[-1][0] == "done"
    assert not [data for kind, data in found if kind == "error"]


def test_what_fails_is_told_in_its_column(client: Client) -> None:
    found = client.ask("POST", "/v1/trace", {"prompt": "word " * 700}).events
    assert found[-1][0] == "done"
    for name in COLUMNS[:2]:
        ((kind, data),) = column(found, name)
        assert (kind, data["code"]) == ("error", "prompt_too_long")


def test_only_so_many_questions_at_a_time(pipeline: Pipeline, edge: EdgeRuntime) -> None:
    async def both() -> str:
        backend = local(pipeline)
        tracer = Tracer(backend, edge, most=1)
        await backend.open()
        try:
            async with aclosing(tracer.events(PROMPT)) as one:
                await anext(one)
                tracer.open_traces._seconds = 16.0  # as the last ones took
                with pytest.raises(ServiceError) as refused:
                    await anext(tracer.events(PROMPT))
                assert 10 < (refused.value.retry_after or 0) <= 16
            assert len(tracer.open_traces) == 0
            async for name, _ in tracer.events(PROMPT):
                last = name
            return f"{refused.value.code} {last}"
        finally:
            await backend.close()

    assert asyncio.run(both()) == "overloaded done"


def test_the_next_place_is_forecast_from_how_long_the_last_ones_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("cloud_anchor.serve.batching.forecast.time.monotonic", lambda: now)
    asked = InProgress()
    for _ in range(12):
        with asked.one():
            now += 8.0
    with suppress(ZeroDivisionError), asked.one():
        raise ZeroDivisionError  # refused at once
    with asked.one():
        now += 5.0
        with asked.one():
            assert (len(asked), round(asked.seconds_left(), 1)) == (2, 3.0)
            now += 9.0
            assert asked.seconds_left() == 0
    assert len(asked) == 0


def test_a_question_ends_at_the_deadline(pipeline: Pipeline, edge: EdgeRuntime) -> None:
    async def late() -> Events:
        backend = local(pipeline, replace(LIMITS, deadline=0.2), replace(PLAN, total_steps=400))
        tracer = Tracer(backend, edge)
        await backend.open()
        tracer._device = held = asyncio.Lock()
        await held.acquire()  # another question's answer, which does not end
        try:
            return [each async for each in tracer.events(PROMPT, 1.0)]
        finally:
            await backend.close()

    name, data = asyncio.run(late())[-1]
    assert (name, data["code"]) == ("error", "deadline_exceeded")


def test_a_client_that_leaves_ends_its_work(pipeline: Pipeline, edge: EdgeRuntime) -> None:
    backend = local(pipeline, replace(LIMITS, deadline=60), replace(PLAN, total_steps=4000))
    page = page_of(backend, edge)
    with served(backend, replace(LIMITS, deadline=60), page=page) as client:
        body = json.dumps({"prompt": PROMPT, "fraction": 1.0}).encode()
        head = "POST /v1/trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert connection.recv(1000)
            assert len(page.tracer.open_traces) == 1
        client.wait_until_idle()
        end = time.monotonic() + 20
        while len(page.tracer.open_traces) and time.monotonic() < end:
            time.sleep(0.02)
        assert len(page.tracer.open_traces) == 0
        assert edge.fill(edge.read(client.anchors(prompt=PROMPT).body, PROMPT))  # the engine is usable


# The command line.


def test_the_page_is_on_where_only_this_machine_reaches_it(pipeline: Pipeline, dream_folder: Path) -> None:
    def page(*options: str, edge: Pipeline = pipeline) -> Page | None:
        args = command.parser().parse_args(["--model", str(dream_folder), *options])
        return command._page(args, local(edge))

    assert page() is not None
    assert page("--host", "localhost") is not None
    assert page("--page", "off") is None
    assert page("--host", "0.0.0.0") is None
    assert page("--host", "0.0.0.0", "--page", "on") is not None
    without = Pipeline(pipeline.model, pipeline.form)
    assert page(edge=without) is None
    with pytest.raises(RequestError):
        page("--page", "on", edge=without)


def test_examples_are_a_list_of_questions(tmp_path: Path) -> None:
    assert read_examples(tmp_path) == []
    (tmp_path / EXAMPLES).write_text('["Why?"]')
    assert read_examples(tmp_path) == ["Why?"]
    for wrong in ("{", "{}", "[1]"):
        (tmp_path / EXAMPLES).write_text(wrong)
        with pytest.raises(CheckpointError):
            read_examples(tmp_path)


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    pytest.importorskip("playwright", reason="needs the package playwright (extra dev)")
    if page_browser.CHROMIUM is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium), found none")
    with page_browser.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with page_browser.shipped_page() as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_words_precede_an_answer_in_doubt_on_the_page(browser: Any, address: str, limit: float) -> None:
    page = page_browser.opened(browser, address, 1180)
    told = {"not_sure_from": limit, "knows": "towns"}
    page.route("**/v1/page", lambda route: route.fulfill(json={**route.fetch().json(), **told}))
    page.reload()
    page.wait_for_selector("#examples button")
    page_browser.ask(page, page_browser.PICTURE_QUESTION)
    for name in COLUMNS:
        said = page.inner_text(f"[data-column={name}] .device-part")
        assert ("The cloud is not sure:" in said) == (limit == 0 and name != ALONE)
    assert page.inner_text("#knows") == "Knows towns."


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1180, "light"), (390, "dark")])
def test_a_question_is_answered_three_ways(browser: Any, address: str, width: int, scheme: str) -> None:
    page = page_browser.opened(browser, address, width, scheme=scheme)
    page_browser.ask(page, page_browser.PICTURE_QUESTION)
    texts = {name: page.inner_text(f"[data-column={name}] .text") for name in COLUMNS}
    assert all("Torden" in text for text in texts.values())
    assert texts[COLUMNS[0]] not in (texts["paper"], texts[ALONE])  # it is a question that shows something
    for name in COLUMNS[:2]:
        shown = page.inner_text(f"[data-column={name}] .hex").split()
        sent = page.locator(f"[data-column={name}] .anchors li").count()
        figures = page.locator(f"[data-column={name}] .figures dd").all_inner_texts()
        assert figures[:2] == [str(len(shown)), str(sent)]
        assert page.locator(f"[data-column={name}] .figures dt").all_inner_texts()[3:] == ["doubt"]
        assert 0 <= float(figures[3]) <= 1
        assert page.locator(f"[data-column={name}] .cell.sent").count() == sent > 0
        assert page.locator(f"[data-column={name}] .text .anchor").count() == sent
        # Back to the first step.
        committed = page.locator(f"[data-column={name}] .cell.committed, [data-column={name}] .cell.sent")
        last = committed.count()
        assert page.inner_text(f"[data-column={name}] .progress").startswith(f"step {figures[2]} of 128")
        page.evaluate(
            "name => { const scrub = document.querySelector(`[data-column=${name}] .scrub`);"
            "scrub.value = 1; scrub.dispatchEvent(new Event('input')); }",
            name,
        )
        assert page.inner_text(f"[data-column={name}] .progress").startswith("step 1 of 128")
        assert (committed.count() < last) if name == "paper" else (committed.count() <= last)
    marked = {name: page.locator(f"[data-column={name}] .text .other").count() for name in COLUMNS}
    assert marked[COLUMNS[0]] == 0 < min(marked["paper"], marked[ALONE])
    # Nothing is wider than the window, and a dark page is dark.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert (light < 64) == (scheme == "dark")
    assert page.faults == []


@pytest.mark.slow
def test_the_canvas_fills_step_by_step_and_a_question_can_be_stopped(browser: Any, address: str) -> None:
    from playwright.sync_api import expect

    page = page_browser.opened(browser, address, 1180)
    page.select_option("#speed", "3")
    page.fill("#question", page_browser.PICTURE_QUESTION)
    page.click("#go")
    page.wait_for_selector("[data-column=paper] .cell.committed")
    first = page.locator("[data-column=paper] .cell.committed").count()
    assert page.locator("[data-column=paper] .cell.predicted").count() > first
    expect(page.locator("[data-column=paper] .cell.committed")).not_to_have_count(first)
    page.click("#stop")
    page.wait_for_selector(page_browser.DONE)
    assert page.inner_text("#status") == "Stopped."
    assert page.faults == []


@pytest.mark.slow
def test_enter_asks_and_shift_enter_begins_a_line(browser: Any, address: str) -> None:
    from playwright.sync_api import expect

    page = page_browser.opened(browser, address, 1180)
    question = page.locator("#question")
    question.fill("Who is the mayor of Torden?")
    question.press("Shift+Enter")
    assert question.input_value() == "Who is the mayor of Torden?\n"
    assert page.get_attribute("body", "data-state") != "running"
    question.press("Enter")
    expect(page.locator("body")).to_have_attribute("data-state", "running")
    assert question.input_value() == "Who is the mayor of Torden?\n"
    page.click("#stop")
    page.close()


@pytest.mark.slow
def test_a_key_is_asked_for_and_stays_out_of_the_address(browser: Any) -> None:
    with page_browser.shipped_page(ApiKeys([KEY])) as address:
        page = page_browser.opened(browser, address, 1180)
        seen: list[str] = []
        page.on("request", lambda request: seen.append(request.url))
        page.fill("#key", KEY)
        page.press("#key", "Enter")
        page.wait_for_selector("#examples button")
        page_browser.ask(page, page_browser.PICTURE_QUESTION)
        assert "Torden" in page.inner_text("[data-column=alone] .text")
        assert seen
        assert not [url for url in [*seen, page.url] if KEY in url]


# The model in the browser.


@pytest.fixture
def device_folder(tmp_path: Path) -> Path:
    """A folder as `make web-page` builds it, with stand-ins for its files."""
    for name in DEVICE_FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_the_page_runs_the_model_where_its_files_are_given(
    pipeline: Pipeline, edge: EdgeRuntime, device_folder: Path
) -> None:
    backend = local(pipeline)
    page = replace(page_of(backend, edge), device=device_folder)
    with served(backend, page=page) as client:
        assert client.ask("GET", "/v1/page").json["device"] in edge.bundle.manifest.variants
        for name, kind in DEVICE_FILES.items():
            reply = client.ask("GET", device_path(name))
            assert (reply.status, reply.body.decode(), reply.headers["content-type"]) == (200, name, kind)
        headers = client.ask("GET", "/").headers
        assert "'wasm-unsafe-eval'; worker-src 'self'" in headers["content-security-policy"]
        assert headers["cross-origin-embedder-policy"] == "require-corp"
        # No text comes: the trace ends with the payloads.
        events = client.ask("POST", "/v1/trace", {"prompt": PROMPT, "device": False}).events
        assert {name for name, _ in events} == {"plan", "step", "payload", "done"}


def test_without_its_files_the_service_writes_the_devices_part(client: Client) -> None:
    assert client.ask("GET", "/v1/page").json["device"] is None
    for name in ("js/device.js", "sw.js"):
        assert client.ask("GET", device_path(name)).code == "unknown_path"
    events = client.ask("POST", "/v1/trace", {"prompt": PROMPT}).events
    assert {"sent", "token", "end"} <= {name for name, _ in events}


WEB_PAGE = Path(__file__).resolve().parents[3] / "web" / "page" / "dist"
"""What `make web-page` builds."""


def _recorded(page: Any) -> list[str]:
    """Bodies of the page's traces from here on; the browser's record of them gives way to downloads."""
    found: list[str] = []

    def pass_on(route: Any) -> None:
        reply = route.fetch()
        found.append(reply.text())
        route.fulfill(response=reply)

    page.route("**/v1/trace", pass_on)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not (WEB_PAGE / "js").is_dir(), reason="needs make web-page")
def test_the_browser_writes_what_the_service_would_and_without_a_network_what_a_file_says(
    browser: Any,
) -> None:
    def text(name: str) -> str:
        return str(page.inner_text(f"[data-column={name}] .text"))

    def file(data: bytes) -> dict[str, Any]:
        return {"name": "answer.payload", "mimeType": "application/octet-stream", "buffer": data}

    def traces() -> int:
        return sum(url.endswith("/v1/trace") for url in asked)

    asked: list[str] = []
    with page_browser.shipped_page(device=WEB_PAGE) as address:
        page = page_browser.opened(browser, address, 1180)
        page.on("request", lambda request: asked.append(request.url))
        found = _recorded(page)
        page_browser.ask(page, page_browser.PICTURE_QUESTION)
        assert "event: token" not in found[0], "no text came"
        assert any(url.endswith(".onnx.data") for url in asked)
        assert page.faults == []
        online = {name: text(name) for name in COLUMNS}
        given = page.inner_text(f"[data-column={COLUMNS[0]}] .hex").replace(" ", "")
        doubt = page.inner_text(f"[data-column={COLUMNS[0]}] .figures").upper()
        # Switched off, the service writes the device's part.
        page.uncheck("#here")
        page_browser.ask(page, page_browser.PICTURE_QUESTION)
        page.unroute("**/v1/trace")
        assert "event: token" in found[1]
        assert {name: text(name) for name in COLUMNS} == online
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.reload()
    page.wait_for_selector("#examples button")
    assert "answers alone" in page.inner_text("#status")
    page_browser.ask(page, page_browser.PICTURE_QUESTION)
    assert text(ALONE) == online[ALONE]
    assert page.locator(".column").count() == 1
    count = traces()
    payload = bytes.fromhex(given)
    page.click("#own summary")
    page.set_input_files("#payload", file(payload))
    page.wait_for_selector("[data-column=given]")
    page.wait_for_selector(page_browser.DONE)
    assert (text("given"), text(ALONE)) == (online[COLUMNS[0]], online[ALONE])
    assert doubt.split("DOUBT")[-1].split()[0] in page.inner_text("[data-column=given] .figures")
    page.set_input_files("#payload", file(payload[:-1]))
    page.wait_for_selector("[data-column=given] .fault:not([hidden])")
    assert page.inner_text("[data-column=given] .fault").startswith("Expected ")
    page.wait_for_selector(page_browser.DONE)
    page.set_input_files("#payload", file(payload))
    page.wait_for_selector("[data-column=given]:not(:has(.fault:not([hidden])))")
    page.wait_for_selector(page_browser.DONE)
    assert text("given") == online[COLUMNS[0]]
    assert traces() == count  # nothing was sent
