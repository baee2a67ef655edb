"""python -m tests.extras: each extra by itself in a fresh environment, with the commands promised for it.

A development environment has everything installed and hides what an extra forgets. This builds the wheel of
the tree, installs it with one extra at a time, and runs that extra's commands away from the tree, so that
files missing from the wheel show as well. Environments lie in a temporary folder and are deleted after use.

The extras convert and optimum bring the two generations of transformers that are supported. The tests that
depend on it run in their environments too, from the tree.

torch with its CUDA libraries takes 6 GB and most of the time. It is installed once, with what it requires
itself, and linked into the environments of the extras that require it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.extras.promises import EXTRAS, PROMPT, Command, Extra

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("payload", "edge_runtime", "convert", "cloud_anchor")
SECONDS = 600
"""Most that one command may take, on a slow machine."""


class BrokenPromiseError(Exception):
    """An extra does not do what is promised; the message names the extra and the command."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.extras",
        description=__doc__,
        epilog="example:\n  python -m tests.extras edge cloud",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"some of {', '.join(EXTRAS)} (all)")
    names = parser.parse_args(argv).extras or list(EXTRAS)
    if unknown := [name for name in names if name not in EXTRAS]:
        parser.error(f"expected some of {', '.join(EXTRAS)}, found {', '.join(unknown)}")
    started = time.perf_counter()
    broken = []
    with tempfile.TemporaryDirectory(prefix="extras-") as folder:
        try:
            wheel = build_wheel(Path(folder))
            inputs = make_inputs(Path(folder) / "inputs")
            torch = install_torch(Path(folder) / "torch", names)
        except BrokenPromiseError as error:
            print(f"extras: {error}", file=sys.stderr)
            return 1
        for name in names:
            try:
                check(name, EXTRAS[name], wheel, inputs, torch, Path(folder) / name)
            except BrokenPromiseError as error:
                print(f"extras: {name}: {error}", file=sys.stderr, flush=True)
                broken.append(name)
            finally:
                shutil.rmtree(Path(folder) / name, ignore_errors=True)
    ended = f"failed: {', '.join(broken)}" if broken else f"{', '.join(names)}: passed"
    print(f"extras: {ended}; {time.perf_counter() - started:.0f} s", flush=True)
    return 1 if broken else 0


