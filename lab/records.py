"""Files that an interrupted run goes on from: records, one a line, and the settings of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.files import write_whole


def differing_settings(path: Path, settings: Mapping[str, Any]) -> list[str]:
    """The names of the settings that are others in a folder's file of them, which is written where it is
    missing. Raises OSError, and ValueError for another file.
    """
    wanted = json.loads(json.dumps(settings))
    if not path.is_file():
        write_whole(path, json.dumps(wanted, indent=1).encode() + b"\n")
    found = json.loads(path.read_bytes())
    return sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))


def read_records(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line; none where it is missing.

    A line that an interruption has cut is left out, and ended, so that the next record begins on its own.
    """
    data = path.read_bytes() if path.is_file() else b""
    if data and not data.endswith(b"\n"):
        path.write_bytes(data + b"\n")
    found = []
    for line in data.decode("utf-8", "replace").split("\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [record for record in found if isinstance(record, dict)]
