"""The load test: what a stranger asks, and the figures that are published."""

from __future__ import annotations

import json

import pytest

from cloud_anchor.errors import RequestError
from lab.benches.load import LoadClient, LoadOptions, LoadPhase, Stranger, held_out, published


def test_a_stranger_asks_in_many_ways_that_no_batch_holds_together() -> None:
    stranger = Stranger("http://localhost:1", None, None)
    bodies = [json.loads(stranger._request().partition(b"\r\n\r\n")[2]) for _ in range(200)]
    assert len({(body["order"], body["stop"]) for body in bodies}) > 10
    lengths = sorted(len(body["prompt"]) for body in bodies)
    assert lengths[-1] > 4 * lengths[100]


def test_held_out_questions_of_a_source_are_asked() -> None:
    prompts = held_out("testbed:profile")
    client = LoadClient("http://localhost:1", None, 0.1, prompts=prompts)
    bodies = [json.loads(client._request().partition(b"\r\n\r\n")[2]) for _ in range(20)]
    assert len(set(prompts)) == len(prompts) > 100
    assert {body["prompt"] for body in bodies} <= set(prompts)
    with pytest.raises(RequestError, match="--data nothing: expected"):
        held_out("nothing")


def test_published_figures_are_the_table_of_the_page() -> None:
    phase = LoadPhase("3x", 2.0, deadline=5.0)
    phase.ended = phase.began + 2
    for status, seconds in (("200", 1.0), ("200", 2.0), ("503", 0.01)):
        phase.asked += 1
        phase.record(phase.began, status, seconds)
    phase.memory = [10**9] * 4
    figures = published({"phases": [phase.report()]}, "a command")
    (row,) = figures["tables"]["load"]["rows"]
    assert (row["phase"], row["asked/s"]) == ("3x", 1.5)
    assert "2 x 200, 1 x 503" in row["statuses"]
    assert "1000 - 1000 (1000)" in row.values()
    assert figures["description"] == ["a command"]


def test_a_stranger_needs_a_service_whose_keys_are_known() -> None:
    with pytest.raises(RequestError, match="of a service started here, found --url as well"):
        LoadOptions(stranger=5.0, url="http://localhost:8080")
