"""ONNX Runtime's native libraries for Android: download and verification.

Responsible for the source archive, its integrity and the alignment of the libraries. Not responsible for the
APK.

The archive is `com.microsoft.onnxruntime:onnxruntime-android` from Maven Central. Where it is not available,
the same libraries are taken from an npm package, if they have the SHA-256 pinned here. In both cases they
must be built from the commit of the desktop natives, which the tests run on.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

from android_demo.errors import BuildError

HERE = Path(__file__).resolve().parent
VERSION = re.findall(r"<onnxruntime.version>(.*?)<", (HERE / "pom.xml").read_text())[0]
MAVEN = f"com.microsoft.onnxruntime:onnxruntime-android:{VERSION}:aar"
NPM = "com.github.asus4.onnxruntime@0.4.9"
NPM_ARCHIVE = "package/Plugins/Android/onnxruntime.aar"
LIBRARIES = ("libonnxruntime.so", "libonnxruntime4j_jni.so")
PAGE = 16 * 1024
"""Page size of some devices from Android 15 on; a library aligned to less cannot be loaded there."""

NPM_SHA256 = {
    "arm64-v8a/libonnxruntime.so": "3a602b463d434d20fbf69cd1b8bdfd2f86a2cb67d08de97aec8f62476fa4ab87",
    "arm64-v8a/libonnxruntime4j_jni.so": "45673d7fba377fe0555892460766051b5993d65c9f65e528dc9d515c07c9f683",
    "x86_64/libonnxruntime.so": "1fbfff77a79d79d4e99c2ae78d048044b689782da7e2b0a268443279ae615566",
    "x86_64/libonnxruntime4j_jni.so": "d1c4b89f0b88d8f9cb722ca5cedca0855001b6922d8abc268822f3c7936b2469",
}


def natives(abis: list[str], cache: Path) -> dict[str, bytes]:
    """Verified libraries of each ABI: `ABI/name.so` to content. Raises BuildError."""
    path = archive(cache)
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(path) as aar:
        for name in (f"{abi}/{library}" for abi in abis for library in LIBRARIES):
            try:
                found[name] = aar.read(f"jni/{name}")
            except KeyError:
                raise BuildError(f"{path}: expected jni/{name} in it, found none") from None
            check_pages(name, found[name])
    check_build(found)
    return found


def archive(cache: Path) -> Path:
    """The archive of natives: $ORT_ANDROID_AAR, the cached one, Maven Central's, or npm's."""
    given = os.environ.get("ORT_ANDROID_AAR")
    if given:
        if not Path(given).is_file():
            raise BuildError(f"ORT_ANDROID_AAR: expected an archive, found no file {given}")
        return Path(given)
    path = cache / f"onnxruntime-android-{VERSION}.aar"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        if not from_maven(MAVEN, cache):
            print(f"{MAVEN} is not available; using the same libraries from npm's {NPM}")
            _from_npm(path)
    return path


def from_maven(artifact: str, folder: Path) -> bool:
    """Copies an artifact to a folder; returns False where it does not exist. Raises BuildError."""
    mvn = ["mvn", "--batch-mode", "--quiet", "--update-snapshots"]
    copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    done = subprocess.run([*mvn, *copy], capture_output=True, text=True, cwd=folder)
    if done.returncode == 0:
        return True
    if not re.search("(Could not|Unable to) find artifact", done.stdout):
        raise BuildError(f"mvn: {artifact} could not be fetched:\n{done.stdout[-2000:]}")
    return False


def _from_npm(path: Path) -> None:
    if not shutil.which("npm"):
        raise BuildError("npm: expected on the path, found none. Install it: apt-get install npm")
    pack = ["npm", "pack", "--silent", NPM]
    done = subprocess.run(pack, capture_output=True, text=True, cwd=path.parent)
    packed = path.parent / (done.stdout.split() or ["none"])[-1]
    if done.returncode or not packed.is_file():
        raise BuildError(f"npm: {NPM} could not be fetched:\n{done.stderr[-2000:]}")
    part = path.with_suffix(".part")
    with tarfile.open(packed) as tar:
        member = tar.extractfile(NPM_ARCHIVE)
        if member is None:
            raise BuildError(f"{packed}: expected {NPM_ARCHIVE} in it, found none")
        part.write_bytes(member.read())
    packed.unlink()
    with zipfile.ZipFile(part) as aar:
        for name, expected in NPM_SHA256.items():
            digest = hashlib.sha256(aar.read(f"jni/{name}")).hexdigest()
            if digest != expected:
                found = f"{digest}: do not use it"
                raise BuildError(f"{NPM}: expected SHA-256 {expected} for {name}, found {found}")
    part.rename(path)


def check_build(found: dict[str, bytes]) -> None:
    """Checks that each library is built from the commit of the desktop natives. Raises BuildError."""
    desktop = next((HERE / "build" / "lib").glob("onnxruntime-*.jar"))
    with zipfile.ZipFile(desktop) as jar:
        expected = _build(jar.read("ai/onnxruntime/native/linux-x64/libonnxruntime.so"))
    for name, data in found.items():
        if name.endswith("/libonnxruntime.so") and _build(data) != expected:
            raise BuildError(f"{name}: expected ONNX Runtime built from {expected}, found {_build(data)}")


def _build(library: bytes) -> str:
    match = re.search(rb"git-commit-id=([0-9a-f]+)", library)
    return match[1].decode() if match else "an unknown commit"


def check_pages(name: str, library: bytes) -> None:
    """Checks that every loadable segment of an ELF library is aligned to PAGE. Raises BuildError."""
    if library[:5] != b"\x7fELF\x02":
        raise BuildError(f"{name}: expected a 64-bit ELF library, found {library[:5]!r}")
    (start,) = struct.unpack_from("<Q", library, 32)
    size, count = struct.unpack_from("<HH", library, 54)
    for at in range(start, start + size * count, size):
        (kind,) = struct.unpack_from("<I", library, at)
        (align,) = struct.unpack_from("<Q", library, at + 48)
        if kind == 1 and align % PAGE:
            raise BuildError(f"{name}: expected segments aligned to {PAGE}, found {align}")
