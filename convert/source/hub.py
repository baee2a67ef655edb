"""Locates a checkpoint: a local folder, or a name on the model hub.

Responsible for the download and its errors. Not responsible for reading the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from convert.errors import HubError, OptionError, SourceError

DEFAULT_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"

_FILES = ["*.json", "*.safetensors", "merges.txt", "*.jinja", "LICENSE*"]


@dataclass(frozen=True)
class HubSource:
    """A checkpoint folder with its id. revision: commit on the hub; None for a local folder.

    gguf: whether the folder holds a GGUF file's content, which is converted without PyTorch and transformers.
    """

    folder: Path
    id: str
    revision: str | None
    gguf: bool = False


def locate(model: str | Path, revision: str | None = None) -> HubSource:
    """The folder of a checkpoint, downloaded first where `model` is a hub name.

    Raises OptionError, SourceError or HubError.
    """
    folder = Path(model)
    if folder.is_dir():
        if revision is not None:
            raise OptionError(f"--revision {revision}: {folder} is a local folder, which has no revisions.")
        return HubSource(folder, folder.resolve().name, None)
    if isinstance(model, Path) or model.count("/") != 1 or model.startswith((".", "~", "/")):
        raise SourceError(f"{model}: expected a checkpoint folder or a hub name (OWNER/NAME), found neither.")
    path = _download(model, revision)
    return HubSource(path, model, path.name)  # the hub's cache names a snapshot's folder by its commit


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    remedies: dict[type[Exception], str] = {
        GatedRepoError: "the owner asks for consent before a download. Accept the terms on the model's page, "
        "then log in with `hf auth login` and run this again.",
        RepositoryNotFoundError: "expected a model on the hub, found none of this name, or it is private. "
        "Check the spelling, or log in with `hf auth login`.",
        RevisionNotFoundError: f"expected a revision {revision!r}, found none. Give a branch, tag or commit.",
        LocalEntryNotFoundError: "the hub cannot be reached and the model is not in the local cache. "
        "Connect to the network, or give a local checkpoint folder.",
    }
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=_FILES))
    except (HfHubHTTPError, OSError) as error:  # OSError covers connections that break and full disks
        # A gated repository is also one that is not found, so it comes first.
        known = next((says for kind, says in remedies.items() if isinstance(error, kind)), None)
        stopped = f"the download stopped: {str(error).strip() or type(error).__name__}. "
        stopped += "Run the same command again: files already fetched are kept."
        raise HubError(f"{name}: {known or stopped}") from error
