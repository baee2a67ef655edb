"""The base of every error whose text is meant for the user.

Each message says what was expected, what was found, where, and what to do.
"""

from __future__ import annotations


class UserError(Exception):
    """An error whose text is meant for the user of a command; `exit_code` is what the command returns."""

    exit_code = 1


class InputError(UserError):
    """A file or an argument cannot be used."""

    exit_code = 2
