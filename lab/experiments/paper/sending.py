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
from lab.tables import Answers, Column, Label, Table, rows
from payload import AnchorSet, Codec

NAMES = (ANCHORS, PREFIX, SCATTERED, aware(CLAIMED_THRESHOLD), DRAFT)
CODECS = {
    "compact, prompt known": (Codec.COMPACT, True),
    "compact": (Codec.COMPACT, False),
    "template + gzip": (Codec.TEMPLATE_GZIP, False),
}
RAW, GZIP = "text", "text + gzip"
PAIRS = "plain pairs"


def measure(case: RunCase) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    total = case.lab.base.total_steps
    for order in ORDERS:
        answer = case.runs[order].answer
        text = case.text(answer).encode()
        everything = case.situation(order, total).anchors(dict(enumerate(answer)), len(answer))
        sizes = {RAW: len(text), GZIP: len(gzip.compress(text, 9, mtime=0)), **_sizes(case, everything)}
        # The same answer at every step, so that each has it beside its anchors.
        for step in case.lab.paper_steps:
            found.append({"order": order, "step": step, "condition": FULL, **sizes})
            at = case.situation(order, step)
            for name in NAMES:
                anchors = CONDITIONS[name].select(at)
                found.append({"order": order, "step": step, "condition": name, **_sizes(case, anchors)})
    return {"answers": found}


def _sizes(case: RunCase, anchors: AnchorSet) -> dict[str, int]:
    sizes = {name: case.size(anchors, codec, primed) for name, (codec, primed) in CODECS.items()}
    return {"sent": len(anchors), PAIRS: len(to_pairs(anchors, case.contract)), **sizes}


def tables(records: Records, about: About) -> list[Table]:
    labels: dict[str, Label] = {"order": "order", "steps": ("step", about.share), "sent": "condition"}
    columns: dict[str, Column] = {
        "N": len,
        "tokens": "sent",
        **{codec: codec for codec in (*CODECS, PAIRS, RAW, GZIP)},
    }
    found = rows(Answers.of(records).by(labels), columns)
    note = (
        "Bytes of a whole payload: header, body, checksum. Text is the full answer, and plain pairs are "
        "position and id in whole bytes, both without any framing; the paper counts 100 to 400 bytes. "
        "The paper at 10%, 8 prompts: template + gzip 119, the full text's gzip 209."
    )
    return [Table.of("bytes", "Payload bytes (section 4.8)", found, note)]


EXPERIMENT = phase("bytes", "Payload bytes", measure, tables)
