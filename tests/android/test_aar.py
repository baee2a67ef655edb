"""The library as an archive: its parts, its repository, its API, and consumers that Maven resolves.

`make aar-test` builds it, which takes minutes, and runs all of these; without it only those of the parts run.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pytest

from android_demo import aar, jvm
from android_demo.errors import BuildError
from android_demo.sample_bundle import one_variant
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import DenoiseConfig
from edge_runtime.bundle.bundle import read_manifest
from edge_runtime.runtime import EdgeRuntime
from tests.shipped import TINY_BUNDLE

POM = "{http://maven.apache.org/POM/4.0.0}"
VERSION_FOLDER = aar.REPOSITORY / aar.GROUP / aar.ARTIFACT / aar.VERSION
BASE = f"{aar.ARTIFACT}-{aar.VERSION}"
PROMPT = "Tell me about Torden: its river, mayor, craft, dish and age."
built = pytest.mark.skipif(
    os.environ.get("AAR_TESTS") != "1" or jvm.missing() is not None,
    reason="the archive is built and tested by `make aar-test`, which needs Maven and a JDK",
)

CONSUMER = """
import inversespec.edge.EdgeRuntime
import inversespec.edge.Source
import java.io.File

fun main(args: Array<String>) {
    EdgeRuntime.open(File(args[0])).use { runtime ->
        val stats = runtime.fill(File(args[1]).readBytes(), args[2]) { print(it.text) }
        check(stats.passes > 0)
    }
}
"""

COROUTINES_CONSUMER = """
import inversespec.edge.coroutines.EdgeModel
import inversespec.edge.coroutines.complete
import java.io.File
import kotlinx.coroutines.runBlocking

fun main(args: Array<String>) = runBlocking {
    EdgeModel.open(File(args[0])).use { model ->
        print(model.fill(File(args[1]).readBytes(), args[2]).complete().text)
    }
}
"""

JAVA_CONSUMER = """
import inversespec.edge.*;
import java.io.File;
import kotlin.Unit;

public class Consumer {
    public static void main(String[] args) throws Exception {
        File folder = Bundles.importZip(new File(args[0]), new File(args[1]));
        FillOptions options = new FillOptions(24, true, false, 512, 64, new Sampling(0.7, 0.9));
        try (EdgeRuntime runtime = EdgeRuntime.open(folder, new RuntimeOptions())) {
            FillStats stats = runtime.fill(null, args[2], new CancelSignal(), options, token -> {
                System.out.print(token.getText());
                return Unit.INSTANCE;
            });
            ServiceClient client = new ServiceClient("https://x");
            if (stats.getTokens() == 0) runtime.answer(client, args[2], event -> Unit.INSTANCE);
        }
    }
}
"""

READER = """
import inversespec.edge.*
import inversespec.edge.coroutines.*
import java.io.File
import java.util.concurrent.Executors

// Of Android as much as the pages use.
class Looper { companion object { fun getMainLooper() = Looper() } }
class Handler(looper: Looper) { fun post(call: Runnable): Boolean = true }
class MemoryInfo(val availMem: Long)
object Os { fun setenv(name: String, value: String, overwrite: Boolean) {} }

