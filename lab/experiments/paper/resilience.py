"""Phase `resilience`: how an answer suffers from wrong anchors or wrong bytes of its payload.

Before encoding: some anchors have another token, or stand in another place; no reader can see that. On the
wire: some bytes are changed; the share of payloads that are refused, by codec. And the paper's comparison
(section 4.8), of bodies without a check: the template's text, in which it expects context to make errors
good, plain pairs of position and id, and codec compact's body.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edge_runtime.errors import EdgeError
from lab.case import EdgeAnswer, RunCase
from lab.conditions import ALONE, ANCHORS, PRODUCT, Select, Situation, committed, default, in_parallel
from lab.experiment import About, Records, phase
from lab.formats.pairs import from_pairs, to_pairs
from lab.plots import Picture, means, png
from lab.statistics import proportion
from lab.tables import Answers, Claim, Column, Table, compare, more, rows, told, verdict
from payload import AnchorSet, Codec, Contract, PayloadError, Shared, decode, encode
from payload.codecs import compact
from payload.codecs.template import Shape, decode_template, encode_template

COUNTS = (1, 2, 4)
"""Anchors, or bytes of a payload, that are changed at once."""

DRAWS = 3
TRIALS = 16
"""Draws of each number of wrong anchors, and of each number of changed bytes."""

TOKEN, PLACE = "another token", "another place"
RIGHT = "as they are"
CODECS = (Codec.COMPACT, Codec.TEMPLATE_GZIP, Codec.TEMPLATE_ZSTD)
REFUSED = 0.999
"""The share of changed payloads that is to be refused."""

TEMPLATE, PAIRS, COMPACT = "template, plain text", "plain pairs", "compact's body"


def product(at: Situation) -> AnchorSet:
    """What the product sends by default, of the run with parallel commits."""
    return in_parallel(at, default)


SELECTIONS: Mapping[str, tuple[str, Select]] = {
    ANCHORS: ("entropy", committed),
    PRODUCT: ("confidence", product),
}
"""Orders of commits and selections: the paper's, and the product's."""


def wrong_tokens(at: Situation, anchors: AnchorSet, count: int, rng: random.Random) -> AnchorSet:
    """The anchors, `count` of them with another ordinary token; the length as it was."""
    tokens = dict(anchors.by_position)
    for position in rng.sample(anchors.positions, count):
        tokens[position] = _other(at.contract, tokens[position], rng)
    return at.anchors(tokens, anchors.length)


def wrong_places(at: Situation, anchors: AnchorSet, count: int, rng: random.Random) -> AnchorSet | None:
    """The anchors, `count` of them in other places of the answer; None where it has too few free ones."""
    tokens = dict(anchors.by_position)
    size = anchors.length or max(len(at.full), anchors.positions[-1] + 1)
    free = [p for p in range(size) if p not in tokens]
    if len(free) < count:
        return None
    for position, place in zip(rng.sample(anchors.positions, count), rng.sample(free, count), strict=True):
        tokens[place] = tokens.pop(position)
    return at.anchors(tokens, anchors.length)


def _other(contract: Contract, token: int, rng: random.Random) -> int:
    while True:
        id_ = rng.randrange(contract.vocab_size)
        if id_ != token and contract.is_ordinary(id_):
            return id_


def changed(data: bytes, count: int, rng: random.Random) -> bytes:
    """The data with `count` of its bytes, or all, replaced by others."""
    out = bytearray(data)
    for index in rng.sample(range(len(out)), min(count, len(out))):
        out[index] ^= rng.randrange(1, 256)
    return bytes(out)


def measure(case: RunCase) -> dict[str, Any]:
    wrong: list[dict[str, Any]] = []
    wire: list[dict[str, Any]] = []
    bare: list[dict[str, Any]] = []
    step = case.lab.paper_steps[0]
    for name, (order, select) in SELECTIONS.items():
        at = case.situation(order, step)
        if name == PRODUCT and at.parallel is None:
            continue
        anchors = select(at)
        at = at.parallel if name == PRODUCT and at.parallel else at
        if not len(anchors):
            continue
        alone = case.score(case.alone().ids, at.full)
        for part, found in (
            (wrong, _before_encoding(case, at, anchors, alone)),
            (wire, _on_the_wire(case, anchors)),
            (bare, _without_check(case, at, anchors, alone)),
        ):
            part += [{"selection": name, **row} for row in found]
    return {"answers": wrong, "wire": wire, "bare": bare}


def _kept(score: Mapping[str, float]) -> dict[str, float]:
    return {name: score[name] for name in ("f1", "edit", "right")}


def _mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(score[name] for score in scores) / len(scores) for name in scores[0]}


def _before_encoding(
    case: RunCase, at: Situation, anchors: AnchorSet, alone: Mapping[str, float]
) -> list[dict[str, Any]]:
    untouched = case.score(case.fill(anchors).ids, at.full)
    found: list[dict[str, Any]] = [
        {"error": ALONE, "count": 0, **_kept(alone)},
        {"error": RIGHT, "count": 0, **_kept(untouched)},
    ]
    for kind, change in ((TOKEN, wrong_tokens), (PLACE, wrong_places)):
        for count in COUNTS:
            rng = random.Random(case.seed + count)
            if count > len(anchors):
                continue
            sets = [change(at, anchors, count, rng) for _ in range(DRAWS)]
            scores = [_kept(case.score(case.fill(one).ids, at.full)) for one in sets if one is not None]
            if scores:
                found.append({"error": kind, "count": count, **_mean(scores)})
    return found


def _on_the_wire(case: RunCase, anchors: AnchorSet) -> list[dict[str, Any]]:
    """Changed payloads, with their check: how many were refused, and how many read with other anchors."""
    shared = Shared(case.contract, case.prompt_ids, case.form.tokenizer)
    found = []
    for codec in CODECS:
        data = encode(anchors, shared, codec)
        for count in COUNTS:
            rng = random.Random(case.seed + count)
            read = [_read(changed(data, count, rng), shared) for _ in range(TRIALS)]
            found.append(
                {
                    "codec": codec.label,
                    "count": count,
                    "bytes": len(data),
                    "trials": TRIALS,
                    "refused": sum(one is None for one in read),
                    "wrong": sum(one is not None and one != anchors for one in read),
                }
            )
    return found


def _read(data: bytes, shared: Shared) -> AnchorSet | None:
    try:
        return decode(data, shared)
    except PayloadError:
        return None


def _without_check(
    case: RunCase, at: Situation, anchors: AnchorSet, alone: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Bodies without a check, one byte changed: what the device writes from what it can still read.

    Where it cannot read a body it writes alone.
    """
    tokens = case.form.tokenizer
    formats: dict[str, tuple[bytes, Callable[[bytes], Shape]]] = {
        TEMPLATE: (
            encode_template(anchors, tokens, bytes),
            lambda body: decode_template(body, case.contract, tokens, lambda data, most, what: data),
        ),
        PAIRS: (to_pairs(anchors, case.contract), lambda body: _of_pairs(body, anchors)),
        COMPACT: (
            compact.encode(anchors, case.prompt_ids, None),
            lambda body: compact.decode(body, case.contract, case.prompt_ids, None),
        ),
    }
    found = []
    for name, (body, read) in formats.items():
        rng = random.Random(case.seed)
        scores, unread = [], 0
        for _ in range(DRAWS):
            filled = _filled(case, read, changed(body, 1, rng))
            unread += filled is None
            scores.append(_kept(alone if filled is None else case.score(filled.ids, at.full)))
        found.append({"format": name, "bytes": len(body), "unread": unread / DRAWS, **_mean(scores)})
    return found


