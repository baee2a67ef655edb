"""Every way the cloud side can fail, by name.

Each message says what was expected, what was found, where, and what to do. The command lines print its text
and exit with the class's `exit_code`. Errors of a payload are `payload.PayloadError`, those of a bundle
`edge_runtime.errors.EdgeError`.
"""

from __future__ import annotations

from payload.errors import UserError


class CloudError(UserError):
    """Anything the cloud side cannot do. `exit_code` is what a command line returns for it."""

    exit_code = 1


class RequestError(CloudError):
    """What was asked for does not make sense: an option out of range, an empty prompt, an answer too long."""

    exit_code = 2


class CheckpointError(CloudError):
    """A model folder is missing, incomplete or of an architecture that is not known."""

    exit_code = 4


class NothingToSendError(CloudError):
    """The run has committed nothing that could be sent."""

    exit_code = 3


class OutputError(CloudError):
    """What was made cannot be written: no room, no permission."""
