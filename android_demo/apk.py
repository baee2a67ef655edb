"""`make apk`: builds an APK from compiled classes, resources, assets and natives, without an Android SDK.

Responsible for the tools, their order, and the verification of the result. Not responsible for compiling
Kotlin (Maven runs first) or for the origin of the natives (see `natives`).
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from android_demo.errors import BuildError
from android_demo.natives import PAGE, from_maven, natives
from common.cli import CommandParser, run_command

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
MAIN = HERE / "app" / "src" / "main"
APK = BUILD / "inverse-speculation.apk"
ASSETS = BUILD / "assets"
LIBRARIES = BUILD / "lib"
RESOURCES = BUILD / "resources.ap_"
DEBUG_RESOURCES = HERE / "app" / "src" / "debug" / "res"
MANIFEST = MAIN / "AndroidManifest.xml"
FRAMEWORK = Path("/usr/share/android-framework-res/framework-res.apk")
SHRINK = HERE / "app" / "proguard.pro"
SHRUNK = BUILD / "classes.jar"
DEX = BUILD / "classes.dex"
MIN_SDK, TARGET_SDK = "26", "36"
SHIPPED = BUILD / "shipped.jar"
KEYSTORE = BUILD / "debug.keystore"
PASSWORD = "android"  # the conventional password of debug keys; not a secret
ABIS = ("arm64-v8a", "x86_64")
JAVA = ("java", "-Xmx900m", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=2")

PERMISSIONS = ("android.permission.INTERNET", "android.permission.ACCESS_NETWORK_STATE")
"""All that the app asks for: the network, and from Android 14 on a job that waits for one."""

PACKAGES = {
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "keytool": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "aapt": "aapt",
    "apksigner": "apksigner",
    "dexdump": "dexdump",
    "zipalign": "zipalign",
}
"""Required commands, each with its Debian package."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="python -m android_demo.apk", description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["tools", "resources", "package", "verify", "jar", "screens"])
    parser.add_argument(
        "--debug", action="store_true", help="debuggable, and plain http to the local network is permitted"
    )
    parser.add_argument("--abis", default=",".join(ABIS), help=f"ABIs to include (default {','.join(ABIS)})")
    args = parser.parse_args(argv)
    abis = args.abis.split(",")
    steps: dict[str, Callable[[], None]] = {
        "tools": check_tools,
        "resources": lambda: resources(debug=args.debug),
        "package": lambda: package(abis, debug=args.debug),
        "verify": lambda: verify(abis, debug=args.debug),
        "jar": dex_to_jar,
        "screens": robolectric_classes,
    }
    return run_command("apk", steps[args.step])


def missing_packages() -> list[str]:
    """Debian packages of the required commands and files that are not installed."""
    missing = {package for command, package in PACKAGES.items() if not shutil.which(command)}
    if not FRAMEWORK.is_file():
        missing.add("android-framework-res")
    return sorted(missing)


def check_tools() -> None:
    """Raises BuildError naming the missing Debian packages."""
    missing = missing_packages()
    if missing:
        raise BuildError(
            f"expected {', '.join(missing)}, not installed. Install: apt-get install {' '.join(missing)}"
        )