class App(
    val cacheDir: File, val filesDir: File, val memory: MemoryInfo, val main: Handler,
    val runtime: EdgeRuntime, val client: ServiceClient, val cancel: CancelSignal,
    val payload: ByteArray, val prompt: String, val key: String,
    val show: (AnswerEvent) -> Unit, val showProgress: (Long, Long) -> Unit, val showNotice: (String) -> Unit,
    val onText: (String, Boolean) -> Unit, val takeBackFrom: (Int) -> Unit,
)
"""
PAGES = ("docs/start/android.md", "docs/guides/android.md", "android_demo/edge-runtime-coroutines/README.md")
GRADLE = ("implementation", "dependencyResolutionManagement")

CONSUMER_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>consumer</groupId><artifactId>consumer</artifactId><version>1</version>
  <repositories>
    <repository><id>library</id><url>{{url}}</url></repository>
  </repositories>
  <dependencies>
    <dependency>
      <groupId>{aar.GROUP}</groupId><artifactId>{{artifact}}</artifactId><version>{aar.VERSION}</version>
      <type>{{kind}}</type>
      <!-- A desktop has other natives. -->
      <exclusions>
        <exclusion><groupId>com.microsoft.onnxruntime</groupId><artifactId>onnxruntime-android</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>com.microsoft.onnxruntime</groupId><artifactId>onnxruntime</artifactId>
      <version>{aar.pom_property("onnxruntime.version")}</version>
    </dependency>
    <dependency>
      <groupId>org.jetbrains.kotlin</groupId><artifactId>kotlin-compiler</artifactId>
      <version>{aar.pom_property("kotlin.version")}</version>
    </dependency>
  </dependencies>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version>
  </plugin></plugins></build>
</project>
"""


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_an_archive_is_the_same_for_the_same_files() -> None:
    files = {"b": b"2", "a/c": b"1"}
    assert aar.zipped(files) == aar.zipped(dict(reversed(files.items())))
    with zipfile.ZipFile(io.BytesIO(aar.zipped(files))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files


def test_what_has_not_been_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        aar.classes_jar(tmp_path / "none.jar")
    with pytest.raises(BuildError):
        aar.folder_files(tmp_path)


def test_the_pom_names_the_versions_that_are_tested() -> None:
    kotlin = (aar.pom_property("kotlin.version"), "jar", "compile")
    packaging, found = dependencies(aar.POM)
    assert packaging == "aar"
    assert found == {
        "kotlin-stdlib": kotlin,
        "onnxruntime-android": (aar.pom_property("onnxruntime.version"), "aar", "runtime"),
    }
    packaging, found = dependencies(aar.COROUTINES_POM)
    assert packaging == "jar"
    assert found == {
        "edge-runtime": (aar.VERSION, "aar", "compile"),
        "kotlin-stdlib": kotlin,
        "kotlinx-coroutines-core-jvm": (aar.pom_property("coroutines.version"), "jar", "compile"),
    }


def dependencies(pom: str) -> tuple[str | None, dict[str | None, tuple[str | None, ...]]]:
    """Packaging of a POM, and version, type and scope of each dependency."""
    root = ElementTree.fromstring(pom.partition("?>")[2])
    parts = ("version", "type", "scope")
    found = {
        each.findtext(f"{POM}artifactId"): tuple(each.findtext(POM + part) for part in parts)
        for each in root.iter(f"{POM}dependency")
    }
    return root.findtext(f"{POM}packaging"), found


def test_the_archive_keeps_and_demands_what_the_app_does() -> None:
    """The app's own rules about ONNX Runtime, and its lowest Android, are those of the archive."""
    ours = (aar.LIBRARY / "aar" / "proguard.txt").read_text(encoding="utf-8")
    app = (jvm.PROJECT / "app" / "proguard.pro").read_text(encoding="utf-8")
    silenced = re.findall(r"^-dontwarn ai\.onnxruntime\..*$", app, re.MULTILINE)
    assert silenced
    assert set(silenced) <= set(ours.splitlines())
    assert "-keep class ai.onnxruntime.* { *; }" in app
    assert "-keep class ai.onnxruntime.** { *; }" in ours
    manifest = ElementTree.parse(aar.LIBRARY / "aar" / "AndroidManifest.xml").getroot()
    assert [child.tag for child in manifest] == ["uses-sdk"]  # no permission
    (least,) = manifest[0].attrib.values()
    assert least == "26"


@built
def test_the_repository_has_every_part_with_its_checksums() -> None:
    assert {path.name for path in VERSION_FOLDER.iterdir() if path.suffix in (".aar", ".pom", ".jar")} == {
        f"{BASE}.aar",
        f"{BASE}.pom",
        f"{BASE}-sources.jar",
        f"{BASE}-javadoc.jar",
    }
    flows = aar.REPOSITORY / aar.GROUP / aar.COROUTINES / aar.VERSION
    assert {path.name for path in flows.iterdir() if path.suffix in (".aar", ".pom", ".jar")} == {
        f"{aar.COROUTINES}-{aar.VERSION}{end}" for end in (".jar", ".pom", "-sources.jar")
    }
    assert "inversespec/edge/coroutines/EdgeModel.kt" in contents(
        flows / f"{aar.COROUTINES}-{aar.VERSION}-sources.jar"
    )
    folders = (VERSION_FOLDER, flows)
    files = [path for folder in folders for path in (*folder.iterdir(), folder.parent / "maven-metadata.xml")]
    for path in files:
        if path.suffix in (".md5", ".sha1", ".sha256"):
            continue
        for kind in ("md5", "sha1", "sha256"):
            expected = hashlib.new(kind, path.read_bytes()).hexdigest()
            assert path.with_name(f"{path.name}.{kind}").read_text() == expected
    archive = contents(VERSION_FOLDER / f"{BASE}.aar")
    assert archive.keys() >= {"AndroidManifest.xml", "classes.jar", "proguard.txt", "R.txt"}
    with zipfile.ZipFile(io.BytesIO(archive["classes.jar"])) as classes:
        names = set(classes.namelist())
    assert {"inversespec/edge/EdgeRuntime.class", "inversespec/edge/payload/model.bin"} <= names
    assert not [name for name in names if name.startswith(("META-INF/maven", "ai/", "kotlin/"))]
    sources = contents(VERSION_FOLDER / f"{BASE}-sources.jar")
    assert "inversespec/edge/EdgeRuntime.kt" in sources
    documentation = contents(VERSION_FOLDER / f"{BASE}-javadoc.jar")
    assert any(name.endswith("inversespec/edge/EdgeRuntime.html") for name in documentation)


@built
def test_the_api_is_the_one_that_is_written_down_and_a_change_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aar.check_api(write=False)
    text = aar.API.read_text(encoding="utf-8")
    assert "public final class inversespec.edge.EdgeRuntime " in text
    assert "SystemInfo" not in text  # internal
    assert "inversespec.edge.BytesKt" not in text
    changed = tmp_path / "api.txt"
    changed.write_text(text.replace("getTag()", "getLabel2()"))
    monkeypatch.setattr(aar, "API", changed)
    with pytest.raises(BuildError, match=r"(?s)-.*getLabel2.*\+.*getTag"):
        aar.check_api(write=False)


def java(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["java", "-Xmx700m", *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled(folder: Path, artifact: str, kind: str, source: str) -> None:
    """Maven resolves a consumer of an artifact into `lib`, and Kotlin compiles it into `out`."""
    # The copies that an earlier build has left in Maven's own repository.
    for name in (aar.ARTIFACT, aar.COROUTINES):
        shutil.rmtree(Path.home() / ".m2" / "repository" / aar.GROUP / name, ignore_errors=True)
    pom = CONSUMER_POM.format(url=aar.REPOSITORY.as_uri(), artifact=artifact, kind=kind)
    (folder / "pom.xml").write_text(pom)
    (folder / "Consumer.kt").write_text(source)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    resolved = folder / "lib" / f"{BASE}.aar"
    assert resolved.read_bytes() == (VERSION_FOLDER / f"{BASE}.aar").read_bytes()
    (folder / "lib" / "classes.jar").write_bytes(contents(resolved)["classes.jar"])

    compiler = "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler"
    jars = os.pathsep.join(str(path) for path in sorted((folder / "lib").glob("*.jar")))
    options = ["-no-stdlib", "-no-reflect", "-cp", jars, "-d", "out"]
    java("-cp", "lib/*", compiler, *options, "Consumer.kt", cwd=folder)


@built
@pytest.mark.parametrize(
    ("artifact", "kind", "source"),
    [(aar.ARTIFACT, "aar", CONSUMER), (aar.COROUTINES, "jar", COROUTINES_CONSUMER)],
    ids=["callbacks", "coroutines"],
)
def test_a_consumer_resolves_compiles_and_fills(
    tmp_path: Path, artifact: str, kind: str, source: str
) -> None:
    compiled(tmp_path, artifact, kind, source)
    pipeline = Pipeline.open("tiny", device="cpu")
    plan = pipeline.plan()
    (made,) = pipeline.make(
        [PROMPT], DenoiseConfig(canvas=plan.canvas, total_steps=plan.total_steps, steps=12)
    )
    data = pipeline.payload(made)
    (tmp_path / "payload.bin").write_bytes(data)
    class_path = f"out{os.pathsep}lib/*"
    text = java("-cp", class_path, "ConsumerKt", str(TINY_BUNDLE), "payload.bin", PROMPT, cwd=tmp_path)
    edge = EdgeRuntime.open(TINY_BUNDLE, threads=1)
    assert text == edge.bundle.tokenizer.decode(token.id for token in edge.fill(edge.read(data, PROMPT)))


@built
def test_the_code_of_the_pages_compiles(tmp_path: Path) -> None:
    text = "".join((jvm.REPO / page).read_text() for page in PAGES)
    blocks = re.findall(r"^```kotlin\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    kotlin = [code for code in blocks if not code.startswith(GRADLE)]
    assert len(kotlin) == len(blocks) - 2
    assert f'implementation("{aar.GROUP}:{aar.ARTIFACT}:{aar.VERSION}")' in text
    pages = (f"suspend fun App.page{at}() {{\n{code}}}\n" for at, code in enumerate(kotlin))
    compiled(tmp_path, aar.COROUTINES, "jar", READER + "".join(pages))


@built
def test_java_leaves_out_what_has_a_default(tmp_path: Path) -> None:
    (tmp_path / "Consumer.java").write_text(JAVA_CONSUMER)
    (tmp_path / "classes.jar").write_bytes(contents(VERSION_FOLDER / f"{BASE}.aar")["classes.jar"])
    class_path = os.pathsep.join([str(tmp_path), str(tmp_path / "classes.jar"), jvm.libraries()])
    compiled = subprocess.run(
        ["javac", "-cp", class_path, "Consumer.java"], cwd=tmp_path, capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stderr
    (tmp_path / "bundle.zip").write_bytes(
        aar.zipped(one_variant(TINY_BUNDLE, read_manifest(TINY_BUNDLE).default_variant))
    )
    assert java("-cp", class_path, "Consumer", "bundle.zip", "installed", PROMPT, cwd=tmp_path)
