"""Deployment: the compose file and cluster settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.serve.__main__ import parser
from cloud_anchor.serve.cluster import PREFIX, ClusterSettings
from cloud_anchor.serve.http.keys import OPEN

DEPLOY = Path(__file__).resolve().parents[3] / "cloud_anchor" / "serve" / "deploy"
NAMES = {PREFIX + name.upper() for name in ClusterSettings.model_fields}


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
    assert ClusterSettings.from_environment({"CLOUD_ANCHOR_KEYS": "none"}).api_keys == (OPEN,)
    keys = f"{'a' * 24}, {'b' * 24},"
    assert ClusterSettings.from_environment({"CLOUD_ANCHOR_KEYS": keys}).api_keys == ("a" * 24, "b" * 24)


def test_a_cluster_with_less_than_the_engines_take_is_refused() -> None:
    settings = ClusterSettings(keys=OPEN, min_engines=2, max_engines=2)
    with pytest.raises(RequestError):  # two engines and a front
        settings.require_resources({"CPU": 2.0})
    settings.model_copy(update={"cpus": 0.5}).require_resources({"CPU": 2.0})  # the page's command
    with pytest.raises(RequestError):
        settings.model_copy(update={"gpus": 1.0}).require_resources({"CPU": 64.0, "GPU": 1.0})