def _of_pairs(body: bytes, anchors: AnchorSet) -> Shape:
    """The shape of plain pairs, whose canvas and length are taken as known; the later of two pairs stands."""
    found = from_pairs(body, anchors.canvas, anchors.contract)
    positions = tuple(sorted(found))
    return positions, tuple(found[p] for p in positions), anchors.canvas, anchors.length


def _filled(case: RunCase, read: Callable[[bytes], Shape], body: bytes) -> EdgeAnswer | None:
    """The device's answer from a body; None where it is refused."""
    try:
        positions, ids, canvas, length = read(body)
        return case.fill(AnchorSet(positions, ids, canvas, case.contract, length))
    except (PayloadError, EdgeError):
        return None


def refused(answers: Answers) -> tuple[int, int]:
    """Refused payloads, and trials."""
    return int(sum(answers.values("refused"))), int(sum(answers.values("trials")))


def tables(records: Records, about: About) -> list[Table]:
    scores: dict[str, Column] = {"F1": "f1", "edit": "edit", "right": "right"}
    wrong = rows(
        Answers.of(records).by(
            {"selection": "selection", "anchors": "error", "of them wrong": ("count", str)}
        ),
        {"N": len, **scores},
    )
    wire = rows(
        Answers.of(records, "wire").by(
            {"selection": "selection", "codec": "codec", "changed": ("count", str)}
        ),
        {
            "bytes": "bytes",
            "payloads": lambda group: refused(group)[1],
            "refused": lambda group: proportion(*refused(group)),
            "read with other anchors": lambda group: int(sum(group.values("wrong"))),
        },
    )
    bare = rows(
        Answers.of(records, "bare").by({"selection": "selection", "body": "format"}),
        {"N": len, "bytes": "bytes", "cannot be read": "unread", **scores},
    )
    where = f"After {about.share(about.paper_steps[0])} steps."
    return [
        Table.of(
            "resilience",
            "Anchors in error before encoding",
            wrong,
            f"{where} Means of {DRAWS} draws per item, of items with as many anchors. Nobody can "
            "detect these.",
        ),
        Table(
            "resilience-wire",
            "Bytes changed on the wire: payloads that are refused",
            ("selection", "codec", "bytes", "changed", "payloads", "refused", "read with other anchors"),
            wire,
            f"{where} {TRIALS} changed payloads per item; Wilson intervals. Every payload has a check "
            "of 16 bits. "
            "A refused payload is asked for again, or the device writes alone.",
        ),
        Table.of(
            "resilience-bare",
            "One byte changed in a body without a check (section 4.8)",
            bare,
            f"{where} Means of {DRAWS} draws per item; F1 is against the full run, that of the edge model "
            "alone where the body cannot be read. Of plain pairs, canvas and length are taken as known. No "
            "codec of this project sends a body without a check.",
        ),
    ]


