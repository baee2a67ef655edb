"""Deployment: manifests, cluster settings, load test and capacity plan."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.serve.__main__ import parser
from cloud_anchor.serve.cluster import PREFIX, ClusterSettings
from lab.benches import load
from tests.cloud_anchor.serve.service_runner import local, served

DEPLOY = Path(__file__).resolve().parents[3] / "cloud_anchor" / "serve" / "deploy"
NAMES = {PREFIX + field.name.upper() for field in fields(ClusterSettings)}


def documents(name: str) -> list[Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_the_compose_file_gives_options_that_exist() -> None:
    (compose,) = documents("compose.yaml")
    service = compose["services"]["anchors"]
    parser().parse_args([word.replace("${MODEL:-testbed}", "testbed") for word in service["command"]])
    assert service["environment"].keys() - {"HF_HOME"} <= NAMES
    context = (DEPLOY / service["build"]["context"]).resolve()
    assert (context / service["build"]["dockerfile"]).is_file()


def test_cluster_settings_are_read_from_the_environment() -> None:
    key = "k" * 24

    def read(**given: str) -> ClusterSettings:
        settings = {PREFIX + name: value for name, value in ({"KEYS": key} | given).items()}
        return ClusterSettings.from_environment(settings | {"OTHER": "x"})

    expected = ClusterSettings(model="m", keys=key, gpus=0.5, max_engines=4)
    assert read(MODEL="m", GPUS="0.5", MAX_ENGINES="4") == expected
    with pytest.raises(RequestError):
        read(BATCH="many")
    with pytest.raises(RequestError):
        read(MIN_ENGINES="3")
    with pytest.raises(RequestError):
        _ = read(BATCH="0").limits


def test_a_cluster_without_keys_has_to_be_asked_for() -> None:
    for empty in ({}, {"CLOUD_ANCHOR_KEYS": ""}, {"CLOUD_ANCHOR_KEYS": " ,"}):
        with pytest.raises(RequestError):
            ClusterSettings.from_environment(empty)
    assert ClusterSettings.from_environment({"CLOUD_ANCHOR_KEYS": "none"}).api_keys == ()
    keys = f"{'a' * 24}, {'b' * 24},"
    assert ClusterSettings.from_environment({"CLOUD_ANCHOR_KEYS": keys}).api_keys == ("a" * 24, "b" * 24)


def test_the_load_script_counts_every_answer(
    dream_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(local(Pipeline.open(str(dream_folder)))) as client:
        options = [
            "--url",
            client.url,
            "--seconds",
            "1",
            "--capacity-seconds",
            "0.5",
            "--at",
            "1",
            "6",
        ]
        code = load.main([*options, "--clients", "4", "--json", "--fraction", "0.25"])
        found = json.loads(capsys.readouterr().out)
        assert code == 0
        assert [phase["phase"] for phase in found["phases"]] == ["capacity", "1x", "6x"]
        for phase in found["phases"]:
            assert sum(phase["statuses"].values()) == phase["asked"] > 0
            assert phase["p50_seconds"] <= phase["p99_seconds"]
        assert "503" in found["phases"][2]["statuses"]
    assert load.main(["--url", client.url, "--seconds", "0"]) == 2
    monkeypatch.setattr(load.asyncio, "sleep", no_sleep)
    assert load.main(["--url", client.url]) == 1
    assert "does not respond" in capsys.readouterr().err
    assert load.main(["--url", "localhost"]) == 2
    assert "expected http://host:port, found 'localhost'" in capsys.readouterr().err


async def no_sleep(seconds: float) -> None:
    """Nobody is to be waited for."""


def test_a_refusal_is_in_time_where_the_next_answer_would_have_been() -> None:
    phase = load.LoadPhase("x", 1.0, deadline=5.0)
    for began, status, seconds in (
        (0.0, "503", 0.0),
        (1.0, "200", 4.0),
        (2.0, "503", 0.0),
        (1.5, "503", 0.0),
    ):
        phase.record(began, status, seconds)
    phase.record(0.5, "200", 0.1)
    # The answer is there after 5 s; the next one, a second and a half later, would do for one asked at 1.5 s.
    assert phase.refused_in_time(1.5) == 2
    assert phase.refused_in_time(1.6) == 1
    assert phase.refused_in_time(2.1) == 0


def test_quantiles_are_values_that_occurred() -> None:
    assert load.quantile([], 0.5) is None
    assert load.quantile([3.0], 0.99) == 3.0
    assert load.quantile([4.0, 1.0, 2.0, 3.0], 0.5) == 2.0
    assert load.quantile([float(n) for n in range(1, 101)], 0.99) == 99.0
