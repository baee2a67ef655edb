"""Errors of the edge runtime.

Each message states the expected and the found value, the place, and a remedy. Commands print it and exit with
the class's `exit_code`; errors of the payload itself are `payload.PayloadError` (code 3).
"""

from __future__ import annotations

from common.errors import UserError


class EdgeError(UserError):
    """Base of all errors of the edge runtime."""

    exit_code = 4


class UsageError(EdgeError):
    """An argument is wrong: an option, a missing prompt, an answer too long."""

    exit_code = 2


class FormError(UsageError):
    """A schema asks for something else than choices from lists, or a file of a form's answers is none."""


class ContextError(UsageError):
    """The prompt, the anchors or the requested tokens do not fit the model's context."""


class GrammarError(UsageError):
    """A schema, a regular expression or a grammar that cannot be used."""


class GrammarRoomError(ContextError):
    """No sentence of the grammar was found that the answer has room for."""


class BundleError(EdgeError):
    """A model bundle cannot be used."""


class BundleMissingError(BundleError):
    """There is no bundle at the given place."""


class BundleFileError(BundleError):
    """A file that the bundle lists is missing, unreadable or of another size."""


class BundleHashError(BundleError):
    """A file of the bundle does not have the SHA-256 that `bundle.json` states."""


class BundleSchemaError(BundleError):
    """`bundle.json`, the tokenizer or the chat template is of an unknown or a broken form."""


class GgufError(EdgeError):
    """A GGUF file cannot be read: it is none, is damaged, or has a vocabulary of another kind."""


class JinjaTemplateError(EdgeError):
    """A Jinja chat template cannot be expressed as literal text around each message."""


class BundleVariantError(BundleError):
    """The bundle has no such variant."""


class BundleContractError(BundleError):
    """No bundle fits the payload's contract, or a bundle does not fit its own."""


class EngineError(EdgeError):
    """The model could not be loaded or run."""


class CloudFailureError(EdgeError):
    """The service gives no answer. code: its own of the error, where it has stated one."""

    exit_code = 5

    def __init__(self, message: str, code: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.retry_after = code, retry_after


class CloudUnavailableError(CloudFailureError):
    """The service cannot be reached, does not answer in time, or something else answers in its place.

    retry_after: seconds after which it asks to be asked again.
    """


class CloudRefusedError(CloudFailureError):
    """The service refuses the request: a wrong key, another contract, a prompt too long."""


class SessionFileError(EdgeError):
    """A file of a session is none, is damaged, or belongs to another model."""


class LinkError(EdgeError):
    """A link cannot be opened, has failed or is closed, or does not take a frame."""

    exit_code = 5