def run(*command: str | Path) -> str:
    """Standard output of a command. Raises BuildError with its output where it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{Path(command[0]).name} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def resources(*, debug: bool) -> None:
    """Compiles manifest, resources and assets, and writes R.java, which the Kotlin classes refer to.

    debug: marks the app as debuggable, and puts the resources of the debug variant in place of others.
    """
    source = BUILD / "gen"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    version = re.findall(r"<version>(.*?)</version>", (HERE / "pom.xml").read_text())[0]
    major, minor, patch = (int(part) for part in version.split("."))
    code = str(10_000 * major + 100 * minor + patch)
    levels = ("--min-sdk-version", MIN_SDK, "--target-sdk-version", TARGET_SDK)
    versions = ("--version-code", code, "--version-name", version)
    inputs = ("-M", MANIFEST, "-S", MAIN / "res", "-A", ASSETS, "-I", FRAMEWORK)
    variant = ("--debug-mode", "-S", DEBUG_RESOURCES) if debug else ()  # of equal names the first is taken
    run("aapt", "package", "-f", "-m", *variant, *levels, *versions, *inputs, "-J", source, "-F", RESOURCES)


def tools_class_path() -> str:
    """Class path of the build tools from Maven Central."""
    return (BUILD / "tools.classpath").read_text().strip()


def package(abis: list[str], *, debug: bool) -> None:
    """Shrinks, dexes, packs, signs and verifies."""
    libraries = natives(abis, BUILD / "natives")
    classes = [HERE / "app" / "target" / "app-0.2.0.jar", *sorted(LIBRARIES.glob("*.jar"))]
    inputs_changed = max(path.stat().st_mtime for path in (*classes, SHRINK, HERE / "tools" / "pom.xml"))
    if not DEX.is_file() or DEX.stat().st_mtime < inputs_changed:
        shrink(classes)
        to_dex()
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        unsigned = Path(folder) / "unsigned.apk"
        pack(unsigned, libraries)
        sign(unsigned)
    verify(abis, debug=debug)
    print(size_table())


def shrink(jars: list[Path]) -> None:
    """Writes one jar with the reachable classes."""
    class_path = tools_class_path()
    android = next(path for path in class_path.split(":") if "/android-all-" in path)
    keep_classes = "(!META-INF/**,!module-info.class,**.class,**.bin)"
    options = [part for jar in jars for part in ("-injars", f"{jar}{keep_classes}")]
    options += ["-outjars", str(SHRUNK), "-libraryjars", f"{android}(**.class)"]
    for module in jdk_modules():
        options += ["-libraryjars", f"{module}(!**.jar;!module-info.class)"]
    run(*JAVA, "-cp", class_path, "proguard.ProGuard", f"@{SHRINK}", *options)


def jdk_modules() -> list[Path]:
    """The JDK modules whose classes Android implements itself; the platform jar lacks them."""
    home = Path(shutil.which("javac") or "javac").resolve().parents[1]
    modules = [home / "jmods" / f"java.{name}.jmod" for name in ("base", "logging")]
    for module in modules:
        if not module.is_file():
            raise BuildError(f"expected {module}, found none: apt-get install {PACKAGES['javac']}")
    return modules


def to_dex() -> None:
    """Writes Dalvik bytecode of the shrunk classes. Raises BuildError where a phone cannot run it."""
    part = BUILD / "part.dex"
    dx = ("com.android.dx.command.Main", "--dex", f"--min-sdk-version={MIN_SDK}", "--num-threads=1")
    run(*JAVA, "-cp", tools_class_path(), *dx, f"--output={part}", SHRUNK)
    check_dex(part)
    part.rename(DEX)


def check_dex(dex: Path) -> None:
    """Raises BuildError for invoke-custom instructions, which Android's runtime cannot link."""
    custom = run("dexdump", "-d", dex).count("invoke-custom")
    if custom:
        raise BuildError(f"{dex.name}: expected no invoke-custom, found {custom}; see -Xlambdas in pom.xml")


def method_count(dex: bytes) -> int:
    """Number of methods that a dex file refers to, at most 65,536."""
    return int(struct.unpack_from("<I", dex, 88)[0])


def pack(apk: Path, libraries: dict[str, bytes]) -> None:
    """Writes the unsigned APK. Entries that Android maps into memory are stored and aligned."""
    with zipfile.ZipFile(apk, "w") as out, zipfile.ZipFile(RESOURCES) as compiled:
        for name in compiled.namelist():
            add(out, name, compiled.read(name), align=4 if name == "resources.arsc" else None)
        add(out, "classes.dex", DEX.read_bytes())
        model = zipfile.ZipFile(next(LIBRARIES.glob("edge-runtime-*.jar")))
        for name in (name for name in model.namelist() if name.endswith(".bin")):
            add(out, name, model.read(name))
        for name, data in libraries.items():
            add(out, f"lib/{name}", data, align=PAGE)


def add(out: zipfile.ZipFile, name: str, data: bytes, align: int | None = None) -> None:
    """Adds an entry: deflated, or, with `align`, stored at an offset that is a multiple of it.

    The padding is extra field 0xD935, as of the Android tools, so that the signer keeps the alignment.
    """
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    if align is None:
        entry.compress_type = zipfile.ZIP_DEFLATED
    else:
        assert out.fp is not None
        start = out.fp.tell() + 30 + len(name.encode()) + 6
        padding = -start % align
        entry.extra = struct.pack("<HHH", 0xD935, 2 + padding, align) + bytes(padding)
    out.writestr(entry, data)


def sign(unsigned: Path) -> None:
    """Signs (schemes 2 and 3) with a debug key in the build folder, which is generated on first use."""
    if not KEYSTORE.is_file():
        store = ("-keystore", KEYSTORE, "-storepass", PASSWORD, "-keypass", PASSWORD)
        key = "-alias debug -dname CN=debug -keyalg RSA -keysize 2048 -validity 10000".split()
        run("keytool", "-genkeypair", *store, *key)
    part = APK.with_suffix(".part")
    schemes = "--v1-signing-enabled false --v2-signing-enabled true --v3-signing-enabled true".split()
    key = ["--ks", str(KEYSTORE), "--ks-pass", f"pass:{PASSWORD}", "--min-sdk-version", MIN_SDK]
    run("apksigner", "sign", *key, *schemes, "--out", part, unsigned)
    part.with_name(part.name + ".idsig").unlink(missing_ok=True)
    part.rename(APK)


