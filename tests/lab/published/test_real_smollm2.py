"""`make real`: finished answers on SmolLM2, and on the shipped model in its place."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gguf", reason="reading GGUF files needs the gguf package")

from convert.stages import FORMAT
from edge_runtime.bundle.bundle import MANIFEST
from edge_runtime.finished import payload_of
from edge_runtime.runtime import EdgeRuntime
from lab.answers.read import sources, texts_of
from lab.published import real
from tests.edge_runtime.client.chat_servers import chat_server, says
from tests.shipped import TINY_BUNDLE


def edit_manifest(folder: Path, version: int) -> None:
    """States another converter's version."""
    data = json.loads((folder / MANIFEST).read_text())
    data["tools"]["bundle-format"] = str(version)
    (folder / MANIFEST).write_text(json.dumps(data))


def test_the_bundle_of_the_users_cache_is_made_where_it_is_not_there(
    smollm2_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def convert(source: Path, out: Path, **options: Any) -> None:
        assert source.samefile(smollm2_source)
        assert out == tmp_path / "bundles" / real.BUNDLE
        assert out.parent.is_dir()
        shutil.copytree(TINY_BUNDLE, out, dirs_exist_ok=True)
        edit_manifest(out, FORMAT)
        asked.append({name: options[name] for name in ("variants", "thresholds", "force")})

    monkeypatch.setattr(real, "convert", convert)
    monkeypatch.setattr(real, "cache_root", lambda: tmp_path)
    for _ in range(2):
        assert (real.bundle_of_smollm2() / MANIFEST).is_file()
    edit_manifest(real.bundle_of_smollm2(), FORMAT - 1)
    real.bundle_of_smollm2()
    same = {"variants": real.VARIANTS, "thresholds": real.BOUNDS}
    assert asked == [same | {"force": False}, same | {"force": True}]


def test_a_text_is_sent_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "bundle_of_smollm2", lambda: TINY_BUNDLE)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "text").write_text("The river Arine.\n")
    assert real.main(["--answer", str(tmp_path / "text"), "--prompt", "Which river?"]) == 0
    size = len(payload_of(EdgeRuntime.open(TINY_BUNDLE), "The river Arine.", "Which river?"))
    shown = capsys.readouterr().out
    assert f"{size} bytes: Which river?" in shown
    assert "The river Arine." in shown
    monkeypatch.setattr("sys.stdin", io.StringIO("Bread."))
    assert real.main(["--answer", "-"]) == 0
    assert real.main(["--answer", str(tmp_path / "none")]) == 2
    with chat_server(says(["Ser", "ve bread."])) as (address, asked):
        line = ["--cloud", address.removeprefix("openai:"), "--prompt", "What?"]
        assert real.main([*line, "--model", "qwen"]) == 0
        assert real.main(line) == 2
    assert [each["messages"] for each in asked] == [[{"role": "user", "content": "What?"}]]
    assert "Serve bread." in capsys.readouterr().out


@pytest.mark.slow
def test_the_device_writes_every_source(smollm2_bundle: Path) -> None:
    edge = EdgeRuntime.open(smollm2_bundle, threads=1)
    assert edge.bundle.variant_name == real.VARIANTS[0], "as without fp32 beside"
    for source in sources():
        text = min(texts_of(source)[:5], key=lambda each: len(each.text))
        data = payload_of(edge, text.text, text.prompt)
        assert real.written_by(edge, data, text.prompt) == text.text
        assert len(data) < len(text.text)