def claims(records: Records, about: About) -> list[Claim]:
    answers, wire, bare = (Answers.of(records, key) for key in ("answers", "wire", "bare"))
    found = []
    for name, (order, _) in SELECTIONS.items():
        where = f"{about.where(order, about.paper_steps[0])}; {name}"
        here = answers.where(selection=name)
        one, alone = here.where(error=TOKEN, count=1), here.where(error=ALONE)
        if not len(one):
            continue
        sentence, result = compare("one anchor with another token", one, ALONE, alone)
        lost, _ = compare("it", one, "all as they are", here.where(error=RIGHT))
        found.append(
            Claim(
                "One wrong anchor does not derail the answer: it stays better than without anchors.",
                more(result),
                f"{sentence}.",
                f"{lost}.",
                where,
            )
        )
        sent = wire.where(selection=name)
        share = proportion(*refused(sent))
        items = len({row["id"] for row in sent.rows})
        if share is not None:
            found.append(
                Claim(
                    f"A payload that was changed on its way is refused, {REFUSED:.1%} of them at least.",
                    verdict(share.low >= REFUSED, share.high < REFUSED, items),
                    f"{refused(sent)[0]} of {refused(sent)[1]} were refused: {share.mean:.4f} "
                    f"[{share.low:.4f}, "
                    f"{share.high:.4f}] (Wilson), over all codecs and numbers of changed bytes.",
                    f"Read with other anchors: {int(sum(sent.values('wrong')))}.",
                    where,
                )
            )
        left = bare.where(selection=name)

        def body(name: str, left: Answers = left) -> Answers:
            return left.where(format=name)

        sentence, result = compare(TEMPLATE, body(TEMPLATE), PAIRS, body(PAIRS))
        found.append(
            Claim(
                "Errors in the template's text are made good by context, unlike those in binary pairs of "
                "position and id (section 4.8).",
                more(result),
                f"One byte changed, no check: {sentence}.",
                f"{told(body, TEMPLATE, COMPACT)}.",
                where,
            )
        )
    return found


def plots(records: Records, about: About) -> Iterator[Picture]:
    yield Picture("resilience", "F1 by anchors in error", _errors(Answers.of(records)))


def _errors(answers: Answers) -> bytes:
    def draw(figure: Any) -> None:
        groups = list(answers.groups("selection"))
        for axes, ((selection,), group) in zip(
            figure.subplots(1, len(groups), sharey=True, squeeze=False)[0], groups, strict=True
        ):
            start = _by_count(group.where(error=RIGHT))
            for kind in (TOKEN, PLACE):
                points = sorted(start + _by_count(group.where(error=kind)))
                axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=kind)
            for _, f1 in _by_count(group.where(error=ALONE)):
                axes.axhline(f1, linestyle=":", color="black", linewidth=0.8, label=ALONE)
            axes.set(xlabel="anchors in error", ylabel="F1", title=selection)
        axes.legend(fontsize=8)

    return png(draw, (9, 4))


def _by_count(answers: Answers) -> list[tuple[float, float]]:
    return means(answers, "count", "count", "f1")


EXPERIMENT = phase("resilience", "Error resilience", measure, tables, claims, plots=plots)
