"""python -m edge_runtime.fill: streams, JSON, exit codes and messages, with a real bundle and payloads."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from edge_runtime import fill as cli
from edge_runtime.bundle.bundle import read_manifest
from edge_runtime.decode.forced import agreement
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet, Extras, Shared, encode

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "How many loaves did she sell?"


@pytest.fixture(scope="session")
def edge(tiny_bundle: Path) -> EdgeRuntime:
    return EdgeRuntime.open(tiny_bundle, "fp32", threads=1)


@pytest.fixture(scope="session")
def payloads(edge: EdgeRuntime, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of payloads: with.bin carries its prompt, without.bin does not, long.bin and empty.bin."""
    folder = tmp_path_factory.mktemp("payloads")
    contract, ids = edge.bundle.contract, edge.prompt_ids(PROMPT)
    anchors = AnchorSet((0, 1, 5, 6, 12), (40, 50, 60, 70, 80), 64, contract, 20)
    shared, carried = Shared(contract, ids, edge.bundle.tokenizer), Extras(PROMPT, step=6, total_steps=64)
    (folder / "with.bin").write_bytes(encode(anchors, shared, extras=carried))
    (folder / "without.bin").write_bytes(encode(anchors, shared, extras=replace(carried, prompt=None)))
    (folder / "template.bin").write_bytes(encode(anchors, shared, "template-gzip", carried))
    empty = AnchorSet.empty(16, contract)
    (folder / "empty.bin").write_bytes(encode(empty, shared, extras=Extras(PROMPT)))
    long = AnchorSet((0, 600), (1, 2), 1000, contract)
    (folder / "long.bin").write_bytes(encode(long, shared, extras=Extras(PROMPT)))
    return folder


@pytest.fixture
def fill(
    tiny_bundle: Path, payloads: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """fill(args...) -> (exit code, stdout, stderr), run among the payloads with the bundle in EDGE_MODEL."""
    monkeypatch.chdir(payloads)
    monkeypatch.setenv("EDGE_MODEL", str(tiny_bundle))

    def run(*args: str) -> tuple[int, str, str]:
        code = cli.main([*args, "--threads", "1"])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_the_sample_is_for_the_shipped_bundle(fill: Any) -> None:
    """Whatever $EDGE_MODEL names; `lab.pairs.ship` makes it."""
    code, out, err = fill("--sample")
    assert (code, out[:21], len(out)) == (0, "Peru's area is about ", 395)
    assert "model      testbed-qwen" in err


def test_text_streams_to_stdout_and_figures_to_stderr(fill: Any, edge: EdgeRuntime, payloads: Path) -> None:
    code, out, err = fill("with.bin")
    request = edge.read((payloads / "with.bin").read_bytes())
    tokens = list(edge.fill(request))
    assert code == 0
    assert out == edge.bundle.tokenizer.decode(t.id for t in tokens) + "\n"
    assert "tokens     20: 5 from the cloud, 15 from the edge; ended by length" in err
    assert "passes     15 (0.75 a token)" in err
    assert f"agreement  {agreement(tokens):.2f}" in err
    assert "threads: 1" in err


def test_json_has_exactly_the_documented_shape(fill: Any) -> None:
    code, out, _ = fill("with.bin", "--json")
    answer = json.loads(out)
    assert code == 0
    names = "text tokens passes anchors doubt not_sure alone prompt_tokens seconds peak_rss_bytes"
    assert set(answer) == set(names.split())
    assert set(answer["seconds"]) == {"load", "prefill", "fill"}
    assert all(set(token) == {"id", "position", "source", "logprob"} for token in answer["tokens"])
    assert [t["position"] for t in answer["tokens"]] == list(range(20))
    assert [t["source"] for t in answer["tokens"]].count("anchor") == answer["anchors"] == 5
    assert answer["passes"] == [t["source"] for t in answer["tokens"]].count("fill") == 15
    assert all(t["logprob"] < 0 for t in answer["tokens"])
    assert 10_000_000 < answer["peak_rss_bytes"] < 1 << 34
    assert all(value > 0 for value in answer["seconds"].values())


def test_a_prompt_beside_the_payload(fill: Any) -> None:
    expected = fill("with.bin")[1]
    assert fill("without.bin", "--prompt", PROMPT)[:2] == (0, expected)
    assert fill("template.bin")[:2] == (0, expected)
    assert fill("with.bin", "--context", "200")[:2] == (0, expected)


def test_fewer_tokens_and_an_empty_anchor_set(fill: Any) -> None:
    answer = json.loads(fill("with.bin", "--json", "--max-tokens", "7")[1])
    assert len(answer["tokens"]) == 7
    assert answer["tokens"][-1]["source"] == "anchor"
    answer = json.loads(fill("empty.bin", "--json")[1])
    assert answer["anchors"] == 0
    assert {t["source"] for t in answer["tokens"]} == {"fill"}


def fails(result: tuple[int, str, str], code: int) -> None:
    """One cause, nothing on standard output, no traceback."""
    assert result[:2] == (code, "")
    assert result[2].startswith("fill: ")
    assert "Traceback" not in result[2]


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda sound: b"",
        lambda sound: sound[:2],
        lambda sound: sound[:-1],
        lambda sound: sound[:-1] + bytes([sound[-1] ^ 4]),
        lambda sound: bytes([sound[0], sound[1] ^ 1]) + sound[2:],
        lambda sound: b"PK\x03\x04\x14\x00 something else",
        lambda sound: bytes(600_000),
    ],
)
def test_bad_payloads_end_with_3(
    fill: Any, tmp_path: Path, payloads: Path, spoilt: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "p").write_bytes(spoilt((payloads / "with.bin").read_bytes()))
    fails(fill(str(tmp_path / "p")), 3)


