"""Terminal output of `demo`: panels, a table and a summary."""

from __future__ import annotations

import gzip
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cloud_anchor.metrics import word_f1
from cloud_anchor.pipeline import PipelineResult
from cloud_anchor.sampling.config import DenoiseConfig
from cloud_anchor.selection.select import EDGE_AWARE
from edge_runtime.console import doubt_line
from edge_runtime.decode.forced import Source, Token
from edge_runtime.runtime import EdgeRuntime
from payload import AnchorSet

CLOUD, EDGE, GAP = "cyan", "yellow", "·"


@dataclass(frozen=True)
class Generated:
    """The device's answer: its tokens, the forward passes they took, its text, and the cloud's doubt."""

    tokens: Sequence[Token]
    passes: int
    text: str
    doubt: float | None = None


@dataclass(frozen=True)
class Filled:
    """One payload: its result in the cloud and the seconds for it, its bytes, and the device's answer."""

    result: PipelineResult
    seconds: float
    data: bytes
    generated: Generated


def show(
    prompt: str,
    edge: EdgeRuntime,
    filled: Mapping[str, Filled],
    alone: Generated,
    full: tuple[PipelineResult, float],
    config: DenoiseConfig,
    path: Path,
) -> None:
    """Prints one prompt's run.

    filled: by selection; the edge-aware payload is in `path`. alone: the edge model without
    anchors. full: the full diffusion run and its seconds. config: that of the early runs.
    """
    console = Console()
    chosen = filled[EDGE_AWARE]
    full_result, full_seconds = full
    answer = full_result.run.answer
    reference = edge.bundle.tokenizer.decode(answer)
    ran, total = chosen.result.run.steps, config.total_steps

    panels = {
        "prompt": Text(prompt),
        f"anchors after {ran} of {total} steps, {EDGE_AWARE}; [{EDGE}]{GAP}[/] is left to the device": (
            anchors_text(edge, chosen.result.anchors)
        ),
        f"filled on the device: [bold {CLOUD}]cloud[/] and [{EDGE}]edge[/] tokens": tokens_text(
            edge, chosen.generated.tokens
        ),
        f"full diffusion run, {total} steps": Text(reference),
        "the edge model alone": Text(alone.text),
    }
    for title, content in panels.items():
        console.print(Panel(content, title=title, title_align="left"))
    console.print(_table(reference, alone, filled, len(answer)))
    import zstandard

    text = chosen.generated.text.encode()
    gzipped, zipped = len(gzip.compress(text, mtime=0)), len(zstandard.ZstdCompressor(19).compress(text))
    console.print(
        f"payload        [bold]{len(chosen.data)} bytes[/] in {path}; its text {len(text)}, gzip {gzipped}, "
        f"zstd {zipped}\n"
        f"question       {len(prompt.encode())} bytes of its own, which are not in the payload\n"
        f"diffusion      {ran} steps run of {config.run_steps} asked for, [bold]{total - ran} of {total} "
        f"saved[/] ({chosen.seconds:.2f} s against {full_seconds:.2f} s)\n"
        f"edge           {chosen.generated.passes} forward passes for {len(chosen.generated.tokens)} tokens\n"
        f"doubt          {doubt_line(chosen.generated.doubt, edge.bundle.manifest.not_sure_from)}\n"
        f"the pair knows {edge.bundle.manifest.knows or 'what its model card says'}\n"
        f"once more      python -m edge_runtime.fill {path} --prompt {escape(shlex.quote(prompt))}",
        highlight=False,
        soft_wrap=True,
    )


def anchors_text(edge: EdgeRuntime, anchors: AnchorSet) -> Text:
    """The anchors at their positions, a dot for each position that is left to the device."""
    text = Text()
    length = anchors.length
    for position in range(max(anchors.positions, default=-1) + 1 if length is None else length):
        if position in anchors.by_position:
            token = edge.bundle.tokenizer.decode([anchors.by_position[position]])
            text.append(token, style=f"bold {CLOUD}")
        else:
            text.append(GAP, style=EDGE)
    if length is None:
        text.append(" ...", style="dim")
    return text


def tokens_text(edge: EdgeRuntime, tokens: Sequence[Token]) -> Text:
    """The filled text, cloud and edge tokens in two colours."""
    text = Text()
    stream = edge.text_stream()
    for token in tokens:
        style = f"bold {CLOUD}" if token.source is Source.ANCHOR else EDGE
        text.append(stream.push(token.id), style=style)
    text.append(stream.flush())
    return text


def _table(reference: str, alone: Generated, filled: Mapping[str, Filled], full_tokens: int) -> Table:
    table = Table()
    measures = ("agreement with the full run", "doubt", "tokens sent", "bytes", "edge passes", "tokens")
    for column in ("", *measures):
        table.add_column(column, justify="right" if column else "left")

    def row(name: str, text: str, doubt: float | None, *figures: int | str) -> None:
        unsure = "" if doubt is None else f"{doubt:.2f}"
        table.add_row(name, f"{word_f1(text, reference):.3f}", unsure, *map(str, figures))

    row("edge model alone", alone.text, None, 0, 0, alone.passes, len(alone.tokens))
    for name, one in filled.items():
        sent, size, made = len(one.result.anchors), len(one.data), one.generated
        row(f"anchors, {name}", made.text, made.doubt, sent, size, made.passes, len(made.tokens))
    row("full diffusion run", reference, None, "", "", "", full_tokens)
    return table
