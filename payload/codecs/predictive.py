"""Codec predictive: anchors coded against the predictions of the edge model that fills them.

Responsible for the grammar of a body (SPEC.md, "Body of predictive"). The answer is coded from left to right
as the device decodes it: every position holds either the model's own token, which costs almost nothing, or an
anchor, coded by its rank among the model's predictions. The reader needs the model's row at each position, so
decoding a payload is filling it: the decoded text is the device's text up to where the body ends. Not
responsible for any model (a `Predictor` is given) nor for the codes of a token (see `rank_codes`).

Log-probabilities that differ between processors decide ranks and contexts. The encoder relies on them only
where they hold within a tolerance and codes explicitly what does not; a digest of the whole text, which goes
into the payload's check, detects what differs all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from payload.anchors import AnchorSet
from payload.codecs.adaptive_model import FORMAT_COUNTS, AdaptiveModel, InitialCounts
from payload.codecs.compact import code_canvas
from payload.codecs.range_coder import Bound, Coder
from payload.codecs.rank_codes import RANK, TOP, RankCode, Row, confidence_bucket, rank_codes, token_of
from payload.codecs.template import Shape
from payload.errors import MalformedPayloadError, PayloadError

TOLERANCE = 0.004
"""By how much the difference of two log-probabilities may change from one processor to another, in nats."""
MAX_TOLERANCE = 1.0


PAYLOAD_BOUND = Bound(256, 64)
QUESTION_BOUND = Bound(0, 8)
"""Of a question's text, which strangers may send: there every position is coded, not the model's own."""

WHOLE, UNCERTAIN, ANYWHERE, OPEN = range(4)
"""Shapes: every position is an anchor; the anchors are mostly where the model is uncertain; they are
anywhere; they are anywhere and the length is not known.
"""
_SHAPE_SIZES = (16, 40, 4, 4)
_CANVAS_SIZES = (16, 12, 4, 24, 4, 4)


class Predictor(Protocol):
    """The edge model behind one prompt."""

    @property
    def identity(self) -> bytes:
        """32 bytes that identify all that decides its numbers: weights, graph, precision, vocabulary."""

    @property
    def prompt_ids(self) -> Sequence[int]:
        """The ids before the answer."""

    def read(self, text: Sequence[int], start: int) -> Iterator[Row]:
        """Rows (see `rank_codes`) of the positions `start` to len(text), each given the text before it.

        A row is used before the next one is taken. An iterator may be dropped for another at any time.
        """


class DecodedToken(NamedTuple):
    """One position of a decoded text.

    anchor:  whether it is an anchor, not the model's own token.
    logprob: natural logarithm of the token's probability; None where a base gives it.
    """

    position: int
    id: int
    anchor: bool
    logprob: float | None


class PlannedToken(NamedTuple):
    """One position as the encoder codes it.

    token:     its id; END is numbered as the vocabulary's size.
    bucket, stable: the model's confidence bucket, and whether another processor finds the same.
    codes:     the codes of the token (see `rank_codes`).
    end_leads: whether END is the likeliest.
    anchor:    whether the token is an anchor, not the model's own.
    """

    token: int
    bucket: int
    stable: bool
    codes: list[RankCode]
    end_leads: bool
    anchor: bool


def encode(
    anchors: AnchorSet,
    predictor: Predictor,
    base: AnchorSet | None = None,
    tolerance: float = TOLERANCE,
    draft: Sequence[int] = (),
    counts: InitialCounts = FORMAT_COUNTS,
    bound: Bound = PAYLOAD_BOUND,
) -> tuple[bytes, bytes]:
    """A body, and the digest of its text. `base` must be a subset of `anchors` (see `wire`).

    tolerance: by how much differences of log-probabilities may be off on the device, in nats.
    draft:     the text that the device is expected to write, beside the anchors: as far as it is right, many
               positions are read in one pass of the model. It does not change the bytes.
    counts, bound: the counts that the body begins with, and of its positions: the reader's must be the same.

    Raises PayloadError for a tolerance out of range or a predictor of another vocabulary.
    """
    if not 0 <= tolerance <= MAX_TOLERANCE:
        raise PayloadError(f"tolerance: expected 0 to {MAX_TOLERANCE}, found {tolerance}")
    planned = plan(anchors, predictor, base, tolerance, draft)
    shapes = [OPEN] if anchors.length is None else [UNCERTAIN, ANYWHERE]
    if anchors.length == len(anchors):
        shapes = [WHOLE]
    written = []
    for shape in shapes:
        body = PredictiveBody(predictor, anchors.contract.vocab_size, base, counts=counts, bound=bound)
        for _ in body.tokens(shape, planned, anchors.canvas):
            pass
        written.append((body.written(), body.digest))
    return min(written, key=lambda pair: len(pair[0]))


class PredictiveBody:
    """One body in either direction: `tokens` codes it once, then `shape` and `digest` are known."""

    def __init__(
        self,
        predictor: Predictor,
        vocab_size: int,
        base: AnchorSet | None = None,
        body: bytes | None = None,
        counts: InitialCounts = FORMAT_COUNTS,
        bound: Bound = PAYLOAD_BOUND,
    ) -> None:
        """body: the bytes to read; without it a body is written. counts, bound: as of `encode`."""
        self._coder = Coder(body, bound)
        self._counts = counts
        self._rows = _Rows(predictor, vocab_size)
        self._end_id = vocab_size
        self._base = base
        self._anchors = dict(base.by_position) if base is not None else {}
        self._seen = _ordinary(predictor.prompt_ids, vocab_size)
        self.text: list[int] = []
        self.canvas = 0
        self.length: int | None = None

    @property
    def shape(self) -> Shape:
        """Positions, ids, canvas and length, once all tokens are coded."""
        positions = tuple(sorted(self._anchors))
        return positions, tuple(self._anchors[p] for p in positions), self.canvas, self.length

    def written(self) -> bytes:
        """The bytes of a body that was written."""
        return self._coder.finish()

    @property
    def digest(self) -> bytes:
        """32 bytes that change with every id of the text and with every anchor, once all tokens are coded."""
        positions, ids, canvas, length = self.shape
        numbers = [canvas, -1 if length is None else length, len(self.text), *self.text, *positions, *ids]
        return hashlib.sha256(b"".join(n.to_bytes(4, "little", signed=True) for n in numbers)).digest()

    def tokens(
        self, shape: int = 0, planned: Sequence[PlannedToken] = (), canvas: int = 0
    ) -> Iterator[DecodedToken]:
        """Codes the positions in order. The arguments are what to write; reading ignores them.

        Reading raises MalformedPayloadError or AnchorRangeError, and what the predictor raises.
        """
        base, given = self._base, dict(self._anchors)
        last_given = max(given, default=-1)
        self.canvas = base.canvas if base is not None else code_canvas(self._coder, canvas, _CANVAS_SIZES)
        shape = self._coder.choice(shape, _SHAPE_SIZES)
        self.length = base.length if base is not None else None
        limit = self.canvas if self.length is None else self.length
        model = AdaptiveModel(self._coder, uncertain=shape == UNCERTAIN, counts=self._counts)
        queue = iter(planned)
        left = sum(each.anchor for each in planned)
        announced = False  # in an open answer: another anchor follows
        while len(self.text) < limit:
            position = len(self.text)
            if position in given:
                self.text.append(given[position])
                self._seen.add(given[position])
                yield DecodedToken(position, given[position], True, None)
                continue
            if shape == OPEN and not announced:
                announced = model.more(left > 0)
                if not announced:
                    break
            may_end = shape != OPEN and self.length is None and position > last_given
            token, anchor, logprob = self._position(model, shape, next(queue, None), may_end)
            if token == self._end_id:
                break
            self.text.append(token)
            self._seen.add(token)
            if anchor:
                self._anchors[position] = token
                announced, left = False, left - 1
            yield DecodedToken(position, token, anchor, logprob)
        if announced:
            raise MalformedPayloadError(f"body: expected another anchor below position {limit}, found none")
        if shape != OPEN:
            self.length = len(self.text)
        if self._coder.decoder:
            self._coder.check_end()

    def _position(
        self, model: AdaptiveModel, shape: int, planned: PlannedToken | None, may_end: bool
    ) -> tuple[int, bool, float | None]:
        """Codes one position that no base gives: token, whether it is an anchor, its log-probability."""
        tokens = self._end_id + 1
        logprob = None
        self._coder.count()
        if planned:
            token, end_leads = planned.token, planned.end_leads
            bucket = model.bucket(planned.bucket, planned.stable)
            code = model.rank_code(planned.codes, bucket, tokens)
        else:
            row = self._rows.at(self.text, may_end)
            bucket = model.bucket(confidence_bucket(row)[0], True)
            code = model.rank_code((), bucket, tokens)
            token = self._token_of(row, code)
            end_leads = int(row.argmax()) == self._end_id
            logprob = float(row[token])
        anchor = True
        if token != self._end_id and shape != WHOLE:
            # A rank among all tokens says whether the model would have written this one; other codes do not.
            by_rank = code.mode in (TOP, RANK)
            if not by_rank or code.mode == TOP or (code.rank == 1 and end_leads):
                anchor = model.anchor(bool(planned and planned.anchor), bucket, by_rank)
        return token, anchor, logprob

    def _token_of(self, row: Row, code: RankCode) -> int:
        token = token_of(row, code, self._seen)
        if token is None:
            raise MalformedPayloadError(
                f"body: expected the code of a candidate at position {len(self.text)}, found {code}, which "
                "has none"
            )
        return token


def plan(
    anchors: AnchorSet,
    predictor: Predictor,
    base: AnchorSet | None,
    tolerance: float,
    draft: Sequence[int],
) -> list[PlannedToken]:
    """The tokens to code: one per position that no base gives, the end included. Arguments as of `encode`."""
    end_id = anchors.contract.vocab_size
    forced = anchors.by_position
    rows = _Rows(predictor, end_id, _expected(forced, draft))
    given = base.by_position if base is not None else {}
    last_given = max(given, default=-1)
    open_end = anchors.length is None
    known_length = base is not None and base.length is not None
    fresh = [position for position in anchors.positions if position not in given]
    limit = max(fresh, default=-1) + 1 if anchors.length is None else anchors.length
    ends = not open_end and not known_length and limit < anchors.canvas
    seen = _ordinary(predictor.prompt_ids, end_id)
    text: list[int] = []
    planned = []
    for position in range(limit + ends):
        if position in given:
            text.append(forced[position])
            seen.add(text[-1])
            continue
        row = rows.at(text, not open_end and not known_length and position > last_given)
        own = int(row[:end_id].argmax())
        token = end_id if position == limit else forced.get(position, own)
        end_leads = int(row.argmax()) == end_id
        codes = rank_codes(row, token, seen, tolerance)
        bucket, stable = confidence_bucket(row, tolerance)
        planned.append(PlannedToken(token, bucket, stable, codes, end_leads, position in forced))
        text.append(token)
        seen.add(token)
    return planned


def _expected(forced: Mapping[int, int], draft: Sequence[int]) -> list[int]:
    """The draft with the anchors in it, and behind it those that follow without a gap: all that is known."""
    text = list(draft)
    for position, token in sorted(forced.items()):
        if position > len(text):
            break
        text[position : position + 1] = [token]
    return text


def _ordinary(ids: Sequence[int], vocab_size: int) -> set[int]:
    return {token for token in ids if 0 <= token < vocab_size}


class _Rows:
    """The model's rows position by position, read for as many positions per pass as the draft predicts."""

    def __init__(self, predictor: Predictor, vocab_size: int, draft: Sequence[int] = ()) -> None:
        self._predictor = predictor
        self._end_id = vocab_size
        self._draft = list(draft)
        self._assumed: list[int] = []
        self._agreed = self._next = 0
        self._rows: Iterator[Row] | None = None

    def at(self, text: Sequence[int], may_end: bool) -> Row:
        """The row of the position behind the text, which only grows from one call to the next."""
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
