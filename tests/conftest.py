"""Models that several rooms' tests share, made once; their libraries are imported on use, for a device."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# One thread for each worker and for the commands that it starts, set before any of them imports PyTorch: the
# models are small, and another worker is beside it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Property tests have the same examples on every run, so that a failure is the fault of a change; `make fuzz`
# draws others. How long an example takes says more about what else the machine does than about the code.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
if settings.get_current_profile_name() == "default":
    settings.load_profile("fixed")


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """made_once(name, make) is the path that make(path) wrote, made by the first of all workers to ask."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], object]) -> Path:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (shared / name).exists():
                make(shared / name)
        return shared / name

    return made


@pytest.fixture(scope="session")
def smollm2_source(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, fetched where it is not in the cache, by one worker."""
    from tests.convert.smollm2 import smollm2

    return made_once("smollm2.gguf", lambda path: path.symlink_to(smollm2())).resolve()


@pytest.fixture(scope="session")
def smollm2_bundle(made_once: Callable[[str, Callable[[Path], object]], Path], smollm2_source: Path) -> Path:
    """Its bundle as `make real` converts it, with fp32 beside: a minute's work."""
    from convert.conversion import convert
    from lab.published.real import BOUNDS, VARIANTS

    def make(path: Path) -> None:
        convert(smollm2_source, path, variants=("fp32", *VARIANTS), thresholds=BOUNDS, threads=1)

    return made_once("smollm2", make)


@pytest.fixture(scope="session")
def dream_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.cloud_anchor.cloud_checkpoints import make_dream

    return make_dream(tmp_path_factory.mktemp("dream") / "tiny")


@pytest.fixture(scope="session")
def edge_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted random edge model with the vocabulary of `dream_folder`, in fp32."""
    from convert.conversion import convert
    from tests.checkpoints import write_tiny_qwen

    folder = tmp_path_factory.mktemp("edge")
    checkpoint = write_tiny_qwen(folder / "checkpoint", seed=7)
    convert(checkpoint, folder / "bundle", variants=("fp32",), threads=1)
    return folder / "bundle"


@pytest.fixture(scope="session")
def other_edge_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with another vocabulary than `dream_folder`'s."""
    from convert.conversion import convert
    from tests.checkpoints import write_tiny_qwen_with_other_merges

    folder = tmp_path_factory.mktemp("other_edge")
    checkpoint = write_tiny_qwen_with_other_merges(folder / "checkpoint", seed=8)
    convert(checkpoint, folder / "bundle", variants=("fp32",), threads=1)
    return folder / "bundle"
