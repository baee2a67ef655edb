"""Phase `bridge`: an autoregressive model's layers as a warm start of the diffusion model.

A layer is read through the model's head in two ways: along the answer that the whole model has written
(logit lens), and in an answer that the first layers write by themselves, before the model's own is known,
which is the saving that section 6 proposes. Its predictions from a threshold on, all of them, the framing or
the content only, are put on the canvas, at response positions, before step 0. Compared with a cold start of
equal compute (additional steps), and with a prefix of as many of the autoregressive model's tokens.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from cloud_anchor.sampling.state import State
from lab.autoregressive import Lens
from lab.case import Lab, RunCase
from lab.conditions import plan
from lab.experiment import About, Records, phase
from lab.plots import Picture, means, png
from lab.runs import run_once
from lab.statistics import spearman
from lab.tables import (
    NOT_MEASURED,
    Answers,
    Cell,
    Claim,
    Column,
    Label,
    Table,
    compare,
    more,
    rows,
    spread,
    verdict,
)

ORDER = "confidence"
THRESHOLDS = (0.5, 0.8, 0.95)
CUT_OFF = 0.5
"""Share of the depth above which no layer is injected."""

ENOUGH, ACCURATE = 10, 0.9
"""Tokens of a viable configuration, and the share of them that the whole model writes as well."""

MIN_LAYERS = 4
"""The fewest layers in which a trend over those below the last can be seen."""

GIVEN, EARLY = "along its answer", "before its answer is known"
KINDS: Mapping[str, bool | None] = {"all": None, "framing only": True, "content only": False}
"""Kinds of tokens, and whether they are structural."""

COLD, COLD_MORE, WARM, PREFIX = "cold start", "cold start, equal compute", "warm start", "prefix start"

STRUCTURE = frozenset(
    "a an the and or but if then so because as of in on at to from by for with without into over under is "
    "are was were be been has have had do does did it its this that these those there here each every all "
    "any some no not i you he she we they his her their our your my which who what when where how than also "
    "let us can will would should may def return else elif while import lambda".split()
)
"""Function words of sentences and programs, which carry no fact."""


@lru_cache(8192)
def structural(text: str) -> bool:
    """True for punctuation, white space and words of `STRUCTURE`."""
    word = text.strip().strip(string.punctuation).lower()
    return not word or word in STRUCTURE


def needs(lab: Lab) -> str | None:
    return None if lab.thinker else lab.missing["thinker"]


def taps(layers: int) -> list[int]:
    """The layers that are injected: 1/16, 1/8, 1/4 and 1/2 of the depth, as in the published experiment.

    None lies above `CUT_OFF` of the depth: from there on the saving is too small to be worth a seed.
    """
    found = {max(1, round(layers * share)) for share in (1 / 16, 1 / 8, 1 / 4, CUT_OFF)}
    return sorted(layer for layer in found if layer <= layers * CUT_OFF)


def extra_steps(work: float, prompt: int, lab: Lab) -> int:
    """Diffusion steps whose compute, in parameters times tokens, equals `work`."""
    dream = lab.pipeline.model.parameters
    return max(1, math.ceil(work / (dream * (prompt + lab.base.canvas))))


def known_right(case: RunCase) -> float:
    """1 where the autoregressive model's own answer is right."""
    return case.score(case.written, case.runs[ORDER].answer)["right"]


def unknowing(records: Records) -> str | None:
    """The reason why the autoregressive model cannot be a teacher here; None where it can.

    It knows where its own answers are right more often than those of the edge model alone.
    """
    teacher = Answers.of(records, "teacher")
    theirs, ours = (
        Answers([{"id": row["id"], "right": row[name]} for row in teacher.rows])
        for name in ("knows", "alone")
    )
    sentence, result = compare("the autoregressive model", theirs, "edge alone", ours, "right")
    if result == "higher":
        return None
    return f"{sentence}; name one that knows with --thinker"


