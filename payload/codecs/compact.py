"""Codec compact: arithmetic coding of positions and tokens.

Responsible for the grammar of a body (SPEC.md, "Body of compact"): canvas, shape, then either tokens up to an
END, or runs of positions and their tokens. One class writes and reads it. Not responsible for the probability
of a token (see `token_model`).

A delta codes only the positions that its base leaves free, numbered 0, 1, 2... among themselves; the base's
anchors serve as contexts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from payload.anchors import MAX_CANVAS, AnchorSet
from payload.codecs.prior import END, Prior, prior_of
from payload.codecs.range_coder import Bound, Coder
from payload.codecs.template import Shape, runs_of
from payload.codecs.token_model import TokenModel
from payload.contract import Contract
from payload.errors import AnchorRangeError

MAX_VOCAB = (1 << 24) - 1
BOUND = Bound(64, 8)

_CANVASES = (512, 256, 1024, 128, 64)
_CANVAS_SIZES = (40, 10, 4, 4, 4, 2)

_WHOLE, _RUNS, _RUNS_AND_LENGTH = 0, 1, 2
_SHAPE_SIZES = (32, 16, 16)

_NUMBER_SIZES = (12, 12, 12, 12, 14, 14, 14, 14, 12, 8, 4, 2, 1, 1, 1, 1, 1)
_FIRST_GAP_SIZES = (400, 8, 4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
_GAP_SIZES = (24, 12, 8, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
_FIRST_RUN_SIZES = (6, 4, 4, 4, 6, 24, 12, 8, 4, 2, 1, 1, 1, 1, 1, 1, 1)
_RUN_SIZES = (24, 10, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
_MORE_SIZES = ((1, 63), (3, 2), (1, 3))
"""No run follows, one follows: before the first run, before the second, before any later one."""


def encode(
    anchors: AnchorSet, prompt_ids: Sequence[int], base: AnchorSet | None, prior: Prior | None = None
) -> bytes:
    """The body of a compact payload. `base` must be a subset of `anchors` (see `wire`).

    prior: in place of the installed one, to measure another.

    Raises AnchorRangeError for a vocabulary over MAX_VOCAB.
    """
    coder = Coder(None, BOUND)
    body = _Body(coder, anchors.contract, prompt_ids, base, prior)
    body.run(anchors.by_position, anchors.canvas, anchors.length)
    return coder.finish()


def decode(body: bytes, contract: Contract, prompt_ids: Sequence[int], base: AnchorSet | None) -> Shape:
    """The shape in a body. Raises MalformedPayloadError or AnchorRangeError."""
    coder = Coder(body, BOUND)
    found, canvas, length = _Body(coder, contract, prompt_ids, base).run({}, 0, None)
    coder.check_end()
    positions = tuple(sorted(found))
    return positions, tuple(found[p] for p in positions), canvas, length


class _Body:
    """One body, in either direction."""

    def __init__(
        self,
        coder: Coder,
        contract: Contract,
        prompt_ids: Sequence[int],
        base: AnchorSet | None,
        prior: Prior | None = None,
    ) -> None:
        if not 0 < contract.vocab_size <= MAX_VOCAB:
            raise AnchorRangeError(
                f"vocabulary: expected 1 to {MAX_VOCAB} tokens for codec compact, found {contract.vocab_size}"
            )
        self._coder = coder
        self._base = base
        self._old = base.by_position if base is not None else {}
        size = contract.vocab_size
        self._model = TokenModel(prior or prior_of(size), size, prompt_ids)
        self._at = 0
        self._order = sorted(self._old)
        self._passed = 0

    def run(
        self, known: Mapping[int, int], canvas: int, length: int | None
    ) -> tuple[dict[int, int], int, int | None]:
        """Codes the body: all anchors by position, canvas and length."""
        canvas = self._base.canvas if self._base is not None else code_canvas(self._coder, canvas)
        old_length = self._base.length if self._base is not None else None
        fresh = [p for p in known if p not in self._old]
        whole = length is not None and len(known) == length
        shape = _WHOLE if whole else _RUNS if length is None or length == old_length else _RUNS_AND_LENGTH
        shape = self._coder.choice(shape, _SHAPE_SIZES)
        if shape == _WHOLE:
            return self._whole(known, canvas, old_length), canvas, self._at
        found = self._runs(known, fresh, canvas)
        end = max(found, default=-1) + 1
        if shape == _RUNS_AND_LENGTH:
            beyond = self._coder.number((length or 0) - end, _NUMBER_SIZES)
            length = end + beyond
            if length > canvas:
                raise AnchorRangeError(
                    f"length: expected at most the canvas of {canvas} positions, found {length}"
                )
        else:
            length = old_length
        return found, canvas, length

    def _token(self, token: int, may_end: bool = False) -> int:
        self._coder.count()
        return self._model.code(self._coder, token, may_end=may_end)

    def _whole(self, known: Mapping[int, int], canvas: int, old_length: int | None) -> dict[int, int]:
        """Every position up to an END, or up to the length where the base has one."""
        found = dict(self._old)
        last_old = max(self._old, default=-1)
        end = canvas if old_length is None else old_length
        while self._at < end:
            if self._at in self._old:
                self._model.push(self._old[self._at])
            else:
                may_end = old_length is None and self._at > last_old
                token = self._token(known.get(self._at, END), may_end)
                if token == END:
                    break
                found[self._at] = token
            self._at += 1
        return found

    def _runs(self, known: Mapping[int, int], fresh: list[int], canvas: int) -> dict[int, int]:
        """Runs over the positions the base leaves free: a flag for each, then gap, size and tokens."""
        found = dict(self._old)
        free = [p for p in range(canvas) if p not in self._old] if self._old else range(canvas)
        runs = runs_of([bisect_left(free, p) for p in fresh])
        at = nth = 0
        while self._coder.choice(int(nth < len(runs)), _MORE_SIZES[min(nth, 2)]):
            start, size = runs[nth] if nth < len(runs) else (at, 1)
            apart = int(nth > 0)
            start = (
                at + apart + self._coder.number(start - at - apart, _GAP_SIZES if nth else _FIRST_GAP_SIZES)
            )
            size = 1 + self._coder.number(size - 1, _RUN_SIZES if nth else _FIRST_RUN_SIZES)
            if start + size > len(free):
                raise AnchorRangeError(
                    f"anchors: expected at most {len(free)} free positions, found {size} after {start}"
                )
            for index in range(start, start + size):
                position = free[index]
                self._pass(position)
                found[position] = self._token(known.get(position, 0))
                self._at = position + 1
            at, nth = start + size, nth + 1
        return found

    def _pass(self, position: int) -> None:
        """Gives the model the context between the last token and `position`: gaps and the base's anchors."""
        while self._passed < len(self._order) and self._order[self._passed] < position:
            old = self._order[self._passed]
            if old >= self._at:
                if old > self._at:
                    self._model.gap()
                self._model.push(self._old[old])
                self._at = old + 1
            self._passed += 1
        if position > self._at:
            self._model.gap()


def code_canvas(coder: Coder, canvas: int, sizes: Sequence[int] = _CANVAS_SIZES) -> int:
    """Codes the number of positions; raises AnchorRangeError for more than MAX_CANVAS."""
    other = len(_CANVASES)
    index = coder.choice(_CANVASES.index(canvas) if canvas in _CANVASES else other, sizes)
    if index < other:
        return _CANVASES[index]
    canvas = coder.number(canvas - 1, _NUMBER_SIZES) + 1
    if canvas > MAX_CANVAS:
        raise AnchorRangeError(f"canvas: expected at most {MAX_CANVAS} positions, found {canvas}")
    return canvas