def test_wrong_usage_ends_with_2(fill: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fails(fill("without.bin", "--prompt", "Another?"), 3)
    (tmp_path / "latin").write_bytes(b"\xe4")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("nowhere", "latin", "huge"):
        fails(fill("without.bin", "--messages", str(tmp_path / name)), 2)
    for wrong in (
        [],
        ["with.bin", "--sample"],
        ["with.bin", "--url", "http://localhost:1", "--prompt", "x"],
        ["with.bin", "--prompt", "Another?"],
        ["nowhere.bin"],
        ["without.bin"],
        ["with.bin", "--context", "100000"],
        ["with.bin", "--context", "10"],
        ["long.bin"],
    ):
        fails(fill(*wrong), 2)
    for wrong in (
        ["with.bin", "--threads", "0"],
        ["with.bin", "--max-tokens", "-3"],
        ["with.bin", "--context", "x"],
        ["with.bin", "--prompt", "a", "--messages", "b"],
    ):
        with pytest.raises(SystemExit, match="2"):
            cli.main(wrong)
        assert "usage:" in capfd.readouterr().err


def test_without_a_payload_the_chat_is_named(fill: Any) -> None:
    code, _, err = fill("--prompt", "Why?")
    assert code == 2
    (named,) = re.findall(r"python -m (edge_runtime\.\w+)", err)
    assert find_spec(named)


def test_a_bad_model_ends_with_4(
    fill: Any, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(tiny_bundle, tmp_path / "copy")
    (copy / "fp32" / "model.onnx.data").write_bytes(b"x")
    for wrong in (["--edge", "nowhere"], ["--variant", "int2"], ["--edge", str(copy)]):
        fails(fill("with.bin", *wrong), 4)
    monkeypatch.delenv("EDGE_MODEL")
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path / "none"))
    code, _, err = fill("with.bin")  # a line for each contract that is there
    assert code == 4
    assert "Traceback" not in err


