"""Experiment `one_frame`: questions and answers in one frame each way, over emulated links.

Held-out questions are asked through the service, the gateway and the device's own request, on emulated links
without loss and with it: bytes and frames of an exchange, right answers against those over HTTP, and under
loss what was answered, twice, or to another question. Not responsible for links or the gateway (see
`links`, `links.gateway`).

The service is the real one, on a port of this machine. The links' time is emulated: hours of it take seconds.
The service's answer to a question is computed once for each size of frames and used again under loss, so that
what differs is the link.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cloud_anchor.errors import RequestError
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.settings import Limits
from common.cli import option
from edge_runtime.client.client import Client, ReceivedPayload
from edge_runtime.decode.forced import Token
from edge_runtime.decode.refine import Retract
from edge_runtime.errors import UsageError
from edge_runtime.online import RemoteRequest, ServiceOptions, ServiceRequest
from edge_runtime.runtime import EdgeRuntime
from lab.experiment import About, Experiment, Records, Setup, questions
from lab.links.background import background_service
from lab.options import require_at_least
from lab.questions.items import Item
from lab.questions.judge import is_right
from lab.store import Record
from lab.tables import Row, Table
from links import LINK_PROFILES, Emulation, Link
from links.asking import LinkOptions, LinkRequest
from links.exchange import RetryBudget
from links.frames import Question
from links.gateway.answering import GatewayLimits
from links.gateway.emulated import emulated_gateway
from links.gateway.service import AnchorSource, ServiceSource
from links.seal import Seal, SealedLink, make_pair

DEFAULT_LINKS = ("meshtastic-longfast", "sms", "lorawan-sf10")
"""Frames of 231 (233 less what firmware adds), 140 and 51 bytes."""

BAR_BYTES, BAR_ONE_FRAME, BAR_ANSWERED = 100, 0.95, 0.99
"""Whole exchange at most; share of exchanges in one frame each way; share answered under loss."""

BAR_RIGHT = 0.01
"""Share by which right answers may be fewer than over HTTP: one question of a hundred."""

APART = 6 * 3600.0
"""Seconds of the link's time from one question to the next: within a day's quota of any link."""

SERVICE_SECONDS = 1.0
"""That the service takes for an answer, in the link's time."""

REQUEST_IDS = 8
"""Request ids under loss repeat after so many questions, so that late frames meet later questions."""

DUPLICATES, REORDERING = 0.05, 0.05
"""Shares of frames that come twice and late, under loss."""


@dataclass(frozen=True)
class OneFrameOptions:
    """Raises RequestError for shares and numbers that there are not."""

    links: tuple[str, ...] = option(
        DEFAULT_LINKS, f"of {', '.join(LINK_PROFILES)}", choices=tuple(LINK_PROFILES), metavar="LINK"
    )
    loss: tuple[float, ...] = option((0.1,), "of the frames", metavar="SHARE")
    attempts: int = option(5, "frames of a question at most")
    sealed: bool = option(False, "authenticate frames: 6 bytes more for each")
    fraction: float = option(0.1, "share of the steps")

    def __post_init__(self) -> None:
        if any(not 0 < loss < 1 for loss in self.loss):
            raise RequestError(f"--loss: expected shares above 0 and below 1, found {self.loss}")
        require_at_least(self, 1, "attempts")


@dataclass(frozen=True)
class LinkExchange:
    """One question on one link.

    up, down: bytes of the frames sent and received. up_frames, down_frames: their number.
    seconds: in the link's time, from the question to the last part. complete: whether the whole answer came.
    runs: of the service for it. text: of the answer. right: as judged.
    """

    up: int
    down: int
    up_frames: int
    down_frames: int
    airtime: float
    money: float
    seconds: float
    complete: bool
    runs: int
    text: str
    right: bool

    @property
    def total(self) -> int:
        """Bytes of the whole exchange."""
        return self.up + self.down

    @property
    def one_frame(self) -> bool:
        return self.complete and self.up_frames == self.down_frames == 1


class RememberedSource:
    """A source whose answers are computed once for every question and room."""

    def __init__(self, source: AnchorSource) -> None:
        self._source = source
        self._known: dict[tuple[str, int, bool], list[ReceivedPayload]] = {}

    def payloads(self, question: Question, room: int) -> Iterator[ReceivedPayload]:
        key = question.text, room, question.predictive
        if key not in self._known:
            self._known[key] = list(self._source.payloads(question, room))
        yield from self._known[key]


