"""Folders of frames: they do not grow for ever, and what others put there is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from links.kinds import mailbox as mailbox_module
from links.kinds.mailbox import Mailbox


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "KEPT_OUTGOING", 5)
    monkeypatch.setattr(mailbox_module, "KEPT_TAKEN", 3)
    monkeypatch.setattr(mailbox_module, "LOOK_SECONDS", 0.01)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_outgoing_keeps_the_latest_frames_and_the_files_of_others(tmp_path: Path) -> None:
    box = Mailbox(tmp_path, "test")
    (box.outgoing / "letter.sms").write_bytes(b"another program's")
    written = [box.put(b"%d" % number, ".sms").name for number in range(20)]
    assert names(box.outgoing) == {"letter.sms", *written[-5:]}


def test_taken_keeps_the_latest_files_that_were_read(tmp_path: Path) -> None:
    box = Mailbox(tmp_path, "test")
    for number in range(10):
        (box.incoming / f"{number:02}").write_bytes(b"%d" % number)
    (box.incoming / "holiday").write_bytes(b"nothing")
    found = [box.take(1, lambda data: data if data != b"nothing" else None) for _ in range(10)]
    assert sorted(filter(None, found)) == [b"%d" % number for number in range(10)]
    assert len(names(box.taken)) == 3
    assert box.take(0.05, lambda data: None) is None
    assert names(box.incoming) == {"holiday"}
