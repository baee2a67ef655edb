"""Codec predictive: anchors written against the guesses of the device's own model.

Knows the grammar of a body (SPEC.md, "Body of predictive"). It walks the answer from left to right as the
device will: at each position stands the model's own token, which costs almost nothing, or an anchor, named by
its place among the model's guesses. The decoder needs the model's row at each position, so decoding is
filling: the walk's text is the device's text up to its end. Does not know any model (a `Predictor` is given)
nor how a token is named (see `naming`).

Log-probabilities that differ between processors decide ranks and contexts. The encoder relies on them only
where they hold within a tolerance, and codes explicitly what does not; a digest of the whole text, which goes
into the payload's check, detects what differs all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from payload.anchors import AnchorSet
from payload.codecs.adaptive_model import AdaptiveModel
from payload.codecs.compact import code_canvas
from payload.codecs.naming import BY_RANK, TOP, Name, Row, bucket_of, names, resolve
from payload.codecs.range_coder import Coder
from payload.codecs.template import Shape
from payload.errors import MalformedPayloadError, PayloadError

TOLERANCE = 0.004
"""By how much the difference of two log-probabilities may change from one processor to another, in nats."""
MAX_TOLERANCE = 1.0

FREE_PLACES = 256
PLACES_A_BYTE = 64
"""A body of n bytes tells of at most FREE_PLACES + PLACES_A_BYTE * n positions: a bound on reading time."""

WHOLE, DOUBTED, ANYWHERE, OPEN = range(4)
"""Shapes: every position is an anchor; the anchors are mostly where the model doubts; they are anywhere; they
are anywhere and the length is not known.
"""
_SHAPE_SIZES = (16, 40, 4, 4)
_CANVAS_SIZES = (16, 12, 4, 24, 4, 4)


class Predictor(Protocol):
    """The device's model behind one prompt."""

    @property
    def identity(self) -> bytes:
        """32 bytes that stand for all that decides its numbers: weights, graph, precision, vocabulary."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """What stands before the answer."""

    def read(self, text: Sequence[int], start: int) -> Iterator[Row]:
        """Rows (see `naming`) of the positions `start` to len(text), each given the text before it.

        A row is used before the next one is asked for. A reading may be left for another at any time.
        """


class Step(NamedTuple):
    """One position of a walk. logprob: of its token, natural logarithm; None where the base tells it."""

    position: int
    id: int
    anchor: bool
    logprob: float | None


class Place(NamedTuple):
    """What the encoder says of one position. token: END is numbered as the vocabulary's size."""

    token: int
    bucket: int
    clear: bool
    names: list[Name]
    end_leads: bool
    anchor: bool


def encode(
    anchors: AnchorSet,
    predictor: Predictor,
    base: AnchorSet | None = None,
    tolerance: float = TOLERANCE,
    draft: Sequence[int] = (),
) -> tuple[bytes, bytes]:
    """A body, and the digest of its walk. `base` must be a subset of `anchors` (see `wire`).

    draft: what the device's text is thought to be: as far as it is right, its positions are read in one pass.
    Raises PayloadError for a tolerance out of range or a predictor of another vocabulary.
    """
    if not 0 <= tolerance <= MAX_TOLERANCE:
        raise PayloadError(f"tolerance: expected 0 to {MAX_TOLERANCE}, found {tolerance}")
    places = observe(anchors, predictor, base, tolerance, draft)
    shapes = [OPEN] if anchors.length is None else [DOUBTED, ANYWHERE]
    if anchors.length == len(anchors):
        shapes = [WHOLE]
    written = [_write(shape, places, anchors, predictor, base) for shape in shapes]
    return min(written, key=lambda pair: len(pair[0]))


def _write(
    shape: int, places: Sequence[Place], anchors: AnchorSet, predictor: Predictor, base: AnchorSet | None
) -> tuple[bytes, bytes]:
    walk = Walk(predictor, anchors.contract.vocab_size, base)
    for _ in walk.steps(shape, places, anchors.canvas):
        pass
    return walk.written(), walk.digest


