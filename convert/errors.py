"""Every way a conversion can fail, by name.

Each message says what was expected, what was found, where, and what to do. The command line prints its text
and exits with the class's `exit_code`.
"""

from __future__ import annotations

from payload.errors import UserError


class ConvertError(UserError):
    """Anything that stops a conversion. `exit_code` is what the command line returns for it."""

    exit_code = 4


class OptionError(ConvertError):
    """What was asked for does not make sense: a variant, a context, a target that exists."""

    exit_code = 2


class SourceError(ConvertError):
    """The checkpoint is missing, incomplete, damaged, or its parts contradict each other."""


class ArchitectureError(ConvertError):
    """The checkpoint is sound but of an architecture or vocabulary that has no place here."""


class TemplateError(ConvertError):
    """The chat template cannot be expressed as literal text around each message."""


class HubError(ConvertError):
    """The model could not be fetched."""


class ResourceError(ConvertError):
    """There is not enough disk or memory for the conversion."""

    exit_code = 6


class VerificationError(ConvertError):
    """A converted variant does not say the same as the original model."""

    exit_code = 5
