"""`make aar`: the library as an Android archive in a Maven repository of plain files, without Gradle.

Responsible for the archive, its POM, sources and documentation beside it, the jar for coroutines, their
checksums and the layout that `mavenLocal` and a static web server share; and for the dump of the public API
that changes are compared with. Not responsible for compiling (Maven runs first) or for apps (see `apk`).

    android_demo/build/maven/inversespec/edge-runtime/maven-metadata.xml
    .../0.2.0/edge-runtime-0.2.0.aar .pom -sources.jar -javadoc.jar, each with .md5 .sha1 .sha256
    android_demo/build/maven/inversespec/edge-runtime-coroutines/0.2.0/ .jar .pom -sources.jar
"""

from __future__ import annotations

import difflib
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from android_demo.errors import BuildError
from common.cli import CommandParser, run_command

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "edge-runtime"
TARGET = LIBRARY / "target"
SOURCES = LIBRARY / "src" / "main" / "kotlin"
REPOSITORY = HERE / "build" / "maven"
API = LIBRARY / "api.txt"
GROUP, ARTIFACT, COROUTINES = "inversespec", "edge-runtime", "edge-runtime-coroutines"
API_PACKAGE = "inversespec/edge/"
"""The package whose public classes are the API; those below it are the library's own."""

_SHARED_POM = (HERE / "pom.xml").read_text(encoding="utf-8")


def pom_property(name: str) -> str:
    """The value of an element of the shared POM, such as a version."""
    return re.findall(f"<{name}>(.*?)</{name}>", _SHARED_POM)[0]


VERSION = pom_property("version")


def _template(name: str, **values: str) -> str:
    """A text of the folder `templates` with values in place of its {names}."""
    return (HERE / "templates" / name).read_text(encoding="utf-8").format(**values)


_VERSIONS = {
    "group": GROUP,
    "version": VERSION,
    "kotlin": pom_property("kotlin.version"),
    "onnxruntime": pom_property("onnxruntime.version"),
    "coroutines": pom_property("coroutines.version"),
}
POM = _template("edge-runtime.pom", artifact=ARTIFACT, **_VERSIONS)
COROUTINES_POM = _template("coroutines.pom", artifact=COROUTINES, library=ARTIFACT, **_VERSIONS)
AAR_METADATA = "aarFormatVersion=1.0\naarMetadataVersion=1.0\nminCompileSdk=26\n"


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip archive; the same bytes for the same files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return out.getvalue()


def classes_jar(jar: Path) -> bytes:
    """The classes and resources of Maven's jar, without Maven's own files; raises BuildError."""
    if not jar.is_file():
        raise BuildError(f"{jar}: expected the compiled library, found none. Run `make aar`.")
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        return zipped({name: archive.read(name) for name in names if not name.startswith("META-INF/maven/")})


def folder_files(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    """The files below a folder, by path; raises BuildError where there are none."""
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob(pattern)
        if path.is_file()
    }
    if not found:
        raise BuildError(f"{folder}: expected files ({pattern}), found none. Run `make aar`.")
    return found


def archive() -> bytes:
    """The AAR: classes, manifest, rules for apps that shrink, and an empty list of resources."""
    parts = LIBRARY / "aar"
    return zipped(
        {
            "AndroidManifest.xml": (parts / "AndroidManifest.xml").read_bytes(),
            "META-INF/com/android/build/gradle/aar-metadata.properties": AAR_METADATA.encode(),
            "R.txt": b"",
            "classes.jar": classes_jar(TARGET / f"{ARTIFACT}-{VERSION}.jar"),
            "proguard.txt": (parts / "proguard.txt").read_bytes(),
        }
    )


def publish(repository: Path = REPOSITORY) -> list[Path]:
    """Writes both artifacts again and returns the folders of their version; raises BuildError."""
    coroutines = HERE / COROUTINES
    library = {
        ".aar": archive(),
        ".pom": POM.encode(),
        "-sources.jar": zipped(folder_files(SOURCES, "*.kt")),
        "-javadoc.jar": zipped(folder_files(TARGET / "dokkaJavadoc")),
    }
    flows = {
        ".jar": classes_jar(coroutines / "target" / f"{COROUTINES}-{VERSION}.jar"),
        ".pom": COROUTINES_POM.encode(),
        "-sources.jar": zipped(folder_files(coroutines / "src" / "main" / "kotlin", "*.kt")),
    }
    return [_publish(repository, ARTIFACT, library), _publish(repository, COROUTINES, flows)]


