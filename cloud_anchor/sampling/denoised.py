"""The result of a denoising run as plain values: canvas, commit steps, and predictions at open positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from payload import AnchorSet, Contract, Extras, confidence_level

OPEN = -1
"""The mask token where a model has none in its vocabulary: no id of any."""


class Commit(NamedTuple):
    """The positions that became permanent in one step (counted from 1), ascending, and their tokens."""

    step: int
    positions: list[int]
    ids: list[int]


@dataclass(frozen=True)
class Denoised:
    """One answer after `steps` of `total_steps` steps, each one forward pass of the diffusion model.

    ids:        canvas tokens [C], the mask token where nothing is committed.
    when:       step [C] that committed each token, 0 where masked or pinned. A token never changes after it.
    predicted:  likeliest ordinary token [C] of each position in the last pass, before its commits, in the
                unfiltered distribution; the committed token where there is one.
    confidence: probability [C] of `predicted`; 1 where committed.
    ending:     probability [C] that an end marker stands here instead; 0 or 1 where committed.
    predicted_length: where the answer most likely ends (see `stops.likely_length`); `length` where that is
                      known.
    stopped_by: "steps", the name of a stop rule, or "finished" where nothing was left to commit.
    certainty:  probability [C] of the committed token in the pass that committed it, by the diffusion model;
                `confidence` where open. Empty where it is not known.
    accepted:   open positions whose prediction the model has accepted for now: it may take it back. What is
                in `ids` stays, so a finished block is committed there, and one not begun is open.
    draft_ends: False where the draft breaks off before the answer's end: a model that writes block by block
                has predicted no further.
    """

    prompt_ids: tuple[int, ...]
    ids: list[int]
    when: list[int]
    predicted: list[int]
    confidence: list[float]
    ending: list[float]
    predicted_length: int
    steps: int
    total_steps: int
    mask_id: int
    eos_ids: frozenset[int]
    stopped_by: str = "steps"
    certainty: list[float] = field(default_factory=list, compare=False)
    accepted: frozenset[int] = frozenset()
    draft_ends: bool = True

    @classmethod
    def of_draft(
        cls, prompt_ids: Sequence[int], draft: Sequence[int], confidence: Sequence[float], **more: Any
    ) -> Denoised:
        """An answer of which a draft is known, with the probability of each token.

        more: ids, when and the other fields without a default; mask_id is OPEN where it is not given.
        """
        mask, rest = more.setdefault("mask_id", OPEN), len(more["ids"]) - len(draft)
        behind = 1.0 if more.get("draft_ends", True) else 0.0
        return cls(
            prompt_ids=tuple(prompt_ids),
            predicted=[*draft, *[mask] * rest],
            confidence=[*confidence, *[0.0] * rest],
            ending=[0.0] * len(draft) + [behind] * rest,
            predicted_length=len(draft),
            **more,
        )

    @property
    def canvas(self) -> int:
        return len(self.ids)

    @property
    def finished(self) -> bool:
        """True where every position is committed."""
        return self.mask_id not in self.ids

    @cached_property
    def first_end(self) -> int:
        """Position of the first committed end marker, or the canvas length."""
        return next((p for p, token in enumerate(self.ids) if token in self.eos_ids), self.canvas)

    @property
    def length(self) -> int | None:
        """Number of answer tokens where the commits determine it, else None.

        They do when the first committed end marker directly follows a committed token (or opens the canvas),
        or when the canvas is full without one. Before an end marker after masked positions the answer may end
        anywhere.
        """
        end = self.first_end
        if end == self.canvas:
            return end if self.finished else None
        return end if end == 0 or self.ids[end - 1] != self.mask_id else None

    @property
    def answer(self) -> list[int]:
        """Tokens before the first end marker; the mask token where one is open."""
        return self.ids[: self.first_end]

    @property
    def settled(self) -> list[int]:
        """The part of the answer that is committed from its beginning on without a gap."""
        answer = self.answer
        return answer[: answer.index(self.mask_id)] if self.mask_id in answer else answer

    @property
    def predicted_answer(self) -> list[int]:
        """The draft: predictions up to the predicted length."""
        return self.predicted[: self.predicted_length]

    def ending_with(self, draft: Sequence[int]) -> int | None:
        """The length that an AnchorSet of this draft states; None where the answer goes on behind it."""
        return len(draft) if self.draft_ends else None

    @cached_property
    def history(self) -> list[Commit]:
        """The commits of every step, in order; that of a step without any is empty."""
        commits = [Commit(step, [], []) for step in range(1, self.steps + 1)]
        for position, (step, token) in enumerate(zip(self.when, self.ids, strict=True)):
            if step:
                commits[step - 1].positions.append(position)
                commits[step - 1].ids.append(token)
        return commits

    def anchors(self, tokens: Mapping[int, int], contract: Contract, length: int | None) -> AnchorSet:
        """An AnchorSet of this run: `tokens` by position, and the length of the answer where it is known."""
        return AnchorSet.of(tokens, self.canvas, contract, length)

    def extras(self, prompt: str | None = None, sure_of: Sequence[int] = ()) -> Extras:
        """The optional fields of a payload of this run: its steps, and the prompt's text if given.

        sure_of: positions of the anchors, for their levels of confidence; by default they are not sent.
        """
        levels = tuple(confidence_level(self.certainty[p]) for p in sure_of) if self.certainty else ()
        return Extras(prompt, step=self.steps, total_steps=self.total_steps, confidence=levels)

    @cached_property
    def coverage(self) -> list[float]:
        """Share of the answer that is committed after each step (paper section 3.1), one number per step.

        End markers are no part of the answer. The answer is that of this run: committed tokens before the
        end, and while that is open, the predicted ones; all of an empty one is committed.
        """
        when = self.when[: self.predicted_length]
        counts = Counter(when)
        committed = accumulate(counts[step] for step in range(1, self.steps + 1))
        return [count / len(when) if when else 1.0 for count in committed]

    @property
    def s50(self) -> int | None:
        """The first step at which half of the answer is committed (paper section 4.6); None if none was."""
        return next((step for step, share in enumerate(self.coverage, 1) if share >= 0.5), None)