def exchanges(
    emulation: Emulation,
    source: AnchorSource,
    edge: EdgeRuntime,
    items: Sequence[Item],
    budget: RetryBudget,
    ids: Iterator[int],
    seals: tuple[Path, Path] | None = None,
) -> Iterator[LinkExchange]:
    """One device's exchanges on a link, one question after the other. seals: of device and gateway."""
    limits = GatewayLimits(kept=REQUEST_IDS)
    gateway = emulated_gateway(
        emulation,
        edge.question_context(),
        source,
        SERVICE_SECONDS,
        limits,
        [Seal(seals[1])] if seals else (),
        predictive=True,
    )
    clock = emulation.clock
    device: Link = emulation.device()
    if seals:
        device = SealedLink(device, [Seal(seals[0])])
    link_options = LinkOptions(budget=budget, predictive_question=True)
    for item in items:
        sent, received = replace(device.sent), replace(device.received)
        began, runs = clock.now, gateway.runs
        request = LinkRequest(device, edge, item.prompt, link_options, lambda: next(ids))
        request.receive()
        seconds = clock.now - began
        clock.wait(APART, lambda: False)
        try:
            text = final_text(request, edge)
        except UsageError:  # the question does not fit in a frame
            text = ""
        up, down = device.sent, device.received
        yield LinkExchange(
            up.bytes - sent.bytes,
            down.bytes - received.bytes,
            up.frames - sent.frames,
            down.frames - received.frames,
            up.airtime - sent.airtime + down.airtime - received.airtime,
            up.money - sent.money + down.money - received.money,
            seconds,
            bool(request.exchanges) and request.exchanges[-1].complete,
            gateway.runs - runs,
            text,
            is_right(item, text),
        )


def final_text(request: RemoteRequest, edge: EdgeRuntime) -> str:
    """The text of an answer after its last retraction."""
    tokens: list[Token] = []
    for each in request.answer(edge.options(score_anchors=False)):
        if isinstance(each, Retract):
            del tokens[each.position :]
        else:
            tokens.append(each)
    stream = edge.text_stream()
    return "".join(stream.push(token.id) for token in tokens) + stream.flush()


def over_http(client: Client, edge: EdgeRuntime, prompt: str) -> str:
    """The same answer without a link's bounds."""
    request = ServiceRequest(client, edge, prompt, ServiceOptions(fallback=False, codec="predictive"))
    request.receive()
    return final_text(request, edge)


@dataclass(frozen=True)
class LinkSummary:
    """The figures of one link: shares of its questions, and means over those that were answered.

    loss: share of frames lost. largest: bytes of its frames. one_frame: share of exchanges in one frame each
    way. within: share of whole exchanges of at most 100 bytes. answered: share that got the whole answer.
    right, right_http: shares of right answers. same: share of answers that are those over HTTP.
    twice: questions for which the service ran more than once. other: answers that are not those of the same
    link without loss.
    """

    link: str
    loss: float
    largest: int
    questions: int
    one_frame: float
    up: float
    down: float
    total: float
    total_largest: int
    within: float
    frames_up: float
    airtime: float
    money: float
    currency: str
    seconds: float
    answered: float
    right: float
    right_http: float
    same: float
    twice: int
    other: int

    @property
    def meets_bar(self) -> bool:
        if self.loss:
            return self.answered >= BAR_ANSWERED and not self.twice and not self.other
        small = self.one_frame >= BAR_ONE_FRAME and self.total_largest <= BAR_BYTES
        return small and not self.twice and self.right >= self.right_http - BAR_RIGHT


def summary_of(
    link: str,
    loss: float,
    found: Sequence[LinkExchange],
    http: Sequence[tuple[str, bool]],
    lossless: Sequence[LinkExchange],
) -> LinkSummary:
    profile = LINK_PROFILES[link]
    answered = [each for each in found if each.complete]

    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(values) if values else 0.0

    return LinkSummary(
        link,
        loss,
        min(profile.up, profile.down),
        len(found),
        mean([each.one_frame for each in found]),
        mean([each.up for each in answered]),
        mean([each.down for each in answered]),
        mean([each.total for each in answered]),
        max((each.total for each in answered), default=0),
        mean([each.complete and each.total <= BAR_BYTES for each in found]),
        mean([each.up_frames for each in answered]),
        mean([each.airtime for each in answered]),
        mean([each.money for each in answered]),
        profile.tariff.currency,
        statistics.median([each.seconds for each in answered] or [0.0]),
        mean([each.complete for each in found]),
        mean([each.right for each in found]),
        mean([right for _, right in http]),
        mean([each.text == text for each, (text, _) in zip(found, http, strict=True)]),
        sum(each.runs > 1 for each in found),
        sum(each.complete and each.text != plain.text for each, plain in zip(found, lossless, strict=True)),
    )


