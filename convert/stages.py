"""A conversion's working folder: finished stages are kept, an interrupted one is repeated.

Responsible for stages by name, each with a key that stands for everything its result depends on. Not
responsible for the work of a stage.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common.files import locked
from convert.errors import OptionError, ResourceError
from edge_runtime.bundle.bundle import MANIFEST

FORMAT = 2
"""Part of every stage's key: increase it when the same input gives another output."""

_RECORD = "stages.json"


def workspace_of(target: Path) -> Path:
    """The working folder of a target."""
    return target.with_name(target.name + ".partial")


class Workspace:
    """The folder `TARGET.partial` beside a target; on success its `bundle` becomes the target in one rename.

    Use as a context manager: it holds a lock, so that two conversions cannot work on one target.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.folder = workspace_of(target)
        self.bundle = self.folder / "bundle"
        self._lock = ExitStack()
        self._done: dict[str, Any] = {}

    def __enter__(self) -> Workspace:
        try:
            self.bundle.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"{self.folder}: cannot be created: {error.strerror}.") from error
        busy = f"{self.folder}: another conversion is working here. Wait for it or name another."
        self._lock.enter_context(locked(self.folder / "lock", ResourceError(busy)))
        try:
            self._done = json.loads((self.folder / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._done = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
        if not self._done:  # nothing worth keeping: leave no trace
            shutil.rmtree(self.folder, ignore_errors=True)

    def stage(self, name: str, depends: Any, work: Callable[[], Any], intact: Callable[[Any], bool]) -> Any:
        """The stage's result, kept from an earlier run where `depends` is equal and it is intact.

        `depends` and the result must be JSON values.
        """
        key = hashlib.sha256(json.dumps([FORMAT, depends], sort_keys=True).encode()).hexdigest()
        kept = self._done.get(name)
        if isinstance(kept, dict) and kept.get("key") == key and intact(kept["result"]):
            return kept["result"]
        self._done.pop(name, None)
        result = work()
        self._done[name] = {"key": key, "result": result}
        partial = self.folder / (_RECORD + ".new")
        partial.write_text(json.dumps(self._done), encoding="utf-8")
        partial.replace(self.folder / _RECORD)
        return result

    def publish(self) -> None:
        """Move the finished bundle to the target's place and remove the working folder."""
        old = self.folder / "replaced"
        if self.target.exists():
            shutil.rmtree(old, ignore_errors=True)
            self.target.rename(old)
        self.bundle.rename(self.target)
        shutil.rmtree(self.folder)


def check_target(target: Path, force: bool) -> None:
    """Raises OptionError unless the target is new, or an older bundle that may be replaced."""
    if not target.name:
        raise OptionError(f"{target}: expected the name of a folder to make, found a root folder.")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / MANIFEST).is_file():
        raise OptionError(f"{target}: expected a new folder or a bundle, found something else. Name another.")
    if not force:
        raise OptionError(f"{target}: a bundle is already there. Add --force to replace it, or name another.")
