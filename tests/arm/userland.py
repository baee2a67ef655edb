"""A Debian userland for 64-bit ARM in a folder: Python, and what the device's distribution requires.

Responsible for making it with apt and pip, without root and without running anything of it, and for running
its Python under qemu's user emulation. Every part is made beside its place and renamed when it is whole, so
an interrupted run goes on where it was. Not responsible for the programs that are run.

It avoids three traps: programs read the host's /proc/cpuinfo, qemu's default processor computes wrong int8
products, and a child process would be the host's own Python (see `emulated`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
QEMU = "qemu-aarch64"
SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = (f"python{PYTHON}", "libstdc++6")
SOURCE = "deb [arch=arm64 signed-by={keyring}] {mirror} {suite} main\n"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TEST_TOOLS = ("pytest", "hypothesis", "regex", "jsonschema", "llguidance")
TAGS = ("manylinux_2_31_aarch64", "manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")

_A72 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
CPUS = {
    "cortex-a72": ("0xd08", _A72),
    "cortex-a76": ("0xd0b", f"{_A72} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"),
}
"""Processors by qemu's name: part number and features, as Linux reports them."""


class UserlandError(Exception):
    """The userland cannot be made or run here; the message says what is missing and what to do."""


class Userland:
    """The userland in a folder, made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.packages = folder / "site-packages"

    def prepare(self) -> None:
        """Make the parts that are missing; raises UserlandError where a tool is missing or fails."""
        _need_qemu()
        self.folder.mkdir(parents=True, exist_ok=True)
        _once(self.root, {"suite": SUITE, "packages": PACKAGES}, _unpack_debian)
        _once(self.packages, {"python": PYTHON, "wheels": requirements()}, _install_wheels)

    def command(self, cpu: str, arguments: Sequence[str]) -> list[str]:
        """The command that runs the userland's Python with these arguments as a processor of `CPUS`."""
        part, features = CPUS[cpu]
        cores = [
            f"processor\t: {core}\nBogoMIPS\t: 100.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
            f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: 3\n\n"
            for core in range(os.cpu_count() or 1)
        ]
        # qemu opens a path in the root folder where it is there, else the host's own.
        (self.root / "proc").mkdir(exist_ok=True)
        (self.root / "proc" / "cpuinfo").write_text("".join(cores), encoding="ascii")
        python = self.root / "usr" / "bin" / f"python{PYTHON}"
        # Without site (-S), the host's packages of the same Python stay out.
        return [QEMU, "-cpu", cpu, "-L", str(self.root), str(python), "-S", *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        """Environment for `command`. Bytecode goes to a folder of its own, never to the host's library."""
        kept = {name: os.environ[name] for name in ("HOME", "PATH", "LANG", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join((str(self.packages), str(REPOSITORY))),
            "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"),
            "PYTHONNOUSERSITE": "1",
            **more,
        }


def requirements() -> list[str]:
    """Requirements of the device and the tests, in the versions installed here, so results compare."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *TEST_TOOLS]
    pinned = []
    for requirement in wanted:
        name = requirement.split(">")[0].split("=")[0].split("<")[0].strip()
        try:
            pinned.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            pinned.append(requirement)
    return pinned


def _need_qemu() -> None:
    if shutil.which(QEMU):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing qemu-user", flush=True)
        _call(["apt-get", "-q", "-y", "update"])
        _call(["apt-get", "-q", "-y", "--no-install-recommends", "install", "qemu-user"])
    if not shutil.which(QEMU):
        raise UserlandError(
            f"expected {QEMU} on the PATH, found none: install qemu-user (apt-get install qemu-user), "
            "or run this as root on a system with apt"
        )


def _once(target: Path, recipe: Mapping[str, object], make: Callable[[Path], None]) -> None:
    """Make a folder by a recipe, unless it was made by the same one."""
    stamp, text = target.with_name(f"{target.name}.json"), json.dumps(recipe, indent=1)
    if target.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == text:
        return
    print(f"making {target}", flush=True)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        part = Path(name) / target.name
        part.mkdir()
        make(part)
        part.rename(target)
    stamp.write_text(text, encoding="utf-8")


def _mirror() -> str:
    """Address of this system's Debian mirror, from apt's sources; raises UserlandError."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)"]
    listed = subprocess.run([*command, "Created-By: Packages"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        address, *rest = line.split()
        if rest == [SUITE, "main"]:
            return address
    raise UserlandError(f"expected Debian {SUITE} among the sources of apt, found none: add it")


def _unpack_debian(root: Path) -> None:
    """Unpack Debian's packages: apt with a state of its own, as on a system with nothing installed."""
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise UserlandError(f"expected {tool} on the PATH, found none: run this on Debian or Ubuntu")
    if not KEYRING.is_file():
        raise UserlandError(f"expected {KEYRING}, found none: apt-get install debian-archive-keyring")
    with tempfile.TemporaryDirectory() as name:
        apt = Path(name)
        for folder in ("state/lists/partial", "cache/archives/partial"):
            (apt / folder).mkdir(parents=True)
        (apt / "status").touch()
        (apt / "sources.list").write_text(
            SOURCE.format(keyring=KEYRING, mirror=_mirror(), suite=SUITE), "ascii"
        )
        settings = {
            "APT::Architecture": "arm64",
            "APT::Architectures::": "arm64",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Dir::State": str(apt / "state"),
            "Dir::State::status": str(apt / "status"),
            "Dir::Cache": str(apt / "cache"),
            "Dir::Etc::sourcelist": str(apt / "sources.list"),
            "Dir::Etc::sourceparts": "-",
        }
        command = ["apt-get", "-q", *(part for item in settings.items() for part in ("-o", "=".join(item)))]
        _call([*command, "update"])
        _call([*command, "-y", "--no-install-recommends", "--download-only", "install", *PACKAGES])
        for package in sorted((apt / "cache" / "archives").glob("*.deb")):
            _call(["dpkg-deb", "--extract", str(package), str(root)])


def _install_wheels(target: Path) -> None:
    """Install aarch64 wheels with this Python's pip, which only unpacks them."""
    platforms = [part for tag in TAGS for part in ("--platform", tag)]
    options = ["--quiet", "--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp"]
    pip = [sys.executable, "-m", "pip", "install", "--target", str(target)]
    _call([*pip, *options, *platforms, *requirements()])


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise UserlandError(
            f"expected {' '.join(command[:3])} ... to succeed, found exit {done.returncode}:\n{tail}"
        )
