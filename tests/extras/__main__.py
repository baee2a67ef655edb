"""python -m tests.extras: each extra by itself in a fresh environment, with the commands promised for it.

A development environment has everything installed and hides what an extra forgets. This installs one extra at
a time and runs its commands away from the tree, so that files missing from a wheel show as well. `edge` is
the device's wheel alone, as a board installs it (see `wheels`); the others come from a copy of the checkout.
`edge` is tried on every version of Python in PYTHONS that is here: on the path, or among pyenv's; all wheels
are installed on each.

Environments lie in a temporary folder and are deleted after use.

Of the extra convert there are two environments, with the two generations of transformers that are supported.
The tests that depend on it run there too, from the tree.

A device's wheel is installed by pip, the others by uv: torch with its CUDA libraries takes 6 GB, and uv
unpacks it once and links it into the environments of the extras that require it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.extras.environment import BrokenPromiseError, Environment, output
from tests.extras.promises import EXTRAS, PROMPT, Extra
from tests.extras.wheels import ROOMS, build_wheels, check_wheels, copy_tree

PYTHONS = ("3.11", "3.12", "3.13")
"""Versions of Python that a device may have."""


def main(argv: Sequence[str] | None = None) -> int:
    usual = [name for name, extra in EXTRAS.items() if not extra.asked]
    parser = argparse.ArgumentParser(
        prog="python -m tests.extras",
        description=__doc__,
        epilog="example:\n  python -m tests.extras edge cloud",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "extras", nargs="*", metavar="EXTRA", help=f"some of {', '.join(EXTRAS)} ({', '.join(usual)})"
    )
    names = parser.parse_args(argv).extras or usual
    if unknown := [name for name in names if name not in EXTRAS]:
        parser.error(f"expected some of {', '.join(EXTRAS)}, found {', '.join(unknown)}")
    started = time.perf_counter()
    broken = []
    with tempfile.TemporaryDirectory(prefix="extras-") as folder:
        try:
            tree = copy_tree(Path(folder) / "tree")
            wheels = build_wheels(tree)
            check_wheels(wheels)
            for python in interpreters():
                install_wheels(wheels, python, Path(folder) / "wheels")
            inputs = make_inputs(Path(folder) / "inputs")
        except BrokenPromiseError as error:
            print(f"extras: {error}", file=sys.stderr)
            return 1
        for name in names:
            try:
                requirement = (
                    str(wheels["inverse-speculation"])
                    if name == "edge"
                    else f"{tree}[{EXTRAS[name].extra or name}]"
                )
                for python in interpreters() if name == "edge" else [sys.executable]:
                    shutil.rmtree(Path(folder) / name, ignore_errors=True)
                    check(name, EXTRAS[name], requirement, inputs, Path(folder), python)
            except BrokenPromiseError as error:
                print(f"extras: {name}: {error}", file=sys.stderr, flush=True)
                broken.append(name)
            finally:
                shutil.rmtree(Path(folder) / name, ignore_errors=True)
    ended = f"failed: {', '.join(broken)}" if broken else f"{', '.join(names)}: passed"
    print(f"extras: {ended}; {time.perf_counter() - started:.0f} s", flush=True)
    return 1 if broken else 0


def interpreters() -> list[str]:
    """The interpreters of PYTHONS on this machine; says which are missing."""
    found = []
    for version in PYTHONS:
        kept = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
        places = [shutil.which(f"python{version}"), *map(str, sorted(kept))]
        # A shim of pyenv is on the path for versions that are not chosen too, and fails.
        runs = [p for p in places if p and not subprocess.run([p, "-c", ""], capture_output=True).returncode]
        if runs:
            found.append(runs[0])
        else:
            print(f"edge: Python {version} is not tried: expected python{version}, found none", flush=True)
    return found


def install_wheels(wheels: Mapping[str, Path], python: str, folder: Path) -> None:
    """All wheels on one interpreter: they install, its compiler takes every file, and the index has what they
    require for it, of which uv reads the metadata alone, where pip would fetch gigabytes. Raises
    BrokenPromiseError.
    """
    started, files = time.perf_counter(), [str(path) for path in wheels.values()]
    output([python, "-m", "venv", "--clear", str(folder)])
    inside = str(folder / "bin" / "python")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    output([*pip, "--no-deps", "--no-compile", *files])
    rooms = [str(packages_of(folder) / room) for room in sorted(ROOMS)]
    output([inside, "-W", "error", "-m", "compileall", "-q", *rooms])
    version = output([inside, "--version"]).split()[-1]
    (wanted := folder / "requirements.in").write_text(
        "".join(f"{name} @ {path.resolve().as_uri()}\n" for name, path in wheels.items()), encoding="utf-8"
    )
    uv = [sys.executable, "-m", "uv", "--no-cache", "pip", "compile", "--quiet", "--no-header"]
    output([*uv, "--python-version", version, "--output-file", str(folder / "requirements.txt"), str(wanted)])
    took = time.perf_counter() - started
    print(f"wheels: installed, compiled and resolved in {took:.0f} s, Python {version}", flush=True)


def make_inputs(folder: Path) -> Path:
    """A folder with what the commands start from (see `promises`), made in this environment."""
    from lab.benches.write_gguf import write_gguf
    from tests.cloud_anchor.cloud_checkpoints import make_dream

    folder.mkdir()
    make_dream(folder / "dream")
    output([sys.executable, "-m", "lab.benches.random_checkpoint", str(folder / "qwen")])
    write_gguf(folder / "qwen", folder / "qwen.gguf", "f32", "f32")
    anchor = ["-m", "cloud_anchor.anchor", "--model", "testbed", "--codec", "compact", "--prompt", PROMPT]
    output([sys.executable, *anchor, "-o", str(folder / "edge.bin")])
    return folder


def packages_of(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def check(
    name: str,
    extra: Extra,
    requirement: str,
    inputs: Path,
    temporary: Path,
    python: str,
) -> None:
    """Install a requirement and run the extra's commands; raises BrokenPromiseError."""
    started, folder, device = time.perf_counter(), temporary / name, name == "edge"
    output([python, "-m", "venv", *([] if device else ["--without-pip"]), str(folder / "venv")])
    cache = None if device else temporary / "uv"
    environment = Environment(folder / "venv", folder / "work", cache, requirement, *extra.pins)
    shutil.copytree(inputs, environment.work)
    installed = time.perf_counter() - started
    version = output([environment.python, "--version"]).strip()
    print(f"{name}: installed in {installed:.0f} s, {version}", flush=True)
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
        with environment.running(service.start, service.port):
            for command in service.requests:
                environment.run(command)
    if extra.tests:
        environment.test(extra.tests)


if __name__ == "__main__":
    sys.exit(main())
