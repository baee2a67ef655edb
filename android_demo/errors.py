"""The error of the build scripts."""

from __future__ import annotations

from common.errors import UserError


class BuildError(UserError):
    """A build step failed; the message states the remedy."""