def _least_bytes(places: int) -> int:
    """Bytes that a body of so many told positions must have; zeros that say nothing make them up."""
    return max(0, -(-(places - FREE_PLACES) // PLACES_A_BYTE))


class Walk:
    """One body in either direction: `steps` goes through it once, then it knows the outcome."""

    def __init__(
        self, predictor: Predictor, vocab_size: int, base: AnchorSet | None = None, body: bytes | None = None
    ) -> None:
        """body: what to read; without it the walk is written."""
        self._coder = Coder(body)
        self._body = body or b""
        self._rows = _Rows(predictor, vocab_size)
        self._end_id = vocab_size
        self._base = base
        self._found = dict(base.by_position) if base is not None else {}
        self._seen = _seen(predictor, vocab_size)
        self._count = 0
        self.text: list[int] = []
        self.canvas = 0
        self.length: int | None = None

    @property
    def shape(self) -> Shape:
        """Positions, ids, canvas and length, once the walk is over."""
        positions = tuple(sorted(self._found))
        return positions, tuple(self._found[p] for p in positions), self.canvas, self.length

    def written(self) -> bytes:
        """The body of a walk that was written."""
        assert self._coder.encoder
        return self._coder.encoder.finish().ljust(_least_bytes(self._count), b"\0")

    @property
    def digest(self) -> bytes:
        """32 bytes that change with every id of the text and with every anchor, once the walk is over."""
        positions, ids, canvas, length = self.shape
        numbers = [canvas, -1 if length is None else length, len(self.text), *self.text, *positions, *ids]
        return hashlib.sha256(b"".join(n.to_bytes(4, "little", signed=True) for n in numbers)).digest()

    def steps(self, shape: int = 0, told: Sequence[Place] = (), canvas: int = 0) -> Iterator[Step]:
        """Goes through the positions. The arguments are what to write, and of no meaning when reading.

        Reading raises MalformedPayloadError or AnchorRangeError, and what the predictor raises.
        """
        base, old = self._base, dict(self._found)
        last_old = max(old, default=-1)
        self.canvas = base.canvas if base is not None else code_canvas(self._coder, canvas, _CANVAS_SIZES)
        shape = self._coder.choice(shape, _SHAPE_SIZES)
        self.length = base.length if base is not None else None
        limit = self.canvas if self.length is None else self.length
        habits = AdaptiveModel(self._coder, doubtful=shape == DOUBTED)
        queue = iter(told)
        left = sum(place.anchor for place in told)
        asked = False  # whether, in an open answer, another anchor has been announced
        while len(self.text) < limit:
            position = len(self.text)
            if position in old:
                self.text.append(old[position])
                self._seen.add(old[position])
                yield Step(position, old[position], True, None)
                continue
            if shape == OPEN and not asked:
                asked = habits.more(left > 0)
                if not asked:
                    break
            may_end = shape != OPEN and self.length is None and position > last_old
            place = next(queue, None)
            token, anchor, logprob = self._place(habits, shape, place, may_end)
            if token == self._end_id:
                break
            self.text.append(token)
            self._seen.add(token)
            if anchor:
                self._found[position] = token
                asked, left = False, left - 1
            yield Step(position, token, anchor, logprob)
        if asked:
            raise MalformedPayloadError(f"body: expected another anchor below position {limit}, found none")
        if shape != OPEN:
            self.length = len(self.text)
        self._check_end()

    def _place(
        self, habits: AdaptiveModel, shape: int, told: Place | None, may_end: bool
    ) -> tuple[int, bool, float | None]:
        """One position that is not known yet: token, whether it is an anchor, its log-probability."""
        tokens = self._end_id + 1
        logprob = None
        self._count += 1
        if told:
            token, end_leads = told.token, told.end_leads
            bucket = habits.bucket(told.bucket, told.clear)
            name = habits.name(told.names, bucket, tokens)
        else:
            self._check_count()
            row = self._rows.at(self.text, may_end)
            bucket = habits.bucket(bucket_of(row)[0], True)
            name = habits.name((), bucket, tokens)
            token = self._resolve(row, name)
            end_leads = int(row.argmax()) == self._end_id
            logprob = float(row[token])
        anchor = True
        if token != self._end_id and shape != WHOLE:
            # Named by its rank, it is known whether the model would have written it; otherwise it is not.
            certain = name.way in (TOP, BY_RANK)
            if not certain or name.way == TOP or (name.rank == 1 and end_leads):
                anchor = habits.anchor(bool(told and told.anchor), bucket, certain)
        return token, anchor, logprob

    def _resolve(self, row: Row, name: Name) -> int:
        token = resolve(row, name, self._seen)
        if token is None:
            raise MalformedPayloadError(
                f"body: expected one of the model's guesses at position {len(self.text)}, found "
                f"{name}, which names none"
            )
        return token

    def _check_count(self) -> None:
        size = len(self._body)
        if self._count > FREE_PLACES + PLACES_A_BYTE * size:
            raise MalformedPayloadError(
                f"body: expected at most {self._count - 1} positions in {size} bytes, found more"
            )

    def _check_end(self) -> None:
        """Nothing may stand in a body that does not change what it says."""
        decoder = self._coder.decoder
        if (
            decoder
            and decoder.size > _least_bytes(self._count)
            and (decoder.unread or self._body[-1:] == b"\0")
        ):
            raise MalformedPayloadError(
                f"body: expected its end after {decoder.size - decoder.unread} bytes, found {decoder.size}"
            )


def observe(
    anchors: AnchorSet, predictor: Predictor, base: AnchorSet | None, tolerance: float, draft: Sequence[int]
) -> list[Place]:
    """What there is to say of every position, walking as the device will."""
    end_id = anchors.contract.vocab_size
    rows = _Rows(predictor, end_id, draft)
    forced = anchors.by_position
    old = set(base.positions) if base is not None else set()
    last_old = max(old, default=-1)
    open_end = anchors.length is None
    known_length = base is not None and base.length is not None
    fresh = [position for position in anchors.positions if position not in old]
    limit = max(fresh, default=-1) + 1 if anchors.length is None else anchors.length
    ends = not open_end and not known_length and limit < anchors.canvas
    seen = _seen(predictor, end_id)
    text: list[int] = []
    places = []
    for position in range(limit + ends):
        if position in old:
            text.append(forced[position])
            seen.add(text[-1])
            continue
        row = rows.at(text, not open_end and not known_length and position > last_old)
        own = int(row[:end_id].argmax())
        token = end_id if position == limit else forced.get(position, own)
        lead = int(row.argmax()) == end_id
        told = names(row, token, seen, tolerance)
        places.append(Place(token, *bucket_of(row, tolerance), told, lead, position in forced))
        text.append(token)
        seen.add(token)
    return places


def _seen(predictor: Predictor, vocab_size: int) -> set[int]:
    return {token for token in predictor.prompt_ids if 0 <= token < vocab_size}


class _Rows:
    """Rows as a walk asks for them: of as many positions a pass as the draft foretells."""

    def __init__(self, predictor: Predictor, vocab_size: int, draft: Sequence[int] = ()) -> None:
        self._predictor = predictor
        self._end_id = vocab_size
        self._draft = list(draft)
        self._assumed: list[int] = []
        self._agreed = self._next = 0
        self._rows: Iterator[Row] | None = None

    def at(self, text: Sequence[int], may_end: bool) -> Row:
        """The row of the position behind the text, which has grown since it was last asked."""
        position = len(text)
        while self._agreed < position and self._assumed[self._agreed : self._agreed + 1] == [
            text[self._agreed]
        ]:
            self._agreed += 1
        if self._rows is None or self._agreed < position:
            self._assumed, self._agreed = [*text, *self._draft[position:]], position
            self._rows, self._next = self._predictor.read(self._assumed, position), position
        for _ in range(self._next, position):
            next(self._rows)
        self._next = position + 1
        row = next(self._rows)
        if row.shape != (self._end_id + 1,):
            raise PayloadError(
                f"predictor: expected rows of {self._end_id} tokens and END, found shape {row.shape}; "
                "use the model bundle of this contract"
            )
        if may_end:
            return row
        row = row.copy()
        row[self._end_id] = -np.inf
        return row