def measure(case: RunCase) -> dict[str, Any]:
    lab = case.lab
    assert lab.thinker is not None  # checked by `needs`
    full = case.runs[ORDER].answer
    known = {"knows": known_right(case), "alone": case.score(case.alone().ids, full)["right"]}
    found: dict[str, Any] = {"answers": [], "layers": [], "teacher": [known]}
    written = case.written
    if not written:
        return found
    prompt, depth, size = len(case.prompt_ids), lab.thinker.layers, lab.thinker.parameters
    lenses = lab.thinker.lenses(case.prompt_ids, written)
    early = [lab.thinker.write_early(case.prompt_ids, len(written), layer) for layer in taps(depth)]
    for source, readings in ((GIVEN, lenses), (EARLY, early)):
        for lens in readings:
            found["layers"] += _agreement(case, source, lens, full)
    step = lab.paper_steps[0]
    starts = _Starts(case, step, full)
    found["answers"].append(_row(COLD, GIVEN, 0) | starts.cold(step))
    injected = [(GIVEN, lens) for lens in lenses if lens.layer in (*taps(depth), depth)]
    for source, lens in (*injected, *((EARLY, lens) for lens in early)):
        # Its whole answer goes through the model twice, for writing and for the lens; an early layer's once.
        work = 2 * len(written) + prompt if source == GIVEN else (len(lens.ids) + prompt) * lens.layer / depth
        extra = extra_steps(size * work, prompt, lab)
        row = _row(COLD_MORE, source, lens.layer)
        found["answers"].append(row | {"extra": extra} | starts.cold(step + extra))
        found["answers"] += starts.warm(source, lens, whole=lens.layer == depth)
    return found


def _row(condition: str, source: str, layer: int) -> dict[str, Any]:
    """The labels of a row without tokens on the canvas."""
    labels = {"condition": condition, "source": source, "layer": layer}
    return labels | {"kind": "all", "threshold": 0, "injected": 0}


def _agreement(case: RunCase, source: str, lens: Lens, full: Sequence[int]) -> Iterator[dict[str, Any]]:
    """How far a layer says what the model writes, and what the diffusion model writes there."""
    written = case.written
    kinds = [structural(case.text([token])) for token in written]
    for name, wanted in KINDS.items():
        places = [p for p, kind in enumerate(kinds[: len(lens.ids)]) if wanted is None or kind == wanted]
        if places:
            yield {
                "layer": lens.layer,
                "source": source,
                "kind": name,
                "own": sum(lens.ids[p] == written[p] for p in places) / len(places),
                "dream": sum(p < len(full) and lens.ids[p] == full[p] for p in places) / len(places),
                "confidence": sum(lens.probabilities[p] for p in places) / len(places),
            }


@dataclass
class _Starts:
    """Runs of a case from canvases with tokens on them; cold ones of equal length are run once."""

    case: RunCase
    step: int
    full: Sequence[int]
    known: dict[int, dict[str, float]] = field(default_factory=dict)

    def cold(self, steps: int) -> dict[str, float]:
        steps = min(steps, self.case.lab.base.total_steps)
        if steps not in self.known:
            self.known[steps] = self.case.score(_start(self.case, {}, steps), self.full)
        return self.known[steps]

    def warm(self, source: str, lens: Lens, whole: bool) -> Iterator[dict[str, Any]]:
        """Rows by threshold and kind of token; whole: also a prefix of as many of the model's own tokens."""
        case, written = self.case, self.case.written
        for threshold in THRESHOLDS:
            sure = {
                p: token
                for p, (token, chance) in enumerate(zip(lens.ids, lens.probabilities, strict=True))
                if chance >= threshold and case.contract.is_ordinary(token)
            }
            # The framing and the content by themselves only where the claims are made: they triple the work.
            for kind in KINDS if threshold == THRESHOLDS[1] else ("all",):
                wanted = KINDS[kind]
                chosen = {
                    p: t for p, t in sure.items() if wanted is None or structural(case.text([t])) == wanted
                }
                hits = sum(p < len(written) and written[p] == t for p, t in chosen.items())
                row = _row(WARM, source, lens.layer) | {"kind": kind, "threshold": threshold}
                row |= {"injected": len(chosen), "hits": hits}
                yield row | case.score(_start(case, chosen, self.step), self.full)
            if whole:
                first = dict(enumerate(written[: len(sure)]))
                row = _row(PREFIX, source, lens.layer) | {"threshold": threshold, "injected": len(first)}
                yield row | case.score(_start(case, first, self.step), self.full)


