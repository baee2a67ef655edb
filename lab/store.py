"""The results folder: one line of JSON per item and phase, so that an interrupted run can be continued.

Responsible for the folder and its files. Not responsible for their content.

    results/
        settings.json     models, data, seed and plan; a later run into the folder must have the same
        items/runs.jsonl  one line per item: its diffusion runs
        items/fill.jsonl  one line per item: the record of phase `fill`; the same for the other phases
        tables.json       every table
        report.html       tables and plots, which are files beside it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from common.files import write_whole
from lab.records import differing_settings, read_records

SETTINGS = "settings.json"
TABLES = "tables.json"
Record = dict[str, Any]


class Store:
    """A results folder, opened for these settings."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Open or create the folder; raises RequestError where it was made with other settings."""
        self.path = path
        try:
            (path / "items").mkdir(parents=True, exist_ok=True)
            differs = differing_settings(path / SETTINGS, settings)
        except (OSError, ValueError) as error:
            raise RequestError(f"{path}: expected a folder for results, found: {error}") from error
        if differs:
            raise RequestError(
                f"{path}: its items were measured with another {', '.join(differs)}. Use the same "
                "options to go on, or another folder."
            )
        self._known: dict[str, dict[str, Record]] = {}

    def records(self, phase: str) -> dict[str, Record]:
        """The records of a phase by item. A line cut by an interruption is left out and measured again."""
        if phase not in self._known:
            found = read_records(self._file(phase))
            self._known[phase] = {str(record["id"]): record for record in found if "id" in record}
        return self._known[phase]

    def add(self, phase: str, record: Record) -> None:
        """Append the record of an item."""
        self.records(phase)[str(record["id"])] = record
        with self._file(phase).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")

    def write(self, name: str, data: str | bytes) -> None:
        write_whole(self.path / name, data.encode("utf-8") if isinstance(data, str) else data)

    def _file(self, phase: str) -> Path:
        return self.path / "items" / f"{phase}.jsonl"
