"""Batch mode: many prompts to a folder of payloads, resumable, with one manifest.

Responsible for the input's lines, the folder's layout, and resuming after an interruption. Not responsible
for making payloads (see `pipeline`).

    payloads/
        manifest.jsonl     one line per prompt tried: its id, and its file and figures or its error
        settings.json      the options of the payloads; another run into the folder must have the same
        0001.bin ...
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloud_anchor.errors import CloudError, OutputError, RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.sampling.protocol import require_room
from cloud_anchor.sampling.sampler import denoise_stream
from cloud_anchor.selection.select import Selection
from common.files import differing_settings, read_records, read_text, write_whole
from edge_runtime.errors import EdgeError
from payload import Codec, PayloadError

MANIFEST = "manifest.jsonl"
SETTINGS = "settings.json"
MAX_LINE = 1 << 20
"""Most characters of an input line."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class PromptJob:
    """One line of the input: a name, which becomes the file's, and the prompt or the line's error."""

    name: str
    prompt: str = ""
    error: str | None = None


def read_jobs(path: Path) -> list[PromptJob]:
    """The jobs of a JSON-lines file; a line is {"prompt": text, "id": name} or just the prompt as a string.

    A line without an id is named by its number. An invalid line becomes a job with an error.
    Raises RequestError where the file cannot be read or has no line.
    """
    jobs: list[PromptJob] = []
    taken: set[str] = set()
    for number, line in enumerate(read_text(path, RequestError).splitlines(), 1):
        if line.strip():
            job = _job(line, f"{number:04d}")
            if job.name in taken:
                job = PromptJob(f"{number:04d}", error=f"line {number}: another line has the id {job.name!r}")
            taken.add(job.name)
            jobs.append(job)
    if not jobs:
        raise RequestError(f"{path}: expected one prompt per line, found none")
    return jobs


def _job(line: str, name: str) -> PromptJob:
    where = f"line {int(name)}"
    if len(line) > MAX_LINE:
        return PromptJob(name, error=f"{where}: expected at most {MAX_LINE} characters, found {len(line)}")
    try:
        value: Any = json.loads(line)
    except ValueError as error:
        return PromptJob(name, error=f"{where}: expected JSON, found: {error}")
    if isinstance(value, str):
        value = {"prompt": value}
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if not isinstance(prompt, str) or not prompt.strip():
        return PromptJob(name, error=f'{where}: expected {{"prompt": text}} or a text, found {line[:60]}')
    chosen = value.get("id", name)
    if not isinstance(chosen, str | int) or not _NAME.fullmatch(str(chosen)):
        return PromptJob(name, error=f"{where}: expected an id of letters, digits, ._-, found {chosen!r:.60}")
    return PromptJob(str(chosen), prompt)


class Folder:
    """The output folder, with the names of the jobs that are done."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Opens or creates it; raises RequestError for other settings or where it cannot be written."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            differs = differing_settings(path / SETTINGS, settings)
            records = read_records(path / MANIFEST)
        except (OSError, ValueError) as error:
            raise RequestError(f"{path}: expected a folder for payloads, found: {error}") from error
        if differs:
            raise RequestError(
                f"{path}: its payloads were made with another {', '.join(differs)}. "
                "Use the same options to continue, or another folder."
            )
        self.done = {record["id"] for record in records if "id" in record and self._holds(record)}

    def _holds(self, record: Mapping[str, Any]) -> bool:
        file = record.get("file")
        return isinstance(file, str) and (self.path / file).is_file()

    def add(self, name: str, data: bytes, figures: Mapping[str, Any]) -> None:
        """Writes a payload, then its line: a line always has its file."""
        with self._writing():
            write_whole(self.path / f"{name}.bin", data)
        self._note({"id": name, "file": f"{name}.bin", "bytes": len(data), **figures})

    def fail(self, name: str, error: str) -> None:
        self._note({"id": name, "error": error})

    def _note(self, record: Mapping[str, Any]) -> None:
        with self._writing(), (self.path / MANIFEST).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raises OutputError where the disk is full or not writable."""
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"{self.path}: expected room for another payload, found: {error.strerror or error}. "
                "Make room and run the same command again: it continues where it stopped."
            ) from error


@dataclass(frozen=True)
class BatchOptions:
    """Options of the payloads, and the number of answers denoised together."""

    config: DenoiseConfig
    selection: Selection
    codec: Codec | str
    embed_prompt: bool
    batch: int
    confidence: bool = False

    def settings(self) -> dict[str, Any]:
        """What the bytes of a payload depend on."""
        form = {"codec": self.codec, "embed_prompt": self.embed_prompt, "confidence": self.confidence}
        chosen = {f"select_{name}": value for name, value in asdict(self.selection).items()}
        return form | self.config.to_json() | chosen


def run_batch(
    pipeline: Pipeline, jobs: Iterable[PromptJob], folder: Folder, options: BatchOptions
) -> Iterator[str | None]:
    """Makes the payloads of the jobs; yields after each None, or the error that is also in the manifest.

    options: with a resolved config and selection. Prompts of similar length are denoised together, so that
    little of a batch is padding.
    """
    ready: list[tuple[PromptJob, list[int]]] = []
    for job in jobs:
        if job.error is None:
            ids = pipeline.model_form.ids(job.prompt)
            try:
                require_room(pipeline.model, [ids], options.config.canvas)
            except RequestError as error:
                job = PromptJob(job.name, job.prompt, str(error))
            else:
                ready.append((job, ids))
                continue
        folder.fail(job.name, str(job.error))
        yield job.error
    ready.sort(key=lambda each: len(each[1]))
    for index, run in denoise_stream(
        pipeline.model, (ids for _, ids in ready), options.config, options.batch
    ):
        job = ready[index][0]
        try:
            (result,) = pipeline.select(
                [job.prompt],
                [run],
                options.selection,
                options.codec,
                options.embed_prompt,
                options.confidence,
            )
            data = pipeline.payload(result, options.codec, options.embed_prompt, options.confidence)
        except (CloudError, EdgeError, PayloadError) as error:
            folder.fail(job.name, str(error))
            yield str(error)
            continue
        figures: dict[str, Any] = {
            "anchors": len(result.anchors),
            "length": result.anchors.length,
            "prompt_tokens": len(run.prompt_ids),
            "steps": run.steps,
            "stopped_by": run.stopped_by,
        }
        if result.walk is not None:
            figures |= {"edge_passes": result.walk.passes, "edge_tokens": result.walk.tokens}
        folder.add(job.name, data, figures)
        yield None