def _publish(repository: Path, artifact: str, files: Mapping[str, bytes]) -> Path:
    """files: by the end of their names."""
    root = repository / GROUP / artifact
    shutil.rmtree(root, ignore_errors=True)
    folder = root / VERSION
    folder.mkdir(parents=True)
    for end, data in files.items():
        _write(folder / f"{artifact}-{VERSION}{end}", data)
    listed = _template("maven-metadata.xml", artifact=artifact, **_VERSIONS)
    _write(root / "maven-metadata.xml", listed.encode())
    return folder


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    for kind in ("md5", "sha1", "sha256"):
        path.with_name(f"{path.name}.{kind}").write_text(hashlib.new(kind, data).hexdigest())


def _internal(kind: str) -> set[str]:
    """Names of the internal declarations of a kind in the API's package, which are public to the JVM."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCES / API_PACKAGE).glob("*.kt"))
    return set(re.findall(rf"(?m)^internal (?:\w+ )*{kind} (?:<[^>]*> )?(?:[\w<>?]+\.)?(\w+)", text))


def api_of(classes: bytes, scratch: Path) -> str:
    """The public API as text, from javap: classes of the API's package with their public members, sorted.

    Left out: what Kotlin calls internal, and what compilers add. scratch: an empty folder.
    """
    jar = scratch / "classes.jar"
    jar.write_bytes(classes)
    with zipfile.ZipFile(jar) as archive_:
        names = sorted(
            name.removesuffix(".class").replace("/", ".")
            for name in archive_.namelist()
            if re.fullmatch(rf"{API_PACKAGE}\w+(\$[A-Za-z]\w*)*\.class", name)
        )
    hidden = _internal("(?:class|object|interface)")
    functions = _internal("fun")
    names = [name for name in names if name.rpartition(".")[2].partition("$")[0] not in hidden]
    shown = subprocess.run(
        ["javap", "-protected", "-cp", str(jar), *names], capture_output=True, text=True, check=True
    )
    blocks = re.findall(r"^(.*) \{\n((?:  .*\n)*)\}", shown.stdout, re.MULTILINE)
    parts = []
    for head, body in blocks:
        facade = re.search(r"\b\w+Kt$", head) is not None
        lines = map(str.strip, body.splitlines())
        members = sorted(line for line in lines if not _added(line, functions if facade else set()))
        if head.startswith(("public", "protected")) and (members or not facade):
            parts.append("\n".join([head, *(f"    {member}" for member in members)]))
    return "\n\n".join(parts) + "\n"


def _added(member: str, internal: set[str]) -> bool:
    """True for a member that Kotlin's compiler adds, or calls internal."""
    name = re.search(r"(\w+)\(", member)
    return (
        any(mark in member for mark in ("$edge_runtime", "DefaultConstructorMarker", "$default(", " access$"))
        or member == "static {};"
        or re.search(r"\binversespec\.edge\.[a-z]\w*\.", member) is not None  # of a package below the API's
        or (name is not None and name[1] in internal)
    )


def check_api(*, write: bool) -> None:
    """Compares the API with the file of it; raises BuildError with the difference, or writes the file."""
    with tempfile.TemporaryDirectory() as folder:
        found = api_of(classes_jar(TARGET / f"{ARTIFACT}-{VERSION}.jar"), Path(folder))
    if write:
        API.write_text(found, encoding="utf-8")
        return
    known = API.read_text(encoding="utf-8") if API.is_file() else ""
    if found != known:
        texts = known.splitlines(), found.splitlines()
        lines = difflib.unified_diff(*texts, API.name, "this build", n=0, lineterm="")
        raise BuildError(
            f"{API}: expected the API that is written there, found another:\n" + "\n".join(lines) + "\n"
            "Where the change is wanted: python -m android_demo.aar api --write"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m android_demo.aar",
        description="Package the compiled library for Android apps, or compare its API with api.txt.",
        epilog="example: make aar",
    )
    parser.add_argument("step", choices=["publish", "api"])
    parser.add_argument("--write", action="store_true", help="api: accept the API of this build")
    args = parser.parse_args(argv)

    def run() -> None:
        if args.step == "api":
            check_api(write=args.write)
        else:
            for folder in publish():
                for path in sorted(folder.glob("*.aar")) + sorted(folder.glob("*.jar")):
                    print(f"{path.stat().st_size:>10,} {path.name}")
                print(f'implementation("{GROUP}:{folder.parent.name}:{VERSION}") from {REPOSITORY}')

    return run_command("aar", run)


if __name__ == "__main__":
    sys.exit(main())
