"""PrepackCache: weights in this processor's order, kept as files that are mapped instead of copied.

ONNX Runtime reorders quantised weights when a session is created: that takes seconds, and the copies are
anonymous memory. Written out once, they load in a fraction of the time and stay file-backed. They fit one
processor and one version of the library, so they are made on the device and kept in the user's cache folder.

Responsible for that cache and for when an entry may be used. Not responsible for running a graph (see
`ort_engine`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.engine.ort_session import without_optimization
from edge_runtime.system import processor_signature

CACHE_VARIABLE = "EDGE_CACHE"
MIN_BYTES = 16 << 20
"""Smaller models load quickly without it."""
DISK_FACTOR = 4
"""Free disk required, in sizes of the model; an entry takes two to three."""
_STAMP, _GRAPH, _DATA = "stamp.json", "model.onnx", "model.onnx.data"
_FORM = 3
"""Version of the form of an entry."""
_UNFIT = "unfit"
_PART, _STALE_SECONDS = "part-", 3600

Probe = Callable[[Path, ort.SessionOptions], NDArray[np.float32]]

_log = logging.getLogger(__name__)


class PrepackCache:
    """The entry of one bundle variant on this processor.

    An entry also records size and time of every file of the bundle whose SHA-256 was checked when it was
    made, so that the next start need not read them all again.
    """

    def __init__(self, bundle: Bundle, root: Path | None = None) -> None:
        files = {**bundle.manifest.files, **bundle.variant.files}
        hashes = {name: record.sha256 for name, record in files.items()}
        place = [str(bundle.path.resolve()), bundle.variant_name]
        self._bundle = bundle
        self._names = sorted(files)
        self._weights = bundle.variant.size
        self._model = (cache_root() if root is None else root) / "prepacked" / _digest(place)
        self.folder = self._model / _digest([_FORM, hashes, ort.__version__, processor_signature()])

    @property
    def graph(self) -> Path:
        """The graph, optimised already, beside its weights."""
        return self.folder / _GRAPH

    def verified(self) -> bool:
        """True where the bundle's files are those whose SHA-256 was checked when the entry was made."""
        return self._stamp().get("bundle") == self._bundle_stamp()

    def usable(self) -> bool:
        """True where there is a complete entry for the bundle's present files."""
        try:
            entry = self._stamp().get("entry")
            return self.verified() and isinstance(entry, dict) and entry == _sizes(self.folder, entry)
        except OSError:
            return False

    def unfit(self) -> bool:
        """True where an entry made from these files gave other logits than they do."""
        return self.verified() and self._stamp().get("entry") == _UNFIT

    def build(self, options: ort.SessionOptions, probe: Probe) -> bool:
        """Makes the entry from the bundle, whose files must have been verified; True where it can be used.

        probe: returns logits of a graph.

        Entries of the same bundle for other files, processors or versions are removed. Failures are logged as
        warnings. The entry's logits are compared with those of the bundle's own graph before it is renamed to
        its place: a kernel whose weights ONNX Runtime wrote wrongly gives wrong logits without an error.
        """
        try:
            self._model.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._model).free
            if free < DISK_FACTOR * self._weights:
                _log.warning(
                    "%s: expected %d MB free for prepacked weights, found %d: starting without them. "
                    "Free some disk, or set %s to another folder.",
                    *(self._model, DISK_FACTOR * self._weights >> 20, free >> 20, CACHE_VARIABLE),
                )
                return False
            _log.info("preparing the weights for this processor, once; they are kept in %s", self.folder)
            # An entry is renamed to its place once it is complete.
            with tempfile.TemporaryDirectory(dir=self._model, prefix=_PART) as name:
                part = Path(name) / "entry"
                part.mkdir()
                fit = self._write(part, options, probe)
                stamp: dict[str, Any] = {"bundle": self._bundle_stamp(), "entry": _UNFIT}
                if fit:
                    stamp["entry"] = _sizes(part, [_GRAPH, _DATA])
                else:
                    _log.info("prepacked weights give other results for this kind of weights: not used")
                    (part / _DATA).unlink()
                (part / _STAMP).write_text(json.dumps(stamp), encoding="utf-8")
                for old in self._model.iterdir():
                    if not old.name.startswith(_PART) or old.stat().st_mtime < time.time() - _STALE_SECONDS:
                        shutil.rmtree(old, ignore_errors=True)
                os.replace(part, self.folder)
        except Exception as error:  # a cache must never be a reason to fail
            _log.warning(
                "%s: prepacked weights could not be kept: %s. Starting without them. Set %s to a folder that "
                "can be written.",
                *(self.folder, error, CACHE_VARIABLE),
            )
            return False
        return fit

    def _write(self, part: Path, options: ort.SessionOptions, probe: Probe) -> bool:
        """Writes graph and weights into a folder; False where they give other logits."""
        options.optimized_model_filepath = str(part / _GRAPH)
        for key, value in (
            ("session.save_external_prepacked_constant_initializers", "1"),
            ("session.optimized_model_external_initializers_file_name", _DATA),
            # All weights of a kernel must lie outside the graph: with its scales inside, ONNX Runtime 1.31
            # reads the packed weights back as NaN. The graph's few constants must lie inside.
            ("session.optimized_model_external_initializers_min_size_in_bytes", "128"),
        ):
            options.add_session_config_entry(key, value)
        expected = probe(self._bundle.graph_path, options)
        plain = ort.SessionOptions()
        plain.log_severity_level = options.log_severity_level
        found = probe(part / _GRAPH, without_optimization(plain))
        return np.allclose(found, expected, rtol=1e-4, atol=1e-4)

    def worthwhile(self) -> bool:
        """True where the model is large enough to gain."""
        return self._weights >= MIN_BYTES

    def _stamp(self) -> dict[str, Any]:
        try:
            stamp = json.loads((self.folder / _STAMP).read_bytes())
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def _bundle_stamp(self) -> dict[str, list[int]]:
        stats = {name: (self._bundle.path / name).stat() for name in self._names}
        return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """EDGE_CACHE, else the user's cache folder."""
    given, home = environment.get(CACHE_VARIABLE), environment.get("XDG_CACHE_HOME")
    if given:
        return Path(given)
    return (Path(home) if home else Path.home() / ".cache") / "inverse-speculation"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def _sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    return {name: (folder / name).stat().st_size for name in names}
