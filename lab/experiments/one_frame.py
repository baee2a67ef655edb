"""`python -m lab.experiments.one_frame`: questions and answers in one frame each way, over emulated links.

Responsible for asking held-out questions through the service, the gateway and the device's own request, on
emulated links without loss and with it, and for the figures: bytes and frames of an exchange, right answers
against those over HTTP, and under loss what was answered, twice, or to another question. Not responsible for
links, exchanges or the gateway (see `links`, `links.gateway.answering`).

The service is the real one, on a port of this machine. The links' time is emulated: hours of it take seconds.
The service's answer to a question is computed once for each size of frames and used again under loss, so that
what differs is the link.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from cloud_anchor.errors import RequestError
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.sampling.config import steps_for
from cloud_anchor.serve.batching.local import LocalBackend
from cloud_anchor.serve.settings import Limits
from cloud_anchor.shipped import bundle_of
from common.cli import run_command
from common.progress import Bars
from edge_runtime.client.client import Client, ReceivedPayload
from edge_runtime.decode.forced import Token
from edge_runtime.decode.refine import Retract
from edge_runtime.errors import UsageError
from edge_runtime.online import RemoteRequest, ServiceOptions, ServiceRequest
from edge_runtime.runtime import EdgeRuntime
from lab.links.background import background_service
from lab.options import add_fraction, add_pair, add_questions, questions
from lab.questions.items import Item
from lab.questions.judge import is_right
from links import LINK_PROFILES, Emulation, Link
from links.exchange import RetryBudget
from links.frames import Question
from links.gateway.answering import AnchorSource, GatewayLimits, ServiceSource, emulated_gateway
from links.over_link import LinkOptions, LinkRequest
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
    for each in request.answer(edge.options(score_anchors=False, speculate="off")):
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.experiments.one_frame",
        description="Ask held-out questions over emulated links, without loss and with it.",
        epilog="example: python -m lab.experiments.one_frame --prompts 100 --loss 0.1\n\n"
        "exit codes: 0 the bar is met, 1 it is missed, 2 usage, 4 bad or missing model, 130 interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_pair(parser)
    add_questions(parser, 100)
    add_fraction(parser)
    parser.add_argument(
        "--links",
        nargs="+",
        choices=tuple(LINK_PROFILES),
        default=list(DEFAULT_LINKS),
        metavar="LINK",
        help=f"of {', '.join(LINK_PROFILES)} (default: {' '.join(DEFAULT_LINKS)})",
    )
    parser.add_argument(
        "--loss", type=float, nargs="+", default=[0.1], metavar="SHARE", help="of the frames (default 0.1)"
    )
    parser.add_argument("--attempts", type=int, default=5, help="frames of a question at most (default 5)")
    parser.add_argument("--sealed", action="store_true", help="authenticate frames: 6 bytes more for each")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args(argv)
    return run_command("one_frame", lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    if any(not 0 < loss < 1 for loss in args.loss):
        raise RequestError(f"loss: expected shares above 0 and below 1, found {args.loss}")
    if args.attempts < 1:
        raise RequestError(f"attempts: expected at least 1, found {args.attempts}")
    with TemporaryDirectory() as folder:
        rows = measure(args, make_pair(Path(folder) / "device") if args.sealed else None)
    if args.json:
        print(json.dumps([asdict(row) | {"meets_bar": row.meets_bar} for row in rows]))
    else:
        _print(rows)
    return int(not all(row.meets_bar for row in rows))


def measure(args: argparse.Namespace, seals: tuple[Path, Path] | None = None) -> list[LinkSummary]:
    """The rows of every link, without loss and with each. seals: as in `exchanges`."""
    items, place = questions(args), bundle_of(args.model, args.edge)
    bars = Bars("one_frame")
    edge = EdgeRuntime.open(place)
    pipeline = Pipeline.open(args.model, edge=place)
    plan = pipeline.plan()
    config = replace(plan, steps=steps_for(args.fraction, plan.total_steps))
    limits = Limits(batch=1, queue=4, deadline=60.0)
    budget = RetryBudget(attempts=args.attempts)
    rows = []
    with background_service(LocalBackend(pipeline, config, limits), limits) as port:
        client = Client(f"http://127.0.0.1:{port}", timeout=60.0)
        source = RememberedSource(ServiceSource.open(client, edge.bundle.contract.identity))
        http = []
        with bars.stage("over HTTP", len(items)) as step:
            for item in items:
                text = over_http(client, edge, item.prompt)
                http.append((text, is_right(item, text)))
                step(1)
        for link in args.links:
            lossless: list[LinkExchange] = []
            for loss in (0.0, *args.loss):
                ids = itertools.cycle(range(REQUEST_IDS)) if loss else itertools.count()
                disorder = (DUPLICATES, REORDERING) if loss else (0.0, 0.0)
                emulation = Emulation(
                    LINK_PROFILES[link],
                    loss=loss,
                    duplicates=disorder[0],
                    reordering=disorder[1],
                    seed=f"{args.seed}/{link}/{loss}",
                )
                found = []
                with bars.stage(f"{link}, loss {loss:.0%}", len(items)) as step:
                    for each in exchanges(emulation, source, edge, items, budget, ids, seals):
                        found.append(each)
                        step(1)
                lossless = lossless or found
                rows.append(summary_of(link, loss, found, http, lossless))
    return rows


def _print(rows: Sequence[LinkSummary]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    first = rows[0]
    table = Table(title=f"One frame each way: {first.questions} held-out questions, no loss")
    columns = ["link", "frame", "one frame each way", "question", "answer", "exchange", "largest"]
    columns += [f"<= {BAR_BYTES} bytes", "right", "right over HTTP", "same text", "s on the air", "seconds"]
    columns += ["money"]
    for column in columns:
        table.add_column(column, justify="left" if column == "link" else "right")
    for row in rows:
        if not row.loss:
            money = f"{row.money:.4f} {row.currency}" if row.currency else "none"
            table.add_row(
                row.link,
                str(row.largest),
                f"{row.one_frame:.1%}",
                f"{row.up:.1f} B",
                f"{row.down:.1f} B",
                f"{row.total:.1f} B",
                f"{row.total_largest} B",
                f"{row.within:.1%}",
                f"{row.right:.1%}",
                f"{row.right_http:.1%}",
                f"{row.same:.1%}",
                f"{row.airtime:.2f}",
                f"{row.seconds:.1f}",
                money,
            )
    console.print(table)
    table = Table(
        title=f"With loss, {DUPLICATES:.0%} of the frames twice and {REORDERING:.0%} late; request ids repeat"
    )
    columns = [
        "link",
        "loss",
        "answered",
        "questions sent",
        "seconds",
        "right",
        "answered twice",
        "to another",
    ]
    for column in columns:
        table.add_column(column, justify="left" if column == "link" else "right")
    for row in rows:
        if row.loss:
            table.add_row(
                row.link,
                f"{row.loss:.0%}",
                f"{row.answered:.1%}",
                f"{row.frames_up:.2f}",
                f"{row.seconds:.1f}",
                f"{row.right:.1%}",
                str(row.twice),
                str(row.other),
            )
    console.print(table)
    missed = [f"{row.link} at {row.loss:.0%} loss" for row in rows if not row.meets_bar]
    console.print(f"the bar is {'missed: ' + ', '.join(missed) if missed else 'met'}")


if __name__ == "__main__":
    sys.exit(main())