def build_wheel(folder: Path) -> Path:
    """The wheel of the tree; raises BrokenPromiseError where a file of a package is not in it."""
    listed = _output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).split("\0")
    files = [name for name in listed if name and (REPOSITORY / name).is_file()]
    tree = folder / "tree"  # a copy: `build/` of an earlier build would bring files that are gone
    for name in files:
        if name.split("/")[0] in PACKAGES or "/" not in name:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, tree / name)
    _output([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(tree)])
    wheel = next(folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    missing = [name for name in files if name.split("/")[0] in PACKAGES and name not in packed]
    if missing:
        raise BrokenPromiseError(f"expected every file of the packages in the wheel, missing: {missing}")
    return wheel


def make_inputs(folder: Path) -> Path:
    """A folder with what the commands start from (see `promises`), made in this environment."""
    from tests.checkpoints import write_tiny_other
    from tests.cloud_anchor.cloud_checkpoints import make_dream

    folder.mkdir()
    make_dream(folder / "dream")
    write_tiny_other(folder / "gpt2", "GPT2LMHead")
    command = ["-m", "cloud_anchor.anchor", "--model", "tiny", "--prompt", PROMPT]
    _output([sys.executable, *command, "-o", str(folder / "edge.bin")])
    return folder


def requirements(extra: str) -> set[str]:
    """The requirements of an extra, those of the extras that it includes among them."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: set[str] = set()
    for requirement in project["optional-dependencies"][extra]:
        name, bracket, included = requirement.removesuffix("]").partition("[")
        if bracket and name == project["name"]:
            found.update(*(requirements(other) for other in included.split(",")))
        else:
            found.add(requirement)
    return found


def requirement_of_torch(extra: str) -> str | None:
    return next((text for text in requirements(extra) if re.match(r"torch\b", text)), None)


def install_torch(folder: Path, extras: Sequence[str]) -> Path | None:
    """Packages of an environment with torch alone; None where no extra requires it."""
    requirement = next(filter(None, map(requirement_of_torch, extras)), None)
    if requirement is None:
        return None
    started = time.perf_counter()
    venv.create(folder, with_pip=True)
    _output([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", requirement])
    print(f"torch: installed in {time.perf_counter() - started:.0f} s", flush=True)
    return packages_of(folder)


def packages_of(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def check(name: str, extra: Extra, wheel: Path, inputs: Path, torch: Path | None, folder: Path) -> None:
    """Install the wheel with one extra and run its commands; raises BrokenPromiseError."""
    started = time.perf_counter()
    linked = torch is not None and requirement_of_torch(name) is not None
    venv.create(folder / "venv", with_pip=not linked)
    if torch is not None and linked:
        shutil.copytree(torch, packages_of(folder / "venv"), copy_function=os.link, dirs_exist_ok=True)
    environment = Environment(folder / "venv", folder / "work", wheel, name)
    shutil.copytree(inputs, environment.work)
    installed = time.perf_counter() - started
    print(f"{name}: installed in {installed:.0f} s", flush=True)
    for package in extra.absent:
        if environment.has(package):
            raise BrokenPromiseError(f"expected no {package} with this extra, found it installed")
    if extra.transformers and not (found := environment.version("transformers")).startswith(
        extra.transformers
    ):
        raise BrokenPromiseError(f"expected transformers {extra.transformers}*, found {found}")
    for command in extra.commands:
        environment.run(command)
    for service in extra.services:
        with environment.running(service.start):
            for command in service.requests:
                environment.run(command)
    if extra.tests:
        environment.test(extra.tests)


class Environment:
    """A virtual environment with the wheel and one extra, and the folder that commands run in."""

    def __init__(self, folder: Path, work: Path, wheel: Path, extra: str) -> None:
        self.bin, self.work = folder / "bin", work
        self.python = str(self.bin / "python")
        # Nothing of the tree or of the user may be found, and no model may be fetched.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "EDGE_"))}
        self.variables = {**kept, "PYTHONNOUSERSITE": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}
        requirement = f"inverse-speculation[{extra}] @ {wheel.as_uri()}"
        options = ["--quiet", "--no-compile", "--disable-pip-version-check"]
        _output([self.python, "-m", "pip", "install", *options, requirement], self.variables)
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = int(server.getsockname()[1])
        code = "import edge_runtime.bundle.lookup as l; print(l.SHIPPED.parent)"
        self.bundles = self._call(code)

    def _call(self, code: str) -> str:
        return _output([self.python, "-c", code], self.variables, self.bin).strip()

    def has(self, package: str) -> bool:
        code = f"import importlib.util as u; print(u.find_spec({package!r}) is not None)"
        return self._call(code) == "True"

    def version(self, package: str) -> str:
        return self._call(f"import importlib.metadata as m; print(m.version({package!r}))")

    def test(self, paths: Sequence[str]) -> None:
        """Run test files of the tree; raises BrokenPromiseError where one fails."""
        started = time.perf_counter()
        wanted = [text for text in requirements("dev") if re.match(r"(pytest|hypothesis)\b", text)]
        _output([self.python, "-m", "pip", "install", "--quiet", "--no-compile", *wanted], self.variables)
        command = [self.python, "-m", "pytest", "-p", "no:cacheprovider", *paths]
        said = _output(command, {**self.variables, "OMP_NUM_THREADS": "1"}).strip().splitlines()
        print(f"    {time.perf_counter() - started:5.1f} s  pytest {' '.join(paths)}", flush=True)
        print(f"            {said[-1]}", flush=True)

    def words(self, command: Command) -> list[str]:
        """The command's words, with the values of {bundles} and {port}."""
        line = command.line.replace("{bundles}", self.bundles).replace("{port}", str(self.port))
        program, *arguments = shlex.split(line)
        if program.startswith("inversespec-"):
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
        if done.returncode:
            raise BrokenPromiseError(
                f"{command.line}: exit {done.returncode}\n{_tail(done.stdout + done.stderr)}"
            )
        if written and not (written.is_file() and written.stat().st_size):
            raise BrokenPromiseError(f"{command.line}: expected it to write {command.writes}, found none")
        print(f"    {time.perf_counter() - started:5.1f} s  {command.line}", flush=True)

    @contextmanager
    def running(self, command: Command) -> Iterator[None]:
        """A running service, ready for requests; afterwards SIGTERM must end it with exit code 0."""
        log = self.work / "service.log"
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                self.words(command), cwd=self.work, env=self.variables, stdout=file, stderr=file
            )
            try:
                self._wait_until_ready(process, command, log)
                yield
                process.send_signal(signal.SIGTERM)
                if code := process.wait(timeout=60):
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


def _output(command: list[str], variables: dict[str, str] | None = None, folder: Path = REPOSITORY) -> str:
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode:
        said = _tail(done.stdout + done.stderr)
        raise BrokenPromiseError(f"{' '.join(command)}: exit {done.returncode}\n{said}")
    return done.stdout


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-20:])


if __name__ == "__main__":
    sys.exit(main())
