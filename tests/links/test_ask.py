"""The command line of `links.ask`."""

from __future__ import annotations

import pytest

from links.ask import main


def test_help_fits_a_screen_and_all_of_it_has_groups(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    with pytest.raises(SystemExit):
        main(["--help-all"])
    text = capfd.readouterr().out
    assert all(f"\n{group}:\n" in text for group in ("question", "repeats", "engine", "output"))