def test_an_installed_bundle_that_fits_is_found(
    fill: Any, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGE_MODEL")
    monkeypatch.setenv("EDGE_BUNDLES", str(tiny_bundle.parent))
    code, _, err = fill("with.bin")
    assert code == 0
    assert "model      tiny-random fp32" in err


def test_bundles_with_the_same_tag_are_told_apart_by_the_checksum(
    fill: Any, tiny_bundle: Path, plain_bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another bundle, whose contract is given the same first digits.
    other = plain_bundle(tmp_path / "many" / "a-first", vocab_size=310)
    (tmp_path / "many" / "b-second").symlink_to(tiny_bundle)
    tag = read_manifest(tiny_bundle).contract.identity[:2]
    manifest = read_manifest(other)
    for number in range(10_000):
        changed = replace(manifest.contract, template_hash=f"{number:064x}")
        if changed.identity.startswith(tag):
            break
    data = replace(manifest, contract=changed).to_json()
    (other / "bundle.json").write_text(json.dumps(data))
    monkeypatch.delenv("EDGE_MODEL")
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path / "many"))
    code, _, err = fill("with.bin")
    assert code == 0, err
    assert "model      b-second fp32" in err


@pytest.fixture
def command(tiny_bundle: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """The command as a process of its own."""
    environment = {**os.environ, "EDGE_MODEL": str(tiny_bundle), "PYTHONPATH": str(ROOT)}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

    def start(*args: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "edge_runtime.fill", *args, "--threads", "1"]
        # A test runner in the background ignores interrupts, and its children would inherit that.
        undo = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen(words, env=environment, preexec_fn=undo, **pipes)  # type: ignore[call-overload]

    return start


def test_standard_input_and_a_reader_that_leaves(command: Any, payloads: Path) -> None:
    with command("-") as process:
        out, err = process.communicate((payloads / "with.bin").read_bytes(), timeout=60)
        assert (process.returncode, bool(out)) == (0, True), err
    with command(str(payloads / "with.bin")) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(60), errors) == (0, b"")


def test_an_interrupt_ends_with_130_and_no_traceback(command: Any) -> None:
    with command("-") as process:
        process.stdin.write(b"P")
        process.stdin.flush()
        left = array("i", [1])
        while left[0] and process.poll() is None:  # until it waits for the rest of a payload
            time.sleep(0.02)
            fcntl.ioctl(process.stdin, termios.FIONREAD, left)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"fill: interrupted\n")


def test_the_services_key_does_not_cross_a_network_unencrypted(
    fill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_ANCHOR_KEY", "secret")
    code, out, err = fill("--url", "http://192.0.2.1:8080", "--prompt", "?")
    assert (code, out) == (2, "")
    assert "secret" not in err
    assert fill("--url", "http://127.0.0.1:9", "--prompt", "?", "--no-fallback")[0] == 5, "here it may"


def test_an_answer_in_a_grammar(fill: Any, tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    (tmp_path / "word.lark").write_text("start: /[a-z]{3,9}[.]/")
    code, out, _ = fill("with.bin", "--grammar", str(tmp_path / "word.lark"), "--json")
    assert code == 0
    assert re.fullmatch("[a-z]{3,9}[.]", json.loads(out)["text"])
    (tmp_path / "tools.json").write_text('[{"name": "go", "parameters": {"properties": {}}}]')
    code, out, _ = fill("with.bin", "--tools", str(tmp_path / "tools.json"))
    assert (code, json.loads(out)["name"]) == (0, "go")
    (tmp_path / "broken.lark").write_text("start: (")
    for option, name in (("--grammar", "broken.lark"), ("--json-schema", "none")):
        fails(fill("with.bin", option, str(tmp_path / name)), 2)


def test_the_guides_schema_holds_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llguidance")
    jsonschema = pytest.importorskip("jsonschema")
    root = Path(cli.__file__).parents[1]
    (line,) = re.findall(
        r"^python -m edge_runtime\.fill (--sample --json-schema \S+)",
        (root / "docs/guides/device.md").read_text(),
        re.M,
    )
    monkeypatch.delenv("EDGE_MODEL", raising=False)
    monkeypatch.chdir(root)
    assert cli.main([*line.split(), "--threads", "1"]) == 0
    schema = json.loads(Path(line.split()[-1]).read_text())
    jsonschema.validate(json.loads(capfd.readouterr().out), schema)
