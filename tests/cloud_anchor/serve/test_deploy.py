"""Deployment: the compose file and cluster settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloud_anchor.errors import RequestError
from cloud_anchor.serve.__main__ import parser
from cloud_anchor.serve.cluster import PREFIX, ClusterSettings

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
    assert ClusterSettings.from_environment({"CLOUD_ANCHOR_KEYS": "none"}).api_keys == ()
    keys = f"{'a' * 24}, {'b' * 24},"
    assert ClusterSettings.from_environment({"CLOUD_ANCHOR_KEYS": keys}).api_keys == ("a" * 24, "b" * 24)
