"""Whether a model works: failures one after the other, and for how long (what they are: see `engine`)."""

from __future__ import annotations

import time

MAX_FAILURES = 3
"""Jobs that fail one after the other before the service is not ready."""

RETRY_SECONDS = 10.0
"""After so long without another failure it admits jobs again, to find out."""

RESTART_SECONDS = 300.0
"""A model that has failed for so long is not expected to recover without a restart."""


class Health:
    """Of a model. failures: since the last success."""

    def __init__(self) -> None:
        self.failures = 0
        self._failed_at = self._failing_since = 0.0

    def failed(self) -> None:
        self._failed_at = time.monotonic()
        self._failing_since = self._failing_since if self.failures else self._failed_at
        self.failures += 1

    def succeeded(self) -> None:
        self.failures = 0

    @property
    def good(self) -> bool:
        """True while jobs succeed, or may again: after RETRY_SECONDS the next one finds out."""
        return self.failures < MAX_FAILURES or time.monotonic() - self._failed_at >= RETRY_SECONDS

    @property
    def lost(self) -> bool:
        """True where no job has succeeded for RESTART_SECONDS."""
        return self.failures >= MAX_FAILURES and self._failed_at - self._failing_since >= RESTART_SECONDS
