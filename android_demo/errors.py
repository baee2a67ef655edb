"""The error of the build scripts."""

from __future__ import annotations

from payload.errors import UserError


class BuildError(UserError):
    """A build step failed; the message states the remedy."""
