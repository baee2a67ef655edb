"""The table of links: what it prints is what the profiles say."""

from __future__ import annotations

import pytest

from links.__main__ import main
from links.kinds import KINDS
from links.profiles import LINK_PROFILES


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    rows = {line.split(" | ")[0].strip("| "): line for line in out.splitlines() if line.startswith("| ")}
    assert set(LINK_PROFILES) == set(rows) - {"profile"}
    assert {line.count("|") for line in rows.values()} == {8}
    assert "| 51 / 51 | 0.45 s | 0.70 s | too large | 36 s on the air an hour" in rows["lorawan-sf10"]
    assert "340 / 270 | 0.07 s, 0.16 USD | 0.17 s, 0.16 USD | 0.33 s, 0.32 USD" in rows["sbd"]
    for kind in KINDS.values():
        assert f"  {kind.example}\n" in out
