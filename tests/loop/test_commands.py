"""The commands of README.md and docs/start, run: those of a page one after the other, in a folder of its own.

What is not here has a stand-in: a chat server that says one sentence, the shipped bundle and payload in place
of converted ones. Lines of pip, make and the converter run in `.ci/run` and `make extras`; what stands below
`# not run here` does not run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.fill import SAMPLE
from tests.edge_runtime.client.chat_servers import chat_server, fails, says

ROOT = Path(__file__).parents[2]
ELSEWHERE = re.compile(r"pip |make |python -m convert ")
SERVER = re.compile(r"python -m (links\.gateway|cloud_anchor\.serve) ")
HTTP, UDP = (str(20_000 + (os.getpid() + at) % 10_000) for at in range(2))
TOLD = [{"token": token, "logprob": -1.0} for token in ("yes", "no", "billing", "angry")]
PROBABILITIES = {"choices": [{"logprobs": {"content": [{"top_logprobs": TOLD}]}}]}
SCHEMAS = [*ROOT.glob("edge_runtime/*.json")]
ROW = {"text": "It leaks", "value": {"urgent": True, "team": "repairs", "mood": "neutral", "about": []}}


def lines(page: Path) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    text = "".join(block for language, block in found if not language).replace("\\\n", " ")
    text = re.sub(r"^# not run here.*\n.*\n", "", text, flags=re.MULTILINE)
    return [line for line in text.splitlines() if line and not ELSEWHERE.match(line)]


PAGES = {page.stem: lines(page) for page in (ROOT / "README.md", *ROOT.glob("docs/start/*.md"))}


@pytest.mark.parametrize("page", [name for name, found in PAGES.items() if found])
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    here = {f"bundles/{name}": SHIPPED for name in ("qwen2.5-0.5b", "smollm2")}
    for name, place in (here | {f"edge_runtime/{each.name}": each for each in SCHEMAS}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(place)
    shutil.copy(SAMPLE, tmp_path / "payload.bin")
    (tmp_path / "answer.txt").write_text("Boil it for one minute.")
    (tmp_path / "rows.jsonl").write_text((json.dumps(ROW) + "\n") * 20)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    kinds = says(["Tokyo is ", "the capital."]), fails(200, json.dumps(PROBABILITIES).encode())
    with chat_server(lambda to: kinds["logprobs" in asked[-1]](to)) as (chat, asked), ExitStack() as servers:
        for line in PAGES[page]:
            placed = line.replace("8080", HTTP).replace("7777", UDP)
            words = shlex.split(placed.replace("openai:http://localhost:11434/v1", chat), comments=True)
            server = subprocess.Popen(words, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL)
            servers.callback(server.wait)
            servers.callback(server.terminate)
            if not SERVER.match(line):
                assert server.wait() == 0, line
            while "cloud_anchor.serve" in line and server.poll() is None:
                with suppress(OSError), urllib.request.urlopen(f"http://localhost:{HTTP}/readyz"):
                    break
                time.sleep(0.2)
