"""The pictures of the site and of README.md: `make pictures` writes docs/images/*.svg.

    recording   a real run of the sample: its bytes arrive, its anchors light up, the device fills the gaps
    way         the way of a question
    slots       a decision of the shipped diffusion model: three slots, read in one pass
    links       seconds until an answer has arrived and been written, by the speed of the link

Each follows the reader's light or dark theme. Responsible for drawing. Figures are the sample's, or those of
lab/results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from cloud_anchor.decide import probabilities
from cloud_anchor.pipeline import Pipeline
from edge_runtime import EdgeRuntime, FillOptions, Source
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.fill import SAMPLE
from edge_runtime.form import Form, Slot

ROOT = Path(__file__).parents[1]
STYLE = """<style>
svg { --paper: #fff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --cloud: #0550ae; --device: #9a4a00; }
@media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #e6edf3;
  --soft: #9198a1; --line: #3d444d; --cloud: #79c0ff; --device: #ffb35c; } }
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: var(--ink); white-space: pre; }
.soft { fill: var(--soft); } .cloud { fill: var(--cloud); font-weight: 600; } .device { fill: var(--device); }
.paper { fill: var(--paper); } .box { fill: none; stroke: var(--line); }
.big { font-size: 15px; font-weight: 600; }
path { fill: none; stroke-width: 2; } .a { stroke: var(--soft); }
.b { stroke: var(--device); } .c { stroke: var(--cloud); }
</style>"""
WIDTH, SECONDS = 760, 10
COLUMNS, ADVANCE, HEIGHT = 88, 8.1, 22


def picture(height: float, says: str, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height:g}" role="img" width="{WIDTH}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    paper = f'<rect class="paper" width="{WIDTH}" height="{height:g}" rx="6"/>'
    return "\n".join([head, f"<title>{escape(says)}</title>", STYLE, paper, *parts, "</svg>\n"])


def text(x: float, y: float, of: str, kind: str = "", inside: str = "", **more: object) -> str:
    named = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{named}>{escape(of)}{inside}</text>'


def shown(start: float, end: float = SECONDS) -> str:
    """Visible from one second to another, of ten; played three times. Where nothing moves all is visible."""
    at, to = start / SECONDS, min(end / SECONDS, 1)
    times, values = (f"0;{at:.3f};1", "0;1;1") if to == 1 else (f"0;{at:.3f};{to:.3f};1", "0;1;0;0")
    return (
        f'<animate attributeName="opacity" calcMode="discrete" dur="{SECONDS}s" repeatCount="3" '
        f'keyTimes="{times}" values="{values}"/>'
    )


def placed(pieces: Sequence[str]) -> Iterator[tuple[float, float]]:
    """Where each piece of a text begins: column and line, wrapped before a piece that begins with a space."""
    column = line = 0
    for piece in pieces:
        if column + len(piece) > COLUMNS:
            column, line = -1 if piece.startswith(" ") else 0, line + 1
        yield column, line
        column += len(piece)


def recording() -> str:
    edge = EdgeRuntime.open(SHIPPED)
    data = SAMPLE.read_bytes()
    request = edge.read(data)
    tokens = list(edge.fill(request, FillOptions(score_anchors=False)))
    stream = edge.text_stream()
    pieces = [stream.push(token.id) for token in tokens]
    question = request.prompt_text if hasattr(request, "prompt_text") else "Tell me about Peru."
    parts = [text(20, 30, f"> {question}", "big"), text(20, 60, f"{len(data)} bytes from the cloud", "soft")]
    for at, byte in enumerate(data):
        x, y = 20 + at % 32 * 22.5, 82 + at // 32 * 20
        parts.append(text(x, y, f"{byte:02x}", "cloud", shown(0.3 + 2.2 * at / len(data))))
    top = 82 + (len(data) - 1) // 32 * 20 + 44
    sent = sum(token.source is Source.ANCHOR for token in tokens)
    told = f"{sent} tokens that the device's model would not have written by itself"
    parts.append(text(20, top - 4, told, "soft", shown(2.8)))
    rows = list(placed(pieces))
    for at, (piece, (column, line), token) in enumerate(zip(pieces, rows, tokens, strict=True)):
        x, y = 20 + column * ADVANCE, top + 24 + line * HEIGHT
        size = {"textLength": f"{len(piece) * ADVANCE:.1f}", "lengthAdjust": "spacingAndGlyphs"}
        if token.source is Source.ANCHOR:
            parts.append(text(x, y, piece, "cloud", shown(2.8 + 1.7 * at / len(tokens)), **size))
            continue
        due = 5.0 + 3.5 * at / len(tokens)
        parts.append(text(x, y, "·" * len(piece), "soft gap", shown(2.8, due), **size, opacity=0))
        parts.append(text(x, y, piece, "device", shown(due), **size))
    bottom = top + 24 + (rows[-1][1] + 1) * HEIGHT + 8
    written = "".join(pieces)
    last = f"{len(written)} characters: blue came from the cloud, orange was written on the device"
    parts.append(text(20, bottom, last, "soft", shown(8.7)))
    says = f"{len(data)} bytes arrive, {sent} anchors light up, and the device fills the gaps: {written}"
    return picture(bottom + 20, says, parts)


def way() -> str:
    boxes = [
        (10, "The question", "one short frame", "leaves the device"),
        (200, "The cloud's model", "a diffusion model's start,", "or any model's finished answer"),
        (490, "The payload", "only what the device's model", "would not write by itself"),
    ]
    parts = []
    for x, title, one, two in boxes:
        wide = {10: 160, 200: 260, 490: 250}[x]
        parts.append(f'<rect class="box" x="{x}" y="20" width="{wide}" height="80" rx="8"/>')
        kind = "big cloud" if x > 10 else "big device"
        parts += [text(x + 14, 46, title, kind), text(x + 14, 68, one, "soft"), text(x + 14, 86, two, "soft")]
    parts.append('<rect class="box" x="200" y="150" width="540" height="80" rx="8"/>')
    parts.append(text(214, 176, "The device's model", "big device"))
    parts.append(text(214, 198, "reads the same question, puts each anchor at its place,", "soft"))
    parts.append(text(214, 216, "and writes the gaps: the answer, token by token", "soft"))
    for path in ("M170 60H198", "M460 60H488", "M615 100V148", "M90 100V190H198"):
        parts.append(f'<path class="a" d="{path}"/>')
    says = (
        "A question goes to the cloud. A model there starts or writes the answer. A payload of tens of bytes "
        "has what the device's model would not write by itself; the device's model writes the rest."
    )
    return picture(250, says, parts)


ASKED = {
    "The capital of the country is": ("Quito", "Lima", "Cairo", "Oslo"),
    ". In the atlas the country is found in": ("Africa", "Asia", "Europe", "South America"),
    ". Peru's currency is the": ("euro", "peso", "nuevo sol", "real"),
}


def slots() -> str:
    pipeline, question = Pipeline.open("testbed"), "Tell me about Peru."
    named = [Slot(before, tuple(f" {each}" for each in of), of) for before, of in ASKED.items()]
    found = probabilities(pipeline, Form((*ASKED, "."), tuple(named)), question)
    told = "one pass of the cloud's model: the sentences are given, the slots are masked and read"
    parts = [text(20, 30, f"> {question}", "big"), text(20, 56, told, "soft")]
    y = 66
    for at, slot in enumerate(named):
        y += 22
        parts.append(text(20, y, f"{slot.name.strip('. ')} ___"))
        for label, share in zip(slot.labels, found[at], strict=True):
            y += 22
            kind = "cloud" if share == max(found[at]) else "soft"
            parts.append(text(52, y, label, kind))
            parts.append(f'<path class="c" style="stroke-width:10" d="M180 {y - 4}h{1 + 480 * share:.0f}"/>')
            parts.append(text(680, y, f"{share:.3f}", kind))
        y += 6
    best = ", ".join(max(zip(found[at], slot.labels, strict=True))[1] for at, slot in enumerate(named))
    return picture(y + 20, f"Three slots read in one pass; their surest options are {best}", parts)


def links() -> str:
    """Of a mean answer of Qwen2.5-Coder-0.5B for SmolLM2-135M int4, coded and written at the speed of
    `answers_idle`.
    """

    def rows(name: str, table: str) -> Iterator[dict[str, Any]]:
        found = json.loads((ROOT / f"lab/results/{name}.json").read_text())["tables"][table]["rows"]
        return (row for row in found if row["device"] == "smollm2-135m-instruct int4")

    row = next(row for row in rows("answers_devices", "bytes") if row["source"] == "qwen2.5-coder-0.5b")
    size = {name: value(row[name]) for name in ("text", "gzip", "brotli", "predictive", "tokens")}
    timed = next(rows("answers_idle", "seconds"))
    spent = (value(timed["of it encoding"]) + value(timed["of it decoding"])) / value(timed["tokens"])
    writing = size["tokens"] * spent
    cost: dict[str, Callable[[float], float]] = {
        "text": lambda speed: size["text"] * 8 / speed,
        "brotli": lambda speed: size["brotli"] * 8 / speed,
        "payload": lambda speed: size["predictive"] * 8 / speed + writing,
    }
    left, right, top, bottom = 70, 600, 30, 280

    def point(speed: float, seconds: float) -> str:
        x = left + (right - left) * (math.log10(speed) - 1.5) / 4
        y = bottom - (bottom - top) * (math.log10(seconds) + 2.5) / 4.7
        return f"{x:.1f} {min(y, bottom):.1f}"

    parts = [f'<rect class="box" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}"/>']
    speeds = [10 ** (1.5 + at / 20) for at in range(81)]
    for (name, of), kind in zip(cost.items(), ("a", "c", "b"), strict=True):
        parts.append(f'<path class="{kind}" d="M{" L".join(point(speed, of(speed)) for speed in speeds)}"/>')
        y = float(point(speeds[-1], of(speeds[-1])).split()[1])
        bytes_ = size["predictive" if name == "payload" else name]
        label = f"{name}, {bytes_:.0f} bytes"
        parts.append(
            text(
                right + 8,
                y + {"brotli": 4, "text": -6}.get(name, 4),
                label,
                {"a": "soft", "b": "device", "c": "cloud"}[kind],
            )
        )
    for speed, label in (
        (100, "100 bit/s"),
        (1000, "1 kbit/s"),
        (10_000, "10 kbit/s"),
        (100_000, "100 kbit/s"),
    ):
        parts.append(text(float(point(speed, 1).split()[0]) - 30, bottom + 20, label, "soft"))
    for seconds, label in ((0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (100, "100 s")):
        parts.append(text(14, float(point(100, seconds).split()[1]) + 4, label, "soft"))
    even = [(size[name] - size["predictive"]) * 8 / writing for name in ("text", "brotli")]
    says = (
        f"Seconds until an answer of {size['text']:.0f} characters stands on the device. The payload of "
        f"{size['predictive']:.0f} bytes is sooner than the text below {even[0]:,.0f} bit/s, "
        f"and than brotli of the text below {even[1]:,.0f} bit/s"
    )
    parts.append(
        text(
            left,
            bottom + 44,
            f"sooner than text below {even[0]:,.0f} bit/s, than brotli below {even[1]:,.0f} bit/s",
            "soft",
        )
    )
    return picture(bottom + 60, says, parts)


def value(cell: object) -> float:
    return float(cell["mean"] if isinstance(cell, dict) else str(cell).split()[0])


if __name__ == "__main__":
    for made in (recording, way, slots, links):
        file = ROOT / "docs" / "images" / f"{made.__name__}.svg"
        file.write_text(made(), encoding="utf-8")
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
