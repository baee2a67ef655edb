"""Translation of a run from the diffusion model's vocabulary into the edge model's, through its text.

Responsible for the edge's tokens of a draft, and for which of the diffusion model's tokens each one covers.
Not responsible for the choice of what is sent (see `select`) or for the tokenisation itself (see
`edge_runtime.text.tokenizer`).

The draft's text, as bytes, is tokenised once as a whole, the way the edge model would write it; every token
of either vocabulary then has a span of these bytes. An edge token depends on all cloud tokens whose spans it
overlaps, so nothing is invented across a boundary:

- It is committed where all of them are. A committed token that shares a token of the edge's with an open
  neighbour is therefore not sent on its own. Its step is the last of theirs.
- Its probability is their product. A pass of a masked diffusion model predicts every position by itself, so
  the product is its probability of all of them; the bytes of an edge token may be right where one of them is
  not, so that is a lower bound, and a threshold holds. The parts of one token that is split all get its
  probability: they bind together or not at all.

Positions are places in a text, so committed tokens after a gap keep their place through the current
predictions in the gap (`paper` too, whose anchors need none of these in a shared vocabulary); other
predictions there may make the gap longer or shorter.

Between two forms of one vocabulary tokens keep their ids: the same text written again may take other ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from cloud_anchor.sampling.denoised import OPEN, Denoised
from edge_runtime.text.prompt_form import PromptForm


@dataclass(frozen=True, kw_only=True)
class TranslatedRun(Denoised):
    """A run in the edge's vocabulary; selections and codecs take it like any other.

    prompt_ids are the edge's. The canvas is as large as the original's, or larger where the draft needs it.
    History and coverage count tokens of the edge.
    original: the same run in the diffusion model's vocabulary.
    """

    original: Denoised

    @property
    def length(self) -> int | None:
        """Number of answer tokens, through the draft's text, where the original's is known."""
        return None if self.original.length is None else self.predicted_length


class Translation:
    """From the prompt form of a diffusion model to that of an edge model with another vocabulary."""

    def __init__(self, cloud: PromptForm, edge: PromptForm) -> None:
        self.cloud = cloud
        self.edge = edge

    def translate(self, run: Denoised, prompt_ids: Sequence[int]) -> TranslatedRun:
        """A run of the diffusion model in the edge's vocabulary.

        prompt_ids: the prompt as the edge model reads it. Special tokens that an order has committed inside
        the answer have no text, and no place in the translated run. Raises BundleSchemaError where the edge's
        vocabulary cannot write the text.
        """
        pieces = [self._text_of(id_) for id_ in run.predicted_answer]
        if self.cloud.contract.same_vocabulary(self.edge.contract):
            ids = [id_ for id_, piece in zip(run.predicted_answer, pieces, strict=True) if piece]
        else:
            ids = self.edge.tokenizer.encode_bytes(b"".join(pieces))
        covered = overlaps([len(self.edge.tokenizer.token_bytes(id_)) for id_ in ids], list(map(len, pieces)))
        steps = [[run.when[p] for p in places] for places in covered]
        committed = [all(when) for when in steps]
        chances = [math.prod(run.confidence[p] for p in places) for places in covered]
        certain = [math.prod(run.certainty[p] for p in places) for places in covered if run.certainty]
        rest, rest_when, rest_ending = _behind(run, len(ids), min(self.edge.contract.eos_ids))
        return TranslatedRun(
            prompt_ids=tuple(prompt_ids),
            ids=[id_ if done else OPEN for id_, done in zip(ids, committed, strict=True)] + rest,
            when=[max(when) if all(when) else 0 for when in steps] + rest_when,
            predicted=ids + rest,
            confidence=[1.0 if done else chance for chance, done in zip(chances, committed, strict=True)]
            + [float(id_ != OPEN) for id_ in rest],
            certainty=certain + [0.0] * len(rest) if run.certainty else [],
            # An end further on inside the token would leave its first bytes standing.
            ending=[run.ending[places[0]] for places in covered] + rest_ending,
            predicted_length=len(ids),
            steps=run.steps,
            total_steps=run.total_steps,
            mask_id=OPEN,
            eos_ids=self.edge.contract.eos_ids,
            stopped_by=run.stopped_by,
            accepted=frozenset(
                at
                for at, places in enumerate(covered)
                if not committed[at] and all(run.when[p] or p in run.accepted for p in places)
            ),
            draft_ends=run.draft_ends,
            original=run,
        )

    def _text_of(self, id_: int) -> bytes:
        """The bytes of an ordinary token of the cloud; empty for a special one."""
        ordinary = self.cloud.contract.is_ordinary(id_)
        return self.cloud.tokenizer.token_bytes(id_) if ordinary else b""


def overlaps(sizes: Sequence[int], pieces: Sequence[int]) -> list[list[int]]:
    """For consecutive spans of these sizes, at least 1, the indices of the pieces of the same text that each
    overlaps, at least one; empty pieces overlap nothing. Both sum to the length of the text.
    """
    ends = np.fromiter(accumulate(pieces), np.int64, len(pieces))
    found, begin = [], 0
    for size in sizes:
        first = int(ends.searchsorted(begin, side="right"))
        last = int(ends.searchsorted(begin + size, side="left"))
        found.append([index for index in range(first, last + 1) if pieces[index]])
        begin += size
    return found


def _behind(run: Denoised, size: int, end: int) -> tuple[list[int], list[int], list[float]]:
    """ids, when and ending of what follows a translated draft of `size` tokens.

    These are the run's positions behind its draft, committed end markers as `end`, all else open. They fill
    the run's canvas, or end with the first end marker.
    """
    room = run.canvas - size
    least = run.first_end + 1 - run.predicted_length if run.first_end < run.canvas else 0
    places = range(run.predicted_length, run.canvas)[: max(room, least)]
    added = max(0, room - len(places))
    ended = [run.ids[p] in run.eos_ids for p in places]
    return (
        [end if there else OPEN for there in ended] + [OPEN] * added,
        [run.when[p] if there else 0 for p, there in zip(places, ended, strict=True)] + [0] * added,
        [run.ending[p] for p in places] + [1.0] * added,
    )
