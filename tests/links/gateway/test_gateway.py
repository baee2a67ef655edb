"""The gateway's and the device's commands with the shipped pair, over UDP on this machine."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_anchor.pipeline import Pipeline
from cloud_anchor.shipped import PAIRS
from edge_runtime.client.client import Client
from edge_runtime.errors import UsageError
from lab.experiments.doubt import keep
from lab.pairs.tiny.tasks import held_out_problems
from links import LINK_PROFILES, open_link
from links.ask import main as ask_main
from links.frames.question import Question, encode_question
from links.gateway.__main__ import main as gateway_main
from links.gateway.service import ServiceSource
from links.kinds.udp import UdpLink
from links.seal import Seal, make_pair
from payload import Shared
from tests.cloud_anchor.serve.service_runner import LIMITS, gateway_on, local, served

ROOT = Path(__file__).resolve().parents[3]
QUESTION = held_out_problems(1)[0].prompt


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline.open("tiny")


@pytest.fixture(scope="module")
def url(pipeline: Pipeline) -> Iterator[str]:
    with served(local(pipeline, LIMITS, pipeline.plan())) as client:
        yield client.url


@contextmanager
def gateway_at(url: str, seals: Sequence[Seal] = (), identity: bytes | None = None) -> Iterator[str]:
    """A gateway on a free port; the rest as in `gateway_on`."""
    with UdpLink("127.0.0.1", 0, service=True) as link, gateway_on(link, url, seals, identity):
        yield f"udp:{link.address}"


@pytest.fixture
def address(url: str) -> Iterator[str]:
    with gateway_at(url) as found:
        yield found


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = ask_main([*arguments, "--edge", "tiny-qwen", "--threads", "1"])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_question_and_its_answer_are_one_frame_each(
    address: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = asked(capsys, "--link", address, QUESTION, "--json")
    assert code == 0, err
    data = json.loads(out)
    sent, received = data["link"]["sent"], data["link"]["received"]
    assert len(data["service"]["payload_bytes"]) == 1
    # One frame each way, or on a slow machine a repeat.
    assert sent["bytes"] // sent["frames"] + received["bytes"] // received["frames"] <= 100
    assert data["service"]["trouble"] is None
    assert "link       udp: out " in err
    from edge_runtime.fill import main as fill_main

    assert fill_main(["--url", url, "--prompt", QUESTION, "--edge", "tiny-qwen", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == data["text"]


def test_a_question_is_answered_over_meshtastic(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("meshtastic", reason="the extra meshtastic is not installed")
    from tests.links.mesh_nodes import Air, MeshNode

    air = Air()
    service, device = (f"127.0.0.1:{MeshNode(air, number).port}" for number in (0x0A1B2C3D, 0x11223344))
    with open_link(f"meshtastic-tcp-listen:{service}") as near, gateway_on(near, url):
        more = ("--link", f"meshtastic-tcp:{device}", "--no-fallback", "--json")
        code, out, err = asked(capsys, QUESTION, *more)
    for node in air.nodes:
        node.close()
    assert code == 0, err
    assert len(json.loads(out)["service"]["payload_bytes"]) == 1


def test_a_conversation_in_the_terminal_asks_over_the_link(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the modes, what it has cost, and what stays on the device, as with --url."""
    lines = f"/mode prefer_in_cloud\n{QUESTION}\n/why\n{QUESTION}\n/why\n/private {QUESTION}\n/why\n/quit"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert ask_main(["--link", address, "--spend-day", "1", "--edge", "tiny-qwen", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    asked = [line for line in out.splitlines() if line.startswith("asked ")]
    assert len(asked) == 3
    assert re.search(r"out \d+ bytes in \d+ frames, in \d+ bytes in \d+ frames?", asked[0])
    sources = [line.split()[1] for line in out.splitlines() if line.startswith("source ")]
    assert "on_device:" not in sources[:2]
    assert sources[2] == "on_device:"
    assert asked[2] == "asked    nothing"
    assert max(map(len, (line for line in out.splitlines() if line.startswith(("asked", " " * 9))))) <= 80


@pytest.mark.parametrize(("limit", "code"), [(1.0, 0), (0.0, 6)])
def test_an_answer_in_doubt_is_declined_as_it_is_by_fill(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: float, code: int
) -> None:
    bundle = Path(shutil.copytree(PAIRS["tiny"].bundle, tmp_path / "bundle"))
    keep(bundle, not_sure_from=limit)
    with UdpLink("127.0.0.1", 0, service=True) as link, gateway_on(link, url):
        more = ["--link", f"udp:{link.address}", "--edge", str(bundle), "--threads", "1", "--decline"]
        assert ask_main([QUESTION, *more]) == code
    out, err = capsys.readouterr()
    assert "not sure, 0 is the limit" in err if code else "sure, 1 is the limit" in err
    assert bool(out.strip()) == (not code)


def test_a_doubt_that_the_gateway_does_not_tell_is_unknown_and_declined(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = Path(shutil.copytree(PAIRS["tiny"].bundle, tmp_path / "bundle"))
    with UdpLink("127.0.0.1", 0, service=True) as link, gateway_on(link, url, confidence=False):
        more = ["--link", f"udp:{link.address}", "--edge", str(bundle), "--threads", "1", "--decline"]
        assert ask_main([QUESTION, *more]) == 2
        assert "expected a bundle that states its limit of doubt" in capsys.readouterr().err
        keep(bundle, not_sure_from=1.0)
        assert ask_main([QUESTION, *more]) == 6
    out, err = capsys.readouterr()
    assert not out
    assert "doubt unknown" in err


def test_small_frames_bring_the_answer_in_parts(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for largest in (60, 1200):
        profile = replace(LINK_PROFILES["udp"], down=largest)
        with (
            UdpLink("127.0.0.1", 0, service=True, profile=profile) as link,
            gateway_on(link, url),
        ):
            more = ("--fraction", "0.1", "--json")
            code, out, err = asked(capsys, "--link", f"udp:{link.address}", QUESTION, *more)
        assert code == 0, err
        answer = json.loads(out)
        assert all(size <= largest for size in answer["service"]["payload_bytes"])
        texts.append(answer["text"])
    assert texts[0] == texts[1]


def test_sealed_only_the_sealed_are_answered(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device, gateway = make_pair(tmp_path / "one")
    with gateway_at(url, [Seal(gateway)]) as address:
        code, out, err = asked(capsys, "--link", address, QUESTION, "--seal", str(device), "--json")
        assert (code, json.loads(out)["service"]["trouble"]) == (0, None), err
        code, out, err = asked(capsys, "--link", address, QUESTION, "--timeout", "1", "--no-fallback")
        assert code == 5
    code, _, err = asked(capsys, "--link", "udp:localhost:1", QUESTION, "--seal", str(gateway))
    assert (code, "device's side" in err) == (2, True)


def test_where_predictions_differ_the_device_asks_again_in_codec_compact(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def predictive(question: Question, shared: Shared) -> bytes:
        return encode_question(question, shared, "compact" if shared.predictor is None else "predictive")

    monkeypatch.setattr("links.asking.encode_question", predictive)
    with gateway_at(url, identity=b"\xff" * 32) as address:
        code, out, err = asked(capsys, "--link", address, QUESTION, "--json")
    assert code == 0, err
    data = json.loads(out)
    assert data["service"]["trouble"] is None
    assert "predictions of this device and the gateway differ" in data["service"]["fell_back"]
    assert len(data["service"]["payload_bytes"]) == 1


def test_without_an_answer_the_device_answers_alone_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with UdpLink("127.0.0.1", 0, service=True) as silent:
        link = ("--link", f"udp:{silent.address}")
        code, out, err = asked(capsys, *link, QUESTION, "--timeout", "0.5")
        assert (code, out.startswith("This device alone: "), bool(err)) == (7, True, True)
        code, out, err = asked(capsys, *link, QUESTION, "--timeout", "0.5", "--no-fallback")
        assert (code, err.count("\n")) == (5, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--link", "pigeon:coop", "?"],
        ["--link", "udp:localhost:1", ""],
        ["--link", "udp:localhost:1", "?", "--timeout", "0"],
        ["--link", "udp:localhost:1", "?", "--airtime", "0"],
        ["--link", "udp:localhost:1", "?", "--spend-day", "-1"],
        ["--link", "udp:localhost:1", "?", "--fraction", "1.5"],
        ["--link", "udp:localhost:1?largest=12", QUESTION],
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = asked(capsys, *arguments)
    assert (code, err.count("\n")) == (2, 1)


def test_the_gateway_refuses_what_it_cannot_stand_between(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = ["--link", "udp-listen:127.0.0.1:0", "--service", url, "--edge", "tiny-qwen"]
    for changed, code in (
        (["--link", "udp:127.0.0.1:9"], 2),
        (["--service", "http://127.0.0.1:9"], 5),
        (["--edge", "no-such-bundle"], 4),
        (["--spend-day", "-1"], 2),
    ):
        assert gateway_main([*fine, *changed]) == code
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(UsageError):
        ServiceSource.open(Client(url), "0" * 64)


def test_the_gateways_key_does_not_cross_a_network_unencrypted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_ANCHOR_KEY", "secret")
    asked = ["--link", "udp-listen:127.0.0.1:0", "--edge", "tiny-qwen", "--service"]
    assert gateway_main([*asked, "http://192.0.2.1:8080"]) == 2
    assert "secret" not in capsys.readouterr().err
    assert gateway_main([*asked, "http://127.0.0.1:9"]) == 5, "on this machine it may"


def test_the_gateways_command_answers_and_ends_cleanly(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with UdpLink("127.0.0.1", 0, service=True) as found:
        port = found.address.rpartition(":")[2]
    command = [sys.executable, "-m", "links.gateway", "--service", url, "--edge", "tiny-qwen"]
    command += ["--link", f"udp-listen:127.0.0.1:{port}", "--threads", "1"]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"gateway: udp to {url}\n"
        code, out, err = asked(capsys, "--link", f"udp:127.0.0.1:{port}", QUESTION, "--json")
        assert (code, json.loads(out)["service"]["trouble"]) == (0, None), err
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert "question" in rest
