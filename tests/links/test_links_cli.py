"""The table of links: what it prints is what the profiles say."""

from __future__ import annotations

import json

import pytest

from links.__main__ import main, there_and_back
from links.kinds import KINDS
from links.profiles import LINK_PROFILES


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sizes", "20,100"]) == 0
    out = capsys.readouterr().out
    rows = {line.split(" | ")[0].strip("| "): line for line in out.splitlines() if line.startswith("| ")}
    assert set(LINK_PROFILES) == set(rows) - {"profile"}
    assert {line.count("|") for line in rows.values()} == {8}
    # There and back: twice 0.45 s on the air and the 5 s until the network answers.
    assert "| 51 / 51 | 0.45 s | too large | 5.9 s, 5.9 s | 36 s on the air an hour" in rows["lorawan-sf10"]
    assert "340 / 270 | 0.07 s, 0.16 USD | 0.33 s, 0.32 USD" in rows["sbd"]
    for kind in KINDS.values():
        assert f"  {kind.example}\n" in out


def test_emulated_times() -> None:
    times = there_and_back(LINK_PROFILES["sbd"], 50, 0.0)
    least = 2 * (5 + 50 * 8 / 2400) + 1
    assert len(times) == 200
    assert least <= min(times) < max(times) <= least + 30
    assert 0.75 <= len(there_and_back(LINK_PROFILES["sbd"], 50, 0.1)) / 200 <= 0.87, "0.9 there, 0.9 back"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["profiles"]["lorawan-sf12"]["cost"]["50"]["airtime"] == pytest.approx(2.793, abs=0.001)
    assert "100" not in found["profiles"]["lorawan-sf12"]["cost"]
    assert found["profiles"]["udp"]["there_and_back"]["arrived"] == 1
    assert set(found["addresses"]) == set(KINDS)


def test_a_bad_loss(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--loss", "2"])
    assert "share of 0 to 1, found 2" in capsys.readouterr().err


@pytest.mark.parametrize("sizes", ["", "0", "ten", "1,,2"])
def test_bad_sizes(sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--sizes", sizes])
    assert stopped.value.code == 2
    assert "whole numbers above 0" in capsys.readouterr().err
