"""Errors of the cloud side, by name.

Each message says what was expected, what was found, where, and what to do. Commands print it and exit with
the class's `exit_code`. Errors of a payload are `payload.PayloadError`, those of a bundle
`edge_runtime.errors.EdgeError`.
"""

from __future__ import annotations

from common.errors import UserError


class CloudError(UserError):
    """Base class of the cloud side's errors. `exit_code` is the exit code of a command."""

    exit_code = 1


class RequestError(CloudError):
    """An invalid request: an option out of range, an empty prompt, an answer that is too long."""

    exit_code = 2


def require(name: str, holds: bool, expected: str, found: object) -> None:
    """Raises RequestError for an option or field `name` unless what is expected of it holds."""
    if not holds:
        raise RequestError(f"{name}: expected {expected}, found {found!r}")


class CheckpointError(CloudError):
    """A model folder is missing, incomplete or of an unknown architecture."""

    exit_code = 4


class MemoryLackError(CloudError):
    """There is not enough memory for a model and its batch."""

    exit_code = 6


class ServerError(CloudError):
    """A server that runs the model in this process's place gives no answer."""

    exit_code = 5


class ServerBusyError(ServerError):
    """A server has not begun what it was asked: it may be asked again.

    retry_after: seconds after which, where it says so.
    """

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class NothingToSendError(CloudError):
    """The run has no tokens to send."""

    exit_code = 3
