"""A fresh environment for commands away from the tree.

Responsible for what is installed there and for running commands and services in it. Not responsible for the
commands (see `promises`).
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.extras.promises import Command

REPOSITORY = Path(__file__).parents[2]
SECONDS = 600
"""Most that one command may take, on a slow machine."""


class BrokenPromiseError(Exception):
    """An extra does not do what is promised; the message names the extra and the command."""


class Environment:
    """A virtual environment with requirements installed, and the folder that commands run in.

    cache: of uv; None to install by pip, which the environment in `folder` then has.
    """

    def __init__(self, folder: Path, work: Path, cache: Path | None, *requirements: str) -> None:
        self.bin, self.work = folder / "bin", work
        self.python = str(self.bin / "python")
        # Nothing of the tree or of the user may be found, and no model may be fetched.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "EDGE_"))}
        self.variables = {**kept, "PYTHONNOUSERSITE": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
        self.variables["XDG_DATA_HOME"] = str(work / "data")  # of installed bundles
        uv = [sys.executable, "-m", "uv", "--quiet", "--cache-dir", str(cache), "pip", "install"]
        pip = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-compile"]
        self._install = [*uv, "--python", self.python] if cache else pip
        output([*self._install, *requirements], self.variables)
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = int(server.getsockname()[1])

    def _call(self, code: str) -> str:
        return output([self.python, "-c", code], self.variables, self.bin).strip()

    def has(self, package: str) -> bool:
        code = f"import importlib.util as u; print(u.find_spec({package!r}) is not None)"
        return self._call(code) == "True"

    def version(self, package: str) -> str:
        return self._call(f"import importlib.metadata as m; print(m.version({package!r}))")

    def test(self, paths: Sequence[str]) -> None:
        """Run test files of the tree; raises BrokenPromiseError where one fails."""
        started = time.perf_counter()
        hooks = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
        dev = hooks["metadata"]["hooks"]["custom"]["extras"]["dev"]
        wanted = [text for text in dev if re.match(r"(pytest|hypothesis)\b", text)]
        output([*self._install, *wanted], self.variables)
        command = [self.python, "-m", "pytest", "-p", "no:cacheprovider", *paths]
        said = output(command, {**self.variables, "OMP_NUM_THREADS": "1"}).strip().splitlines()
        print(f"    {time.perf_counter() - started:5.1f} s  pytest {' '.join(paths)}", flush=True)
        print(f"            {said[-1]}", flush=True)

    def words(self, command: Command) -> list[str]:
        """The command's words, with the value of {port}."""
        program, *arguments = shlex.split(command.line.replace("{port}", str(self.port)))
        if (self.bin / program).is_file():
            return [str(self.bin / program), *arguments]
        return [self.python, "-m", program, *arguments]

    def run(self, command: Command) -> None:
        """Run a command to its end; raises BrokenPromiseError where it fails or writes nothing."""
        started = time.perf_counter()
        written = self.work / command.writes if command.writes else None
        if written:
            written.unlink(missing_ok=True)
        try:
            done = subprocess.run(
                self.words(command),
                cwd=self.work,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise BrokenPromiseError(
                f"{command.line}: expected an end within {SECONDS} s, found none"
            ) from None
        except OSError as error:
            raise BrokenPromiseError(f"{command.line}: cannot be started: {error}") from error
        if done.returncode != command.status:
            raise BrokenPromiseError(
                f"{command.line}: exit {done.returncode}\n{_tail(done.stdout + done.stderr)}"
            )
        if written and not (written.is_file() and written.stat().st_size):
            raise BrokenPromiseError(f"{command.line}: expected it to write {command.writes}, found none")
        print(f"    {time.perf_counter() - started:5.1f} s  {command.line}", flush=True)

    @contextmanager
    def running(self, command: Command, port: int | None) -> Iterator[None]:
        """A running service, ready for requests; afterwards SIGTERM must end it with its exit code."""
        self.port = port or self.port
        log = self.work / "service.log"
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                self.words(command),
                cwd=self.work,
                env=self.variables | command.variables,
                stdout=file,
                stderr=file,
            )
            try:
                self._wait_until_ready(process, command, log)
                yield
                process.send_signal(signal.SIGTERM)
                if (code := process.wait(timeout=60)) != command.status is not None:
                    raise BrokenPromiseError(
                        f"{command.line}: exit {code} after SIGTERM\n{_tail(log.read_text())}"
                    )
            finally:
                process.kill()
                process.wait()
        print(f"    started, ready, ended  {command.line}", flush=True)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], command: Command, log: Path) -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise BrokenPromiseError(
            f"{command.line}: expected it to be ready, found exit {process.poll()}\n{_tail(log.read_text())}"
        )


def output(command: list[str], variables: dict[str, str] | None = None, folder: Path = REPOSITORY) -> str:
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode:
        said = _tail(done.stdout + done.stderr)
        raise BrokenPromiseError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    return done.stdout


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-20:])
