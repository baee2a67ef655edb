"""Errors of a conversion.

Each message says what was expected, what was found, where, and what to do. The command line prints the
message and exits with the class's `exit_code`.
"""

from __future__ import annotations

from common.errors import UserError


class ConvertError(UserError):
    """Base class: the conversion cannot be done."""

    exit_code = 4


class OptionError(ConvertError):
    """An option is invalid: a variant, a context, a target that exists."""

    exit_code = 2


class SourceError(ConvertError):
    """The checkpoint is missing, incomplete, damaged, or its parts contradict each other."""


class ArchitectureError(ConvertError):
    """The checkpoint is sound but its architecture or vocabulary is not supported."""


class TemplateError(ConvertError):
    """The chat template cannot be expressed as literal text around each message."""


class HubError(ConvertError):
    """The model could not be fetched."""


class ResourceError(ConvertError):
    """There is not enough disk or memory for the conversion."""

    exit_code = 6


class VerificationError(ConvertError):
    """A converted variant differs too much from the original model. accepting: thresholds that take it."""

    exit_code = 5

    def __init__(self, says: str, accepting: tuple[str, ...] = ()) -> None:
        super().__init__(says)
        self.accepting = accepting