HTTP = "over HTTP"


def measure(setup: Setup, cells: Sequence[str]) -> Iterator[Record]:
    """The answers over HTTP, and of each link the exchanges without loss and with each."""
    own: OneFrameOptions = setup.own
    pipeline, place = setup.lab.pipeline, setup.lab.edges[0].runtime.bundle.path
    edge = EdgeRuntime.open(place, setup.options.variant)  # the device's own, beside that of the service
    asked, plan = questions(setup), pipeline.plan()
    config = replace(plan, steps=steps_for(own.fraction, plan.total_steps))
    limits = Limits(batch=1, queue=4, deadline=60.0)
    with (
        TemporaryDirectory() as folder,
        background_service(LocalBackend(pipeline, config, limits), limits) as port,
    ):
        seals = make_pair(Path(folder) / "device") if own.sealed else None
        client = Client(f"http://127.0.0.1:{port}", timeout=60.0)
        source = RememberedSource(ServiceSource.open(client, edge.bundle.contract.identity))
        for cell in cells:
            if cell == HTTP:
                texts = [over_http(client, edge, item.prompt) for item in asked]
                right = [is_right(item, text) for item, text in zip(asked, texts, strict=True)]
                yield {"texts": texts, "right": right}
                continue
            found = {}
            for loss in (0.0, *own.loss):
                ids = itertools.cycle(range(REQUEST_IDS)) if loss else itertools.count()
                disorder = (DUPLICATES, REORDERING) if loss else (0.0, 0.0)
                emulation = Emulation(
                    LINK_PROFILES[cell],
                    loss=loss,
                    duplicates=disorder[0],
                    reordering=disorder[1],
                    seed=f"{setup.options.seed}/{cell}/{loss}",
                )
                budget = RetryBudget(attempts=own.attempts)
                work = exchanges(emulation, source, edge, asked, budget, ids, seals)
                found[str(loss)] = [asdict(exchange) for exchange in work]
            yield {"exchanges": found}


def summaries(records: Records) -> list[LinkSummary]:
    """The figures of every link, without loss and with each."""
    by_cell = {record["id"]: record for record in records}
    http = list(zip(by_cell[HTTP]["texts"], by_cell[HTTP]["right"], strict=True))
    found = []
    for link in (name for name in by_cell if name != HTTP):
        lossless: list[LinkExchange] = []
        for loss, rows in by_cell[link]["exchanges"].items():
            here = [LinkExchange(**row) for row in rows]
            lossless = lossless or here
            found.append(summary_of(link, float(loss), here, http, lossless))
    return found


def tables(records: Records, about: About) -> list[Table]:
    found = summaries(records)
    plain: list[Row] = [
        {
            "link": row.link,
            "frame": row.largest,
            "one frame each way": row.one_frame,
            "question, bytes": row.up,
            "answer, bytes": row.down,
            "exchange, bytes": row.total,
            "largest": row.total_largest,
            f"within {BAR_BYTES} bytes": row.within,
            "right": row.right,
            "right over HTTP": row.right_http,
            "same text": row.same,
            "s on the air": row.airtime or None,  # a link that counts none
            "seconds, median": row.seconds,
            "money": f"{row.money:.4f} {row.currency}" if row.currency else "none",
        }
        for row in found
        if not row.loss
    ]
    lossy: list[Row] = [
        {
            "link": row.link,
            "loss": f"{row.loss:.0%}",
            "answered": row.answered,
            "question frames": row.frames_up,
            "seconds, median": row.seconds,
            "right": row.right,
            "answered twice": row.twice,
            "to another question": row.other,
        }
        for row in found
        if row.loss
    ]
    title = f"With loss, {DUPLICATES:.0%} of the frames twice and {REORDERING:.0%} late; request ids repeat"
    return [
        Table.of("links", f"One frame each way: {found[0].questions} held-out questions, no loss", plain),
        Table.of("loss", title, lossy),
    ]


def cells(setup: Setup) -> list[str]:
    """What is measured, each over all questions."""
    own: OneFrameOptions = setup.own
    questions(setup)  # they are read before anything is made
    return [HTTP, *own.links]


EXPERIMENT = Experiment(
    "one_frame",
    "Questions and answers in one frame each way, over emulated links",
    measure,
    tables,
    options=OneFrameOptions,
    defaults={"prompts": 100},
    items=cells,
    together=len(LINK_PROFILES) + 1,
)
