"""Command-line conventions shared by every command: exit codes, interrupts, one-line errors.

Responsible for turning exceptions into exit codes and one line on standard error. Not responsible for
options or output.

    0 done, 1 failed otherwise, 2 usage, 3 bad payload, 4 bad or missing model, 5 refused by a service,
    130 interrupted
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from common.errors import UserError

INTERRUPTED = 130


def run_command(
    program: str,
    command: Callable[[], int],
    *,
    interrupted: str = "interrupted",
    exit_codes: Mapping[type[UserError], int] | None = None,
) -> int:
    """Run a command and return its exit code; errors meant for users become one line on standard error.

    program:     name that begins the line, as in "fill: expected ...".
    interrupted: what is said on Ctrl-C.
    exit_codes:  exit codes by exception class where the class's own `exit_code` does not suit.

    A reader that closes the pipe early (`| head`) ends the command with exit code 0. Any other exception
    passes.
    """
    try:
        return command()
    except UserError as error:
        print(f"{program}: {error}", file=sys.stderr)
        overrides = (code for kind, code in (exit_codes or {}).items() if isinstance(error, kind))
        return next(overrides, error.exit_code)
    except KeyboardInterrupt:
        print(f"{program}: {interrupted}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # What Python still wants to flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
