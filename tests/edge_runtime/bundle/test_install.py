"""Bundles are installed whole or not at all: from services good, slow and hostile."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from common.errors import UserError
from common.files import locked
from edge_runtime.bundle import install
from edge_runtime.bundle.__main__ import main
from edge_runtime.bundle.bundle import MANIFEST, Bundle
from edge_runtime.bundle.install import pull
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.client.client import Client
from edge_runtime.errors import (
    BundleContractError,
    BundleFileError,
    BundleHashError,
    BundleSchemaError,
    BundleVariantError,
    CloudRefusedError,
    CloudUnavailableError,
    UsageError,
)

Edit = Callable[[dict[str, Any]], Any]


class BundleServer:
    """A service that gives a bundle, in the way that a test sets.

    manifest: bytes in place of its bundle.json. name: that it states. cut: most bytes of one answer, after
    which the connection ends. ranges: whether it takes them. changed: files of which it flips a byte.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, "town"
        self.manifest: bytes | None = None
        self.cut: int | None = None
        self.ranges = True
        self.changed: set[str] = set()
        self.asked: list[tuple[str, int]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.server.server_port}", timeout=10, sleep=lambda seconds: None)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        name = unquote(handler.path).removeprefix("/v1/bundle").lstrip("/")
        begin = int((handler.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.asked.append((name, begin))
        kind = "application/octet-stream"
        if not name:
            data, kind = json.dumps({"name": self.name}).encode(), "application/json"
        elif name == MANIFEST and self.manifest is not None:
            data = self.manifest
        else:
            data = (self.folder / name).read_bytes()
        if name in self.changed:
            data = data[:-1] + bytes([data[-1] ^ 1])
        partial = bool(begin) and self.ranges
        body = data[begin:] if partial else data
        handler.send_response(206 if partial else 200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        if partial:
            handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        handler.wfile.write(body if name in ("", MANIFEST) else body[: self.cut])


@pytest.fixture
def source(tmp_path: Path, plain_bundle: Callable[..., Path]) -> Path:
    return plain_bundle(tmp_path / "source")


@pytest.fixture
def service(source: Path) -> Iterator[BundleServer]:
    made = BundleServer(source)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_BUNDLES", str(tmp_path / "installed"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "installed"


def there(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".lock"}


def test_a_bundle_is_pulled_whole_and_found(service: BundleServer, source: Path, root: Path) -> None:
    path = pull(service.client)
    assert path == root / "town"
    assert there(root) == {"town"}
    wanted = {file.relative_to(source): file.read_bytes() for file in source.rglob("*") if file.is_file()}
    found = {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert found.keys() == wanted.keys()
    assert json.loads(found.pop(Path(MANIFEST))) == json.loads(wanted.pop(Path(MANIFEST)))
    assert found == wanted
    assert find_bundles(Bundle.open(source).contract.identity) == [path]


def test_one_variant_is_pulled_alone(service: BundleServer, source: Path, root: Path) -> None:
    data = json.loads((source / MANIFEST).read_text())
    shutil.copytree(source / "int8", source / "int4")
    other = json.loads(json.dumps(data["variants"]["int8"]).replace("int8/", "int4/"))
    data["variants"] |= {"int4": other}
    (source / MANIFEST).write_text(json.dumps(data))
    path = pull(service.client, variant="int4", name="small")
    assert Bundle.open(path).variant_name == "int4"
    assert not (path / "int8").exists()
    assert Bundle.open(path).manifest.fingerprint("int4") == Bundle.open(source).manifest.fingerprint("int4")
    with pytest.raises(BundleVariantError):
        pull(service.client, variant="int2", name="other")


def test_a_cut_download_continues_by_itself(service: BundleServer, source: Path, root: Path) -> None:
    service.cut = 2000
    large = max((file for file in source.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    assert large.stat().st_size > 3 * 2000
    pull(service.client)
    begins = [begin for name, begin in service.asked if name == large.relative_to(source).as_posix()]
    assert begins == list(range(0, large.stat().st_size, 2000))


def test_an_interrupted_download_is_resumed_where_it_stopped(service: BundleServer, root: Path) -> None:
    service.cut = 2000
    left = [4]

    def interrupted(name: str, start: int = 0) -> Any:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return Client.bundle_file(client, name, start)

    client = service.client
    object.__setattr__(client, "bundle_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pull(client)
    (part,) = there(root)
    assert part.startswith(".town.")
    assert part.endswith(".part")
    held = {file.name: file.stat().st_size for file in (root / part).rglob("*") if file.is_file()}
    assert sum(held.values()) >= 2000
    service.asked.clear()
    pull(service.client)
    again = dict(reversed(service.asked))  # the first request of each
    assert {name: begin for name, begin in again.items() if begin} == {
        name: size for name, size in held.items() if name in again and size
    }
    assert there(root) == {"town"}


def test_a_server_without_ranges_is_read_from_the_start(service: BundleServer, root: Path) -> None:
    service.ranges, service.cut = False, 2000
    with pytest.raises(CloudUnavailableError):
        pull(service.client)
    service.cut = None
    pull(service.client)
    assert Bundle.open(root / "town").variant_name == "int8"


def test_a_changed_file_is_refused_and_fetched_again(service: BundleServer, root: Path) -> None:
    service.changed = {"tokenizer.json"}
    for _ in range(2):
        with pytest.raises(BundleHashError):
            pull(service.client)
    assert not (root / "town").exists()
    service.changed = set()
    pull(service.client)
    assert there(root) == {"town"}


def edited(source: Path, edit: Edit) -> bytes:
    data = json.loads((source / MANIFEST).read_text())
    edit(data)
    return json.dumps(data).encode()


RECORD = {"size": 1, "sha256": "0" * 64}


OUTSIDE = ["../outside", "/etc/outside", "a/../../outside", "a\\..\\outside", "c:outside"]


@pytest.mark.parametrize(
    "edit",
    [
        *(
            partial(lambda name, d: d["files"].update({name: RECORD}), name)
            for name in (*OUTSIDE, "new\nline", MANIFEST, "./bundle.json", "")
        ),
        lambda d: d["files"].update({"x": {"size": -1, "sha256": ""}}),
        lambda d: d.pop("contract"),
        lambda d: d.update(schema=99),
    ],
)
def test_a_hostile_manifest_writes_nothing(
    service: BundleServer, source: Path, root: Path, edit: Edit
) -> None:
    service.manifest = edited(source, edit)
    with pytest.raises(BundleSchemaError):
        pull(service.client)
    assert not root.exists()
    assert {name for name, _ in service.asked} == {"", MANIFEST}


@pytest.mark.parametrize("data", [b"", b"[]", b"{" * 100_000, b"\xff", b"[" * 5_000_000])
def test_a_manifest_that_is_none(service: BundleServer, root: Path, data: bytes) -> None:
    service.manifest = data
    with pytest.raises((BundleSchemaError, CloudUnavailableError)):
        pull(service.client)
    assert not root.exists()


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "x" * 65, "a b", "\x1b[2J", None, 7])
def test_a_hostile_name_is_none(service: BundleServer, root: Path, name: Any) -> None:
    service.name = name
    with pytest.raises(CloudUnavailableError) as caught:
        pull(service.client)
    assert str(caught.value).isprintable()
    assert not root.exists()


def test_no_more_is_taken_than_the_manifest_states(service: BundleServer, source: Path, root: Path) -> None:
    """Neither from a server that sends more, nor more than there is room for."""
    (source / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes() + b" " * 100_000)
    pull(service.client)  # what was stated comes first, and has the right hash
    service.manifest = edited(source, lambda d: d["files"].update(huge={"size": 1 << 60, "sha256": ""}))
    service.asked.clear()
    with pytest.raises(BundleFileError):
        pull(service.client, name="huge")
    assert {name for name, _ in service.asked} == {MANIFEST}


NOTHING = {"size": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda d: d["contract"].update(vocab_hash="0" * 64), BundleContractError),
        (lambda d: d["files"].update({"empty": NOTHING, "empty/x": NOTHING}), BundleFileError),
    ],
    ids=["another contract than the tokenizer's", "a file in a file"],
)
def test_what_is_found_wrong_on_the_way(
    service: BundleServer, source: Path, root: Path, edit: Edit, error: type[UserError]
) -> None:
    (source / "empty").write_bytes(b"")
    service.manifest = edited(source, edit)
    with pytest.raises(error):
        pull(service.client)
    assert not (root / "town").exists()


def test_nothing_is_replaced_unasked(service: BundleServer, source: Path, root: Path) -> None:
    (root / "town").mkdir(parents=True)
    (root / "town" / "letter").write_text("mine")
    with pytest.raises(UsageError):
        pull(service.client)
    with pytest.raises(UsageError):
        pull(service.client, replace=True)
    assert (root / "town" / "letter").read_text() == "mine"
    pull(service.client, name="city")
    (root / "city" / "old").write_text("")
    pull(service.client, name="city", replace=True)
    assert not (root / "city" / "old").exists()
    assert there(root) == {"town", "city"}


def test_a_failed_replacement_leaves_the_old_one(
    service: BundleServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(service.client)
    rename = os.rename

    def failing(a: Any, b: Any) -> None:
        if str(a).endswith(".part"):
            raise OSError(5, "no")
        rename(a, b)

    monkeypatch.setattr(install.os, "rename", failing)
    with pytest.raises(BundleFileError):
        pull(service.client, replace=True)
    monkeypatch.undo()
    assert Bundle.open(root / "town").variant_name == "int8"


def test_two_installations_do_not_meet(service: BundleServer, root: Path) -> None:
    root.mkdir()
    with locked(root / ".lock", UserError("")), pytest.raises(UsageError):
        pull(service.client)
    pull(service.client)


def test_the_command(
    service: BundleServer, source: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = service.client.url
    assert main(["get", url, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"installed": "town", "path": str(root / "town")}
    assert err.startswith("town 100%")
    assert main(["list", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["bundles"][0]
    assert first["name"] == "town"
    assert first["contract"] == Bundle.open(source).contract.identity
    (root / "broken").mkdir()
    (root / "broken" / MANIFEST).write_text("{}")
    assert main(["list"]) == 0
    assert "broken " in capsys.readouterr().out
    assert main(["get", url]) == 2
    assert main(["get", url, "--name", "city", "--quiet"]) == 0
    assert "city 100%" not in capsys.readouterr().err
    assert main(["get", url, "--name", "../city"]) == 2
    service.server.shutdown()
    service.server.server_close()
    assert main(["get", url, "--timeout", "1"]) == 5
    assert "it cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize("at", ["common.lazy", "argparse", "edge_runtime.client", "numpy"])
def test_an_interrupt_while_the_command_loads_is_one_line(at: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {at!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
    )
    places = os.pathsep.join([str(tmp_path), str(Path(install.__file__).parents[2])])
    command = [sys.executable, "-m", "edge_runtime.bundle", "get", "http://127.0.0.1:9"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (130, -signal.SIGINT)
    assert "interrupted" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not root.exists()


def test_a_refusal_for_another_contract_names_the_command(source: Path, root: Path) -> None:
    with pytest.raises(BundleContractError, match=r"python -m edge_runtime.bundle get 'http://x/\?'"):
        find_bundles("00ff", url="'http://x/?'")
    error = {"code": "contract_mismatch", "expected": "a", "found": "b", "remedy": "Use another."}
    refusal = json.dumps({"error": error}).encode()

    class Refusing(BundleServer):
        def answer(self, handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(409)
            handler.send_header("Content-Length", str(len(refusal)))
            handler.end_headers()
            handler.wfile.write(refusal)

    client = Refusing(source).client
    with pytest.raises(CloudRefusedError, match=f"python -m edge_runtime.bundle get {client.url}"):
        client.identity()


class WebServer(BundleServer):
    """Any web server with the bundle's folder at /files/town."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        handler.path = handler.path.replace("/files/town/", "/v1/bundle/")
        super().answer(handler)


def test_a_bundle_comes_from_a_folder_and_from_any_web_server(source: Path, root: Path) -> None:
    digest = hashlib.sha256((source / MANIFEST).read_bytes()).hexdigest()
    assert main(["get", str(source), "--quiet"]) == 0
    assert main(["get", str(source), "--quiet", "--name", "same", "--sha256", digest.upper()]) == 0
    url = f"{WebServer(source).client.url}/files/town/{MANIFEST}"
    assert main(["get", url, "--quiet", "--sha256", digest]) == 0
    assert there(root) == {source.name, "same", "town"}
    for name in there(root):
        assert Bundle.open(root / name).manifest == Bundle.open(source).manifest


def test_another_bundle_than_the_one_named_is_refused(source: Path, root: Path, tmp_path: Path) -> None:
    url = f"{WebServer(source).client.url}/files/town/{MANIFEST}"
    assert main(["get", url]) == 2
    for address in (url, str(source)):
        assert main(["get", address, "--sha256", "0" * 64]) == 4
        assert main(["get", address, "--sha256", "zz"]) == 2
    assert main(["get", str(tmp_path)]) == 2
    (source / MANIFEST).write_bytes(b" " * (install.MAX_MANIFEST_BYTES + 1))
    assert main(["get", str(source)]) == 4
    assert not root.exists()