def _start(case: RunCase, tokens: Mapping[int, int], steps: int) -> list[int]:
    """The predicted answer after `steps` steps from a canvas with `tokens` on it."""
    config = replace(plan(ORDER, case.lab.base), steps=steps)
    model = case.lab.pipeline.masked_model
    state = State.start(model, [case.prompt_ids], config)
    for position, token in tokens.items():
        state.ids[0, position] = token
    (run,) = run_once(model, [case.prompt_ids], config, [steps], state)
    return run.at(steps).predicted_answer


def viable(answers: Answers) -> list[tuple[str, int, float, str]]:
    """Source, layer, threshold and kind of the configurations worth injecting, those of least compute first.

    As in the published experiment: at least `ENOUGH` tokens qualify, and `ACCURATE` of them are what the
    whole model writes; here over all items.
    """
    found = []
    groups = answers.where(condition=WARM).groups("source", "layer", "threshold", "kind")
    for (source, layer, threshold, kind), group in groups:
        tokens, hits = sum(group.values("injected")), sum(group.values("hits"))
        if tokens >= ENOUGH and hits >= ACCURATE * tokens:
            found.append((source == GIVEN, layer, -hits / tokens, (source, layer, threshold, kind)))
    return [configuration for *_, configuration in sorted(found)]


def tables(records: Records, about: About) -> list[Table]:
    answers = Answers.of(records)
    read: dict[str, Label] = {"read": "source", "layer": "layer", "tokens": "kind"}
    said = {"own": "says what the model writes", "dream": "says what the diffusion model writes there"}
    columns: dict[str, Column] = {"N": len, **{says: metric for metric, says in said.items()}}
    depth = rows(Answers.of(records, "layers").by(read), columns | {"confidence": "confidence"})
    good = set(viable(answers))

    def is_viable(group: Answers) -> Cell:
        first = group.rows[0]
        if first["condition"] != WARM:
            return None
        return (
            "yes" if tuple(first[name] for name in ("source", "layer", "threshold", "kind")) in good else "no"
        )

    start: dict[str, Label] = {"start": "condition", "read": "source", "layer": ("layer", _or_none)}
    start |= {"p >=": ("threshold", _or_none), "tokens": "kind"}
    columns = {"N": len, "viable": is_viable, "injected": "injected", "F1": "f1", "edit": "edit"}
    starts = rows(answers.by(start), columns | {"right": "right", "steps more": "extra"})
    note = (
        f"Autoregressive model: {about.thinker}, {about.thinker_parameters / 1e6:.2f} million parameters. "
        f"Every start is followed by {about.paper_steps[0]} steps, and the current predictions are the "
        "answer; equal compute is in parameters times tokens. Layers are read through the model's head: "
        f"{GIVEN}, or {EARLY}, in an answer that the first layers write by themselves; no layer above "
        f"{CUT_OFF:.0%} of the depth but the last is injected. Viable: at least {ENOUGH} tokens over all "
        f"items, {ACCURATE:.0%} of them what the whole model writes. F1 against the cold full run, right "
        "against the ground truth."
    )
    return [
        Table.of("bridge-layers", "Bridge: each layer through the head", depth),
        Table.of("bridge", "Bridge: tokens on the canvas before step 0", starts, note),
        _by_difficulty(answers),
    ]


def _or_none(value: Any) -> Cell:
    return value or None


def _by_difficulty(answers: Answers) -> Table:
    """Right answers by difficulty, at the middle threshold with all tokens."""

    def warm(group: Answers) -> Answers:
        return group.where(condition=WARM, threshold=THRESHOLDS[1], kind="all")

    groups = answers.by({"difficulty": "difficulty", "read": "source", "layer": "layer"})
    columns: dict[str, Column] = {
        "N": lambda group: len(warm(group)),
        COLD_MORE: lambda group: group.where(condition=COLD_MORE).cell("right"),
        WARM: lambda group: warm(group).cell("right"),
    }
    found = rows((each for each in groups if len(warm(each[1]))), columns)
    note = f"Right answers; tokens of p >= {THRESHOLDS[1]}."
    return Table.of("bridge-difficulty", "Bridge: right answers by difficulty", found, note)


