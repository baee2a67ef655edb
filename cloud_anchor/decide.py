"""Reading a form with a diffusion model: literals pinned, every slot masked, and all slots read in one pass.

A slot's options may have several lengths in tokens: each length is a row of one batch, with the others at
their most common one. An option counts by the mean log-probability of its tokens. Further passes fix the
surest slots before the others are read again, for questions that depend on one another.

Responsible for these rows. Not responsible for forms (see `edge_runtime.form`) or for requests (see
`serve.http.decision_routes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from cloud_anchor.errors import require
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.protocol import MaskedModel
from edge_runtime.decisions import Calibration, Scores
from edge_runtime.form import Form

ROWS = 64
"""Most rows of a pass."""


@dataclass(frozen=True)
class FormQuestion:
    """A form behind a prompt, in ids: what stands before each slot and behind the last, and the options of
    every slot. asked: slots to read. fixed: options that stand in the canvas.
    """

    prompt: tuple[int, ...]
    asked: tuple[int, ...]
    options: tuple[tuple[tuple[int, ...], ...], ...]
    literals: tuple[tuple[int, ...], ...]
    fixed: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, pipeline: Pipeline, form: Form, prompt: str, asked: Sequence[int] | None = None
    ) -> FormQuestion:
        """A form behind a prompt, such as `Form.question` of a text; asked: by default all slots."""
        encode = pipeline.model_form.tokenizer.encode
        return cls(
            tuple(pipeline.model_form.ids(prompt)),
            tuple(range(len(form.slots)) if asked is None else asked),
            tuple(tuple(tuple(encode(option)) for option in slot.options) for slot in form.slots),
            tuple(tuple(encode(literal)) if literal else () for literal in form.literals),
        )

    def lengths(self, slot: int) -> list[int]:
        """The lengths of a slot's options in tokens, the most common first."""
        return [length for length, _ in Counter(map(len, self.options[slot])).most_common()]

    def canvas(self, mask: int, slot: int, length: int) -> tuple[list[int], int]:
        """The canvas in which one slot has this length, and where that slot begins."""
        ids, begins = [*self.literals[0]], 0
        for at, behind in enumerate(self.literals[1:]):
            if at == slot:
                begins = len(ids)
                ids += [mask] * length
            elif at in self.fixed:
                ids += self.options[at][self.fixed[at]]
            else:
                ids += [mask] * self.lengths(at)[0]
            ids += behind
        return ids, begins


def read_forms(model: MaskedModel, questions: Sequence[FormQuestion], passes: int = 1) -> list[list[Scores]]:
    """The scores of each question's asked slots: mean natural log-probability of the options' tokens.

    passes: of the model over all questions; all but the last fix the surest slots of what is open.
    Raises RequestError where prompt and form do not fit the model's context.
    """
    require("passes", passes >= 1, "at least 1", passes)
    found: list[dict[int, Scores]] = [{} for _ in questions]
    for run in range(passes):
        wanted = [
            (number, slot, length)
            for number, question in enumerate(questions)
            for slot in question.asked
            if slot not in question.fixed
            for length in question.lengths(slot)
        ]
        for part in _together(questions, wanted):
            for (number, slot, length), rows in zip(part, _pass(model, questions, part), strict=True):
                options = questions[number].options[slot]
                scores = found[number].setdefault(slot, np.full(len(options), -np.inf))
                for index, option in enumerate(options):
                    if len(option) == length:
                        scores[index] = np.mean([row[id_] for row, id_ in zip(rows, option, strict=True)])
        for question, scores_of in zip(questions, found, strict=True):
            left = [slot for slot in question.asked if slot not in question.fixed]
            left.sort(key=lambda slot: -_soft(scores_of[slot]).max())
            for slot in left[: -(-len(left) // (passes - run))] if run + 1 < passes else ():
                question.fixed[slot] = int(scores_of[slot].argmax())
    return [
        [scores_of[slot] for slot in each.asked] for each, scores_of in zip(questions, found, strict=True)
    ]


Row = tuple[int, int, int]
"""Number of a question, a slot, and the slot's length."""


def _together(questions: Sequence[FormQuestion], wanted: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows of each pass, long canvases first: each prompt is longer than what its row is shorter by."""
    sizes = {row: len(questions[row[0]].canvas(0, *row[1:])[0]) for row in wanted}
    part: list[Row] = []
    for row in sorted(wanted, key=lambda row: -sizes[row]):
        if part and (len(part) == ROWS or sizes[part[0]] - sizes[row] >= len(questions[row[0]].prompt)):
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _pass(model: MaskedModel, questions: Sequence[FormQuestion], wanted: Sequence[Row]) -> list[Scores]:
    """Log-probabilities [length, V] of the masked slot of each row."""
    canvases = [questions[number].canvas(model.mask_id, *row) for number, *row in wanted]
    size = max(len(ids) for ids, _ in canvases) + 1  # an end token is behind every form
    read = torch.zeros(len(wanted), size, dtype=torch.bool, device=model.device)
    rows, kept = [], []
    for at, ((ids, begins), (number, _, length)) in enumerate(zip(canvases, wanted, strict=True)):
        # Shorter rows begin with the end of their prompt, so that no row depends on the others' lengths.
        prompt, borrowed = questions[number].prompt, size - 1 - len(ids)
        rows.append([*prompt[len(prompt) - borrowed :], *ids, min(model.eos_ids)])
        kept.append(prompt[: len(prompt) - borrowed])
        read[at, borrowed + begins : borrowed + begins + length] = True
    canvas = torch.tensor(rows, device=model.device)
    logits = model.without_unusable(model.logits(model.batch(kept, size), canvas, read).float())
    found = torch.log_softmax(logits, 1).cpu().double().numpy()
    return np.split(found, np.cumsum([length for *_, length in wanted])[:-1])


def probabilities(
    pipeline: Pipeline, form: Form, prompt: str, asked: Sequence[int] | None = None, passes: int = 1
) -> Mapping[int, list[float]]:
    """The probabilities of the options of each asked slot of a form behind a prompt; see `read_forms`."""
    question = FormQuestion.of(pipeline, form, prompt, asked)
    (scores,) = read_forms(pipeline.masked_model, [question], passes)
    return {slot: _soft(found).tolist() for slot, found in zip(question.asked, scores, strict=True)}


_soft = Calibration().probabilities
