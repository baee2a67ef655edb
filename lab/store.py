"""The results folder: one line of JSON per item and phase, so that an interrupted run can be continued.

Responsible for the folder and its files. Not responsible for their content.

    results/
        settings.json     models, data, seed and plan; a later run into the folder must have the same
        items/runs.jsonl  one line per item: its diffusion runs
        items/fill.jsonl  one line per item: the record of phase `fill`; the same for the other phases
        tables.json       tables and claims
        report.html, report.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError
from common.files import write_whole

SETTINGS = "settings.json"
TABLES = "tables.json"
Record = dict[str, Any]


class Store:
    """A results folder, opened for these settings."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Open or create the folder; raises RequestError where it was made with other settings."""
        self.path = path
        wanted = json.loads(json.dumps(settings))
        try:
            (path / "items").mkdir(parents=True, exist_ok=True)
            if (path / SETTINGS).is_file():
                found = json.loads((path / SETTINGS).read_bytes())
                differs = sorted(k for k in wanted.keys() | found.keys() if wanted.get(k) != found.get(k))
                if differs:
                    raise RequestError(
                        f"{path}: its items were measured with another {', '.join(differs)}. Use the same "
                        "options to go on, or another folder."
                    )
            else:
                self.write(SETTINGS, json.dumps(wanted, indent=1) + "\n")
        except (OSError, ValueError) as error:
            raise RequestError(f"{path}: expected a folder for results, found: {error}") from error
        self._known: dict[str, dict[str, Record]] = {}

    def records(self, phase: str) -> dict[str, Record]:
        """The records of a phase by item. A line cut by an interruption is left out and measured again."""
        if phase not in self._known:
            self._known[phase] = known = {}
            file = self._file(phase)
            text = file.read_text("utf-8") if file.is_file() else ""
            if text and not text.endswith("\n"):
                file.write_text(text + "\n", "utf-8")  # else the next record would continue this line
            for line in text.splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict) and "id" in record:
                    known[str(record["id"])] = record
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
