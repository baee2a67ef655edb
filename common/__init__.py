"""What every room uses: commands, files, lazy exports, progress, the base error.

It is the first that a command loads: from here on an interrupt ends `python -m ROOM.COMMAND` in a line.
"""

import sys
from types import TracebackType

from common.version import __version__ as __version__


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


if getattr(sys, "argv", [])[:1] == ["-m"]:  # while Python looks for the command
    sys.excepthook = _end
