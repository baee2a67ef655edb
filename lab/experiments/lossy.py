"""Experiment `lossy`: what a part of a finished answer's bytes is worth to the device.

    python -m lab run lossy --edge bundles/smollm2-135m-instruct --variant int8 --prompts 24 -o runs/lossy

Of each answer to an everyday question, at shares of the bytes of the whole: the anchors that help most (of
edge-aware, by gain), the device writing around them; a prefix, which the device goes on from; and, at its own
size, the answer of the same model that was asked for one in at most 20 words. All coded by the device's
model. Agreement is with the whole answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from cloud_anchor.metrics import word_f1
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, by_gain, verify_draft
from cloud_anchor.selection.scorer import Scorer
from edge_runtime.decode.forced import FillOptions
from edge_runtime.finished import chain_of, payload_of, text_ids
from edge_runtime.runtime import EdgeRuntime, FillRequest
from lab.answers.read import Text, texts_of
from lab.experiment import About, Experiment, Records, Setup
from lab.experiments.answers import drafted
from lab.loading import edge_of
from lab.store import Record
from lab.tables import Answers, Column, Table, against
from payload import AnchorSet, Codec, Shared, encode

SHARES = (0.25, 0.5, 0.75)
SOURCE = "qwen2.5-coder-0.5b"
ALONE, ANCHORS, PREFIX = "nothing: the device alone", "the anchors that help most", "a prefix"
SHORTER = "a shorter answer of the server"
GUARD = 0.05
"""Of edge-aware: both sides run one arithmetic."""


def texts(setup: Setup) -> list[Text]:
    """The answers that have a shorter one."""
    short = {text.prompt for text in texts_of(f"short/{SOURCE}")}
    return [text for text in texts_of(SOURCE) if text.prompt in short][: setup.options.prompts]


def measure(setup: Setup, items: Sequence[Text]) -> Iterator[Record]:
    edge = _opened(setup.options)
    short = {text.prompt: text.text for text in texts_of(f"short/{SOURCE}")}
    for item in items:
        whole = len(payload_of(edge, item.text, item.prompt, Codec.PREDICTIVE))
        yield {"answers": [row | {"whole": whole} for row in _ways(edge, item, short[item.prompt], whole)]}


_opened = cache(edge_of)


def _ways(edge: EdgeRuntime, item: Text, short: str, whole: int) -> Iterator[Record]:
    """The ways of sending a part. The device writes no more tokens than the whole answer has."""
    ids, prompt_ids, contract = text_ids(edge, item.text), edge.prompt_ids(item.prompt), edge.bundle.contract
    shared = Shared(contract, prompt_ids, predictor=edge.predictor(prompt_ids))
    scorer, run = Scorer(edge.predictive_model, contract.eos_ids), drafted(prompt_ids, ids, contract)
    ranked = by_gain(verify_draft(scorer, run, contract, EdgeAwareConfig(guard=GUARD)))

    def row(share: str, name: str, request: FillRequest, size: int) -> Record:
        written = [token.id for token in edge.fill(request, FillOptions(max_tokens=len(ids)))]
        f1 = word_f1(edge.bundle.tokenizer.decode(written), item.text)
        return {"share": share, "condition": name, "bytes": size, "f1": f1}

    def anchored(count: int) -> bytes:
        kept = {place: ids[place] for place in sorted(ranked[:count])}
        anchors = AnchorSet.of(kept, len(ids), contract, len(ids))
        return encode(anchors, shared, Codec.PREDICTIVE, draft=ids)

    yield row("0", ALONE, FillRequest(prompt_ids, AnchorSet.empty(len(ids), contract)), 0)
    least = len(anchored(0))
    for share in SHARES:
        count, room = round(share * len(ranked)), share * whole
        per = max(0.1, len(anchored(count)) - least) / max(1, count)  # bytes are nearly even among anchors
        data = anchored(max(0, min(len(ranked), round((room - least) / per))))
        yield row(f"{share:g}", ANCHORS, edge.read(data, item.prompt), len(data))
        first, *_ = next(chain_of(edge, item.text, item.prompt, len(data), Codec.PREDICTIVE))
        yield row(f"{share:g}", PREFIX, edge.read(first, item.prompt), len(first))
    size = len(payload_of(edge, short, item.prompt, Codec.PREDICTIVE))
    yield {"share": "its own", "condition": SHORTER, "bytes": size, "f1": word_f1(short, item.text)}


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    columns: dict[str, Column] = {
        "N": len,
        "bytes": "bytes",
        "of the whole": lambda group: sum(group.values("bytes")) / sum(group.values("whole")),
        "F1": "f1",
        "F1 less the prefix": against(answers, "f1", "share", condition=PREFIX),
    }
    note = (
        "F1 is against the whole answer. Shares: of the bytes of the whole answer's payload. Anchors: those "
        "of edge-aware with the largest gain, with the answer's length; a prefix: of at most as many bytes "
        "as the anchors beside it took. Codec predictive, header and check included."
    )
    labels = {"share": "share", "sent": "condition"}
    return [answers.table("lossy", "A part of a finished answer", labels, columns, note)]


EXPERIMENT = Experiment(
    "lossy",
    "A part of a finished answer's bytes: anchors, a prefix, a shorter answer",
    measure,
    tables,
    items=texts,
    opens=False,
)
