"""The conversation in the terminal: lines in, answers and figures out."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_runtime import chat
from edge_runtime.decode.refine import AnchorFeed
from tests.edge_runtime.test_modes import FakeCloud, fresh


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """talk(lines, options...) is what a conversation ends with and prints; each line is one of a pipe."""

    def run(lines: str, *options: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        model = ["--edge", "testbed-qwen", "--variant", "fp32", "--threads", "1", "--max-tokens", "9"]
        code = chat.main([*model, *options])
        out, err = capfd.readouterr()
        return f"{code}\n{out}{err}"

    return run


def test_a_conversation(talk: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "talk"
    said = talk(
        f"What is the capital of Japan?\n/why\n/save {path}\n/mode\n/help\n"
        "/private And of Chile?\n/quit\nnever\n"
    )
    assert said.startswith("0\n")
    assert "on_device: 0 tokens of the cloud, 9 of the device" in said
    assert "only_on_device" in said
    assert "/private" in said
    assert "never" not in said
    again = talk("/new\n/why\n", "--load", str(path))
    assert again.startswith("2\n")
    assert "expected an answer before it" in again
    assert "> What is the capital of Japan?" in talk(f"/load {path}\n")


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ("/what\n", ()),
        ("/mode in_the_sky\n", ()),
        ("/mode only_in_cloud\n", ()),
        ("/save\n", ()),
        ("/load nowhere\n", ()),
        ("/private\n", ()),
        ("x\n", ("--load", "nowhere", "--system", "s")),
        ("x\n", ("--mode", "only_in_cloud")),
    ],
)
def test_what_cannot_be_done_is_one_line(
    talk: Callable[..., str], lines: str, options: tuple[str, ...]
) -> None:
    said = talk(lines, *options)
    assert said[0] in "24"
    assert said.count("\n") == 2


def test_ctrl_c_while_the_cloud_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = FakeCloud()
    talk = chat.Chat(fresh(), cloud, mode="prefer_in_cloud", max_tokens=6)

    def interrupted(feed: AnchorFeed, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as waiting:
        waiting.setattr(AnchorFeed, "last", interrupted)
        talk.do("Why?")
    assert "(stopped)" in capsys.readouterr().err
    assert talk.session.messages == ()
    talk.do("Why?")
    assert len(talk.session.messages) == 2
    assert len(cloud.asked) == 2


def test_ctrl_c_stops_the_answer_and_not_the_program() -> None:
    """On a terminal: the prompt is back, and the next question is answered."""
    main, other = pty.openpty()
    command = [sys.executable, "-m", "edge_runtime.chat", "--edge", "testbed-qwen", "--threads", "1"]
    process = subprocess.Popen(
        command,
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
        # A shell in the background may have left it ignored, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(other)
    seen = b""

    def until(words: bytes, seconds: float = 60) -> bool:
        nonlocal seen
        end = time.monotonic() + seconds
        while words not in seen and (left := end - time.monotonic()) > 0:
            if select.select([main], [], [], left)[0]:
                seen += os.read(main, 4096)
        found = words in seen
        seen = b"" if found else seen
        return found

    def interrupted() -> bool:
        """Readline notices a signal that comes as it begins to wait only with the next one."""
        for _ in range(5):
            os.kill(process.pid, signal.SIGINT)
            if until(b"Ctrl-D", 10):
                return True
        return False

    try:
        assert until(b"> "), seen
        assert interrupted(), seen
        os.write(main, b"/mode\n")
        assert until(b"only_on_device"), seen
        os.write(main, b"/quit\n")
        assert process.wait(30) == 0
    finally:
        process.kill()
        os.close(main)
