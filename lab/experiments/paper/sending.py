"""Phase `bytes`: payload bytes by codec and selection, against the full text (sections 3.1 and 4.8)."""

from __future__ import annotations

import gzip
from typing import Any

from lab.case import RunCase
from lab.conditions import (
    ANCHORS,
    CLAIMED_THRESHOLD,
    CONDITIONS,
    DRAFT,
    FULL,
    ORDERS,
    PREFIX,
    SCATTERED,
    aware,
)
from lab.experiment import About, Records, phase
from lab.formats.pairs import to_pairs
from lab.tables import Answers, Claim, Column, Label, Table, compare, less, rows
from payload import Codec

NAMES = (ANCHORS, PREFIX, SCATTERED, aware(CLAIMED_THRESHOLD), DRAFT)
CODECS = {
    "compact, prompt known": (Codec.COMPACT, True),
    "compact": (Codec.COMPACT, False),
    "template + gzip": (Codec.TEMPLATE_GZIP, False),
    "template + zstd": (Codec.TEMPLATE_ZSTD, False),
}
RAW, GZIP = "text", "text + gzip"
PAIRS = "plain pairs"


def measure(case: RunCase) -> dict[str, Any]:
    found = []
    for order in ORDERS:
        run = case.runs[order]
        whole = case.situation(order, case.lab.base.total_steps)
        text = case.text(run.answer).encode()
        sizes = {RAW: len(text), GZIP: len(gzip.compress(text, 9, mtime=0))}
        everything = whole.anchors(dict(enumerate(run.answer)), len(run.answer))
        found.append(
            {"order": order, "step": case.lab.base.total_steps, "condition": FULL}
            | sizes
            | _sizes(case, everything)
        )
        for step in case.lab.paper_steps:
            at = case.situation(order, step)
            for name in NAMES:
                anchors = CONDITIONS[name].select(at)
                found.append({"order": order, "step": step, "condition": name, **_sizes(case, anchors)})
    return {"answers": found}


def _sizes(case: RunCase, anchors: Any) -> dict[str, int]:
    sizes = {name: case.size(anchors, codec, primed) for name, (codec, primed) in CODECS.items()}
    return {"sent": len(anchors), PAIRS: len(to_pairs(anchors, case.contract)), **sizes}


def tables(records: Records, about: About) -> list[Table]:
    steps: dict[str, Label] = {"order": "order", "steps": ("step", about.share), "sent": "condition"}
    columns: dict[str, Column] = {
        "N": len,
        "tokens": "sent",
        **{codec: codec for codec in (*CODECS, PAIRS, RAW, GZIP)},
    }
    found = rows(Answers.of(records).by(steps), columns)
    note = (
        "Bytes of a whole payload: header, body, checksum. Text is the full answer, and plain pairs are "
        "position and id in whole bytes, both without any framing; the paper counts 100 to 400 bytes. "
        "The paper at 10%, 8 prompts: template + gzip 119, the full text's gzip 209."
    )
    return [Table.of("bytes", "Payload bytes (section 4.8)", found, note)]


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    found = []
    step = about.paper_steps[0]
    for order in ORDERS:
        sent = answers.where(order=order, step=step, condition=ANCHORS)
        full = answers.where(order=order, condition=FULL)
        pairs = (
            (
                "template + gzip",
                GZIP,
                "The paper's template + gzip is smaller than gzip of the full text, there by 43%",
            ),
            (
                "compact, prompt known",
                "compact, prompt known",
                "Anchors take fewer bytes than the full answer in the same codec",
            ),
        )
        for mine, theirs, says in pairs:
            left, right = sent.renamed(mine, "bytes"), full.renamed(theirs, "bytes")
            sentence, result = compare(
                f"anchors as {mine}", left, f"the full answer as {theirs}", right, "bytes"
            )
            a, b = left.pairs(right, "bytes")
            saved = f" That is {1 - sum(a) / sum(b):+.0%} saved." if b and sum(b) else ""
            found.append(
                Claim(
                    f"{says} (section 4.8).",
                    less(result),
                    f"{sentence}.{saved}",
                    where=about.where(order, step),
                )
            )
    return found


EXPERIMENT = phase("bytes", "Payload bytes", measure, tables, claims)
