"""What the payload's tests share: a toy vocabulary."""

from __future__ import annotations

import pytest

from payload import Contract
from tests.vectors.toy_vocabulary import ToyTokens, contract


@pytest.fixture(scope="session")
def tokens() -> ToyTokens:
    return ToyTokens()


@pytest.fixture(scope="session")
def toy() -> Contract:
    return contract()