def verify(abis: list[str], *, debug: bool = False) -> None:
    """Checks the APK against the requirements of phones and, without debug, stores. Raises BuildError."""
    if not APK.is_file():
        raise BuildError(f"expected {APK}, found none: run `make apk`")
    signature = run("apksigner", "verify", "--verbose", "--min-sdk-version", MIN_SDK, APK)
    for scheme in ("v2", "v3"):
        if not re.search(rf"Verified using {scheme} scheme.*: true", signature):
            raise BuildError(f"apksigner: expected a signature of scheme {scheme}, found:\n{signature}")
    badging = run("aapt", "dump", "badging", APK)
    codes = " ".join(f"'{abi}'" for abi in sorted(abis))
    for line in (
        "package: name='inversespec.app'",
        f"sdkVersion:'{MIN_SDK}'",
        f"targetSdkVersion:'{TARGET_SDK}'",
        "launchable-activity: name='inversespec.app.MainActivity'",
        f"native-code: {codes}",
    ):
        if line not in badging:
            raise BuildError(f"aapt: expected {line!r}, found:\n{badging}")
    if ("application-debuggable" in badging) != debug:
        raise BuildError(f"aapt: expected {'a' if debug else 'no'} debuggable app, found the other")
    permissions = re.findall(r"uses-permission: name='([^']*)'", badging)
    if sorted(permissions) != sorted(PERMISSIONS):
        raise BuildError(f"aapt: expected the permissions {', '.join(PERMISSIONS)}, found {permissions}")
    run("zipalign", "-c", "-p", "4", APK)
    for entry, start in stored_entries(APK):
        if entry.filename.endswith(".so") and start % PAGE:
            raise BuildError(f"{entry.filename}: expected to start at a multiple of {PAGE}, found {start}")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(APK) as apk:
        check_dex(Path(apk.extract("classes.dex", folder)))


def dex_to_jar() -> None:
    """Converts the dex of the APK back to a jar with its resources, to run it on a JVM."""
    with tempfile.TemporaryDirectory(dir=BUILD) as folder, zipfile.ZipFile(APK) as apk:
        dex = apk.extract("classes.dex", folder)
        convert = ("com.googlecode.dex2jar.tools.Dex2jarCmd", "--force", "--compute-frames")
        run(*JAVA, "-cp", tools_class_path(), *convert, "--dont-sanitize-names", "--output", SHIPPED, dex)
        with zipfile.ZipFile(SHIPPED, "a") as jar:
            for name in apk.namelist():
                if name.startswith("inversespec/"):
                    jar.writestr(name, apk.read(name))


def robolectric_classes() -> None:
    """Extracts the classes that Robolectric needs from an archive that Maven cannot put on a class path."""
    archive = BUILD / "robolectric" / "monitor-1.8.0.aar"
    if not archive.is_file():
        archive.parent.mkdir(parents=True, exist_ok=True)
        if not from_maven("androidx.test:monitor:1.8.0:aar", archive.parent):
            raise BuildError("androidx.test:monitor:1.8.0 is not available, and Robolectric needs it")
    with zipfile.ZipFile(archive) as aar:
        archive.with_name("monitor.jar").write_bytes(aar.read("classes.jar"))


def stored_entries(apk: Path) -> Iterator[tuple[zipfile.ZipInfo, int]]:
    """Uncompressed entries, each with the offset of its data."""
    with zipfile.ZipFile(apk) as archive, apk.open("rb") as file:
        for entry in archive.infolist():
            if entry.compress_type == zipfile.ZIP_STORED:
                file.seek(entry.header_offset + 26)
                name, extra = struct.unpack("<HH", file.read(4))
                yield entry, entry.header_offset + 30 + name + extra


def size_table() -> str:
    """Sizes of the parts of the APK, largest first."""
    parts: dict[str, int] = defaultdict(int)
    with zipfile.ZipFile(APK) as apk:
        for entry in apk.infolist():
            parts[_part_of(entry.filename)] += entry.compress_size
        methods = method_count(apk.read("classes.dex"))
    size = APK.stat().st_size
    parts["signature, directory, alignment"] = size - sum(parts.values())
    rows = sorted(parts.items(), key=lambda row: -row[1])
    lines = [f"{name:<38} {count:>12,} bytes {count / size:>6.1%}" for name, count in rows]
    whole = f"{'whole':<38} {size:>12,} bytes"
    checked = f"signed (v2, v3), {PAGE // 1024} kB pages, 0 invoke-custom, {methods:,} of 65,536 methods"
    return "\n".join([*lines, whole, f"{APK.relative_to(HERE.parent)}: {checked}"])


def _part_of(name: str) -> str:
    if name.startswith("lib/"):
        return f"ONNX Runtime for {name.split('/')[1]}"
    if name.startswith("assets/"):
        return "tiny model" if name.startswith("assets/bundle") else "sample payloads"
    if name == "classes.dex":
        return "app, library, Kotlin (classes.dex)"
    return "payload model" if name.endswith("model.bin") else "resources"


if __name__ == "__main__":
    raise SystemExit(main())