def claims(records: Records, about: About) -> list[Claim]:
    answers = Answers.of(records)
    layers = Answers.of(records, "layers").where(kind="all", source=GIVEN)
    if not len(answers):
        return []
    where = about.where(ORDER, about.paper_steps[0])
    last = max(row["layer"] for row in layers.rows)
    reason = unknowing(records)
    found = [
        _seeds("Early layers, before the model's answer is known, seed", answers, _earliest(answers), reason)
    ]
    # Fixed before the results were seen: the deepest layer below the cut-off and the last, middle threshold.
    below = [("The deepest layer below half of the depth", layer) for layer in taps(last)[-1:]]
    for says, layer in (*below, ("The last layer", last)):
        chosen = (GIVEN, layer, THRESHOLDS[1], "all")
        found.append(_seeds(f"{says}, read along the model's answer, seeds", answers, chosen, reason))
    return [replace(claim, where=where) for claim in found] + [_deeper(layers, last)]


def _earliest(answers: Answers) -> tuple[str, int, float, str] | None:
    """The viable configuration of least compute that needs no answer of the whole model."""
    return next((found for found in viable(answers) if found[0] == EARLY), None)


def _seeds(
    says: str, answers: Answers, chosen: tuple[str, int, float, str] | None, reason: str | None
) -> Claim:
    """The claim that a layer's tokens are a better start than as much compute spent on steps."""
    paper = f"{says} the diffusion model better than its own steps of equal compute do (section 6)."
    if chosen is None:
        why = "no early layer is viable: too few of its tokens are what the whole model writes"
        return Claim(paper, NOT_MEASURED, f"Not measured: {reason or why}.")
    source, layer, threshold, kind = chosen
    warm = answers.where(condition=WARM, source=source, layer=layer, threshold=threshold, kind=kind)
    cold = answers.where(condition=COLD_MORE, source=source, layer=layer)
    name = f"layer {layer}, p >= {threshold}, {kind} tokens"
    sentence, result = compare(name, warm, COLD_MORE, cold, "right")
    fidelity, _ = compare(name, warm, COLD_MORE, cold)
    text = (f"Not measured: {reason}. " if reason else "") + f"{sentence}."
    return Claim(paper, NOT_MEASURED if reason else more(result), text, f"{fidelity}.")


def _deeper(layers: Answers, last: int) -> Claim:
    """The claim about depth, over the layers below the last, which is the model itself; a figure an item."""
    trends = []
    for _, group in layers.groups("id"):
        below = [row for row in group.rows if row["layer"] < last]
        rho = spearman([float(row["layer"]) for row in below], [row["own"] for row in below]).rho
        trends.append({"trend": rho if math.isfinite(rho) else 0.0})
    cell = Answers(trends).cell("trend")
    paper = "Deeper layers say more of what the model will write."
    if last < MIN_LAYERS or cell is None:
        why = f"Not measured: expected at least {MIN_LAYERS - 1} layers below the last, found {last - 1}."
        return Claim(paper, NOT_MEASURED, why)
    return Claim(
        paper,
        verdict(cell.low > 0, cell.high <= 0, cell.n),
        f"Spearman's rho of depth and agreement within an item: {spread(cell, '+.2f')} items,"
        f" {last - 1} layers each.",
        "Without the last layer, which agrees with itself by definition; an item counts once, one without a "
        "trend as 0.",
    )


def plots(records: Records, about: About) -> Iterator[Picture]:
    layers = Answers.of(records, "layers").where(source=GIVEN)
    yield Picture("bridge", "Bridge: each layer through the head", _layers(layers))


def _layers(layers: Answers) -> bytes:
    """A panel a measure, a line a kind of anchors."""
    says = {"own": "its own answer", "dream": "the diffusion model's", "confidence": "its confidence"}

    def draw(figure: Any) -> None:
        panels = figure.subplots(1, len(says), sharey=True)
        for axes, (metric, title) in zip(panels, says.items(), strict=True):
            for (kind,), group in layers.groups("kind"):
                xs, ys = zip(*sorted(means(group, "layer", "layer", metric)), strict=True)
                axes.plot(xs, ys, color=dict(zip(KINDS, ("C0", "C1", "C2"), strict=True))[kind], label=kind)
            for threshold in THRESHOLDS:
                axes.axhline(threshold, color="grey", linewidth=0.4)
            axes.set(xlabel="layer", ylim=(0, 1.02), title=title)
        panels[0].set_ylabel("share of tokens")
        panels[0].legend(fontsize=7)

    return png(draw, (11, 4))


EXPERIMENT = phase(
    "bridge", "Layer-depth bridge", measure, tables, claims, limit=40, needs=needs, plots=plots
)
