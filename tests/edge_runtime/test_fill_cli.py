"""python -m edge_runtime.fill: streams, JSON, exit codes and messages, with a real bundle and payloads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_runtime import fill as cli
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
    assert (code, out) == (0, "Japan's capital is the city of Tokyo.\n")
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
    assert set(answer) == {
        "text",
        "tokens",
        "passes",
        "anchors",
        "doubt",
        "not_sure",
        "prompt_tokens",
        "seconds",
        "peak_rss_bytes",
    }
    assert set(answer["seconds"]) == {"load", "prefill", "fill"}
    assert all(set(token) == {"id", "position", "source", "logprob"} for token in answer["tokens"])
    assert [t["position"] for t in answer["tokens"]] == list(range(20))
    assert [t["source"] for t in answer["tokens"]].count("anchor") == answer["anchors"] == 5
    assert {t["source"] for t in answer["tokens"]} == {"anchor", "fill"}
    assert all(t["logprob"] < 0 for t in answer["tokens"])
    assert answer["passes"] == 15
    assert 10_000_000 < answer["peak_rss_bytes"] < 1 << 34
    assert all(value > 0 for value in answer["seconds"].values())


def test_a_prompt_beside_the_payload(fill: Any) -> None:
    expected = fill("with.bin")[1]
    assert fill("without.bin", "--prompt", PROMPT)[:2] == (0, expected)
    assert fill("template.bin")[:2] == (0, expected)
    assert fill("with.bin", "--context", "200")[:2] == (0, expected)


def test_max_tokens(fill: Any) -> None:
    answer = json.loads(fill("with.bin", "--json", "--max-tokens", "7")[1])
    assert len(answer["tokens"]) == 7
    assert answer["tokens"][-1]["source"] == "anchor"


def test_an_empty_anchor_set_is_plain_greedy_decoding(fill: Any) -> None:
    answer = json.loads(fill("empty.bin", "--json")[1])
    assert answer["anchors"] == 0
    assert {t["source"] for t in answer["tokens"]} == {"fill"}


def fails(result: tuple[int, str, str], code: int) -> None:
    """One cause, nothing on standard output, no traceback."""
    assert result[:2] == (code, "")
    assert result[2].startswith("fill: ")
    assert "Traceback" not in result[2]


def test_bad_payloads_end_with_3(fill: Any, tmp_path: Path, payloads: Path) -> None:
    sound = (payloads / "with.bin").read_bytes()

    def payload(data: bytes) -> tuple[int, str, str]:
        (tmp_path / "p").write_bytes(data)
        result: tuple[int, str, str] = fill(str(tmp_path / "p"))
        return result

    fails(payload(b""), 3)
    fails(payload(sound[:2]), 3)
    fails(payload(sound[:-1]), 3)
    fails(payload(sound[:-1] + bytes([sound[-1] ^ 4])), 3)
    fails(payload(bytes([sound[0], sound[1] ^ 1]) + sound[2:]), 3)
    fails(payload(b"PK\x03\x04\x14\x00 something else"), 3)
    fails(payload(bytes(600_000)), 3)


def test_a_wrong_prompt_ends_with_3_or_2(fill: Any) -> None:
    fails(fill("without.bin", "--prompt", "Another?"), 3)
    fails(fill("with.bin", "--prompt", "Another?"), 2)


def test_wrong_usage_ends_with_2(fill: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fails(fill(), 2)
    fails(fill("with.bin", "--sample"), 2)
    fails(fill("with.bin", "--url", "http://localhost:1", "--prompt", "x"), 2)
    fails(fill("nowhere.bin"), 2)
    fails(fill("without.bin"), 2)
    fails(fill("without.bin", "--messages", "nowhere"), 2)
    (tmp_path / "latin").write_bytes(b"\xe4")
    fails(fill("without.bin", "--messages", str(tmp_path / "latin")), 2)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    fails(fill("without.bin", "--messages", str(tmp_path / "huge")), 2)
    fails(fill("with.bin", "--context", "100000"), 2)
    fails(fill("with.bin", "--context", "10"), 2)
    fails(fill("long.bin"), 2)
    for wrong in (
        ["with.bin", "--threads", "0"],
        ["with.bin", "--max-tokens", "-3"],
        ["with.bin", "--context", "x"],
        ["with.bin", "--prompt", "a", "--messages", "b"],
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(wrong)
        assert stopped.value.code == 2
        assert "usage:" in capfd.readouterr().err


def test_a_bad_model_ends_with_4(
    fill: Any, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    fails(fill("with.bin", "--edge", "nowhere"), 4)
    fails(fill("with.bin", "--variant", "int2"), 4)
    copy = shutil.copytree(tiny_bundle, tmp_path / "copy")
    (copy / "fp32" / "model.onnx.data").write_bytes(b"x")
    fails(fill("with.bin", "--edge", str(copy)), 4)
    (copy / "fp32" / "model.onnx.data").unlink()
    fails(fill("with.bin", "--edge", str(copy)), 4)
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
    import dataclasses

    import edge_runtime.bundle.bundle as bundles

    # Another bundle, whose contract is given the same first digits.
    other = plain_bundle(tmp_path / "many" / "a-first", vocab_size=310)
    (tmp_path / "many" / "b-second").symlink_to(tiny_bundle)
    tag = bundles.read_manifest(tiny_bundle).contract.identity[:2]
    manifest = bundles.read_manifest(other)
    for number in range(10_000):
        changed = dataclasses.replace(manifest.contract, template_hash=f"{number:064x}")
        if changed.identity.startswith(tag):
            break
    data = dataclasses.replace(manifest, contract=changed).to_json()
    (other / "bundle.json").write_text(json.dumps(data))
    monkeypatch.delenv("EDGE_MODEL")
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path / "many"))
    code, _, err = fill("with.bin")
    assert code == 0, err
    assert "model      b-second fp32" in err


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "edge_runtime.fill", *args, "--threads", "1"]


def environment(tiny_bundle: Path) -> dict[str, str]:
    return {**os.environ, "EDGE_MODEL": str(tiny_bundle), "PYTHONPATH": str(ROOT)}


def test_standard_input_and_a_reader_that_leaves(tiny_bundle: Path, payloads: Path) -> None:
    data = (payloads / "with.bin").read_bytes()
    whole = subprocess.run(
        command("-"), input=data, capture_output=True, env=environment(tiny_bundle), check=False, cwd=payloads
    )
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout
    with subprocess.Popen(
        command(str(payloads / "with.bin")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tiny_bundle),
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(60), errors) == (0, b"")


def test_an_interrupt_ends_with_130_and_no_traceback(tiny_bundle: Path) -> None:
    with subprocess.Popen(
        command("-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tiny_bundle),
        # A test runner in the background ignores interrupts, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        time.sleep(3)  # it now waits for the payload on standard input
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"fill: interrupted\n")


def test_help_fits_a_screen(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_the_services_key_does_not_cross_a_network_unencrypted(
    fill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_ANCHOR_KEY", "secret")
    code, out, err = fill("--url", "http://192.0.2.1:8080", "--prompt", "?")
    assert (code, out) == (2, "")
    assert err.startswith("fill: url: expected https://")
    assert "secret" not in err
    code, out, err = fill("--url", "http://127.0.0.1:9", "--prompt", "?", "--no-fallback")
    assert code == 5, "on this machine it may"


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
