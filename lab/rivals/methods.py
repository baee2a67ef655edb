"""The methods: what device and cloud do in each, from real runs of one pair on one question.

Responsible for running the models and for turning each run into the two programs of a conversation. Not
responsible for time or networks (see `links.conversation`), nor for tables (see `standings`).

What runs is the product: pipeline, sampler, selection, codecs, forced decoding, refinement's texts,
speculative acceptance. A method's programs say which passes it takes and which bytes it sends; its answer is
the text that the device really decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloud_anchor.pipeline import Pipeline, PipelineResult
from cloud_anchor.sampling.config import commit_in_parallel
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.select import CONFIDENCE, Selection
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.runtime import EdgeRuntime
from lab.drafting.speculation import DraftModel, speculate
from lab.experiments.frontier import text_codecs
from lab.experiments.passes import rule_config
from lab.links.conversation import (
    BINARY,
    CLOUD,
    DEVICE,
    EDGE,
    EVENTS,
    PART,
    REQUEST,
    RESPONSE,
    Action,
    Program,
    Receive,
    Send,
    Work,
    Write,
    action_json,
    action_of,
)
from lab.questions.items import Item
from lab.questions.judge import is_right
from lab.rivals.cloud_tokens import DiffusionEngine
from lab.rivals.routing import CONFIDENT, route
from lab.rivals.sketch import expand, sketch_words
from payload import AnchorSet, Codec, Shared, encode
from payload.bytesio import varint

ALONE = "device alone"
WHOLE = {
    "text": "whole answer, text streamed",
    "gzip": "whole answer, gzip",
    "zstd": "whole answer, zstd with the prompt",
    "coded": "whole answer, predictive codec",
}
ROUTED = "routing, token by token"
VERIFIED = "device drafts, cloud verifies"
SKETCH = "sketch, expanded"
REFINED = "ours, refined"


def early(steps: int) -> str:
    """The whole draft after so many passes: ours without a selection."""
    return f"early stop after {_passes(steps)}, predictive codec"


def shot(steps: int) -> str:
    """Ours, one payload after so many passes."""
    return f"ours after {_passes(steps)}"


def _passes(steps: int) -> str:
    return f"{steps} pass" if steps == 1 else f"{steps} passes"


@dataclass(frozen=True)
class MethodOptions:
    """finish:    the commit rule of a finished answer (see `passes.rule_config`).
    shots:     passes after which ours sends, in methods of their own; refine: in one answer.
    confident: of the router. drafted: tokens of a draft.
    """

    finish: str = "0.9"
    shots: tuple[int, ...] = (1, 2, 12)
    refine: tuple[int, ...] = (1, 2, 12)
    confident: float = CONFIDENT
    drafted: int = 5


@dataclass(frozen=True)
class Exchange:
    """One answer by one method.

    right: of every whole text that the device shows on the way, whether it answers the question.
    """

    method: str
    device: Program
    cloud: Program
    right: dict[tuple[int, ...], bool]

    @property
    def final(self) -> tuple[int, ...]:
        """The last whole text."""
        return next(action.ids for action in reversed(self.device) if isinstance(action, Write))

    @property
    def requests(self) -> int:
        """Round trips of the method itself, without a handshake's."""
        return sum(isinstance(action, Send) for action in self.device)

    def rows(self, who: str) -> int:
        """Passes over a text in the cloud, by its own model or the edge's."""
        return sum(
            work.passes * work.rows for work in self.cloud if isinstance(work, Work) and work.who == who
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "device": [action_json(action) for action in self.device],
            "cloud": [action_json(action) for action in self.cloud],
            "right": [[list(ids), right] for ids, right in self.right.items()],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Exchange:
        return cls(
            data["method"],
            [action_of(each) for each in data["device"]],
            [action_of(each) for each in data["cloud"]],
            {tuple(ids): right for ids, right in data["right"]},
        )


class MethodBench:
    """A pipeline and the runtime of its device."""

    def __init__(self, pipeline: Pipeline, edge: EdgeRuntime, options: MethodOptions) -> None:
        self.pipeline, self.edge, self.options = pipeline, edge, options
        self.plan = pipeline.plan()

    def exchanges(self, item: Item) -> Iterator[Exchange]:
        """Every method on one question."""
        return AskedQuestion(self, item).exchanges()


class AskedQuestion:
    """One question to one pair: what the methods share, and each of them."""

    def __init__(self, bench: MethodBench, item: Item) -> None:
        self.item, self.options = item, bench.options
        self.pipeline, self.edge, self.plan = bench.pipeline, bench.edge, bench.plan
        self.contract = self.pipeline.form.contract
        self.tokenizer = self.pipeline.form.tokenizer
        self.prompt_ids = self.pipeline.form.ids(item.prompt)
        self.asked = len(item.prompt.encode())
        self.empty = AnchorSet.empty(self.plan.canvas, self.contract)
        self.read = Work(DEVICE, 1, len(self.prompt_ids))
        self.alone = self._filled(self.empty)

    def exchanges(self) -> Iterator[Exchange]:
        finished = self.denoised(rule_config(self.options.finish, self.plan))
        yield from self._whole(finished)
        for steps in self.options.shots:
            run = self.denoised(replace(commit_in_parallel(self.plan), steps=steps))
            yield self._one_shot(shot(steps), run, Selection())
            yield self._one_shot(early(steps), run, Selection(CONFIDENCE, EdgeAwareConfig(threshold=0.0)))
        yield self._refined()
        yield self.routed()
        yield self._verified()
        yield self._sketched(finished)
        yield self._exchange(ALONE, [self.read, self.alone], [])

    def denoised(self, config: Any) -> Denoised:
        (run,) = denoise(self.pipeline.model, [self.prompt_ids], config, guide=self.pipeline.guide)
        return run

    # What is sent.

    def _request(self, fields: Mapping[str, object] | None = None, accept: str = BINARY) -> Send:
        """The question; ours also names contract, codec and fraction of the steps, in the JSON of HTTP."""
        body = json.dumps({"prompt": self.item.prompt, **(fields or {})}).encode()
        return Send(self.asked, REQUEST, len(body) - self.asked, accept)

    def _ours(self, steps: Sequence[int], codec: Codec) -> dict[str, object]:
        shares = [round(step / self.plan.total_steps, 4) for step in steps]
        what = {"fraction": shares[0]} if len(shares) == 1 else {"fractions": shares}
        return {**what, "contract": self.contract.identity, "codec": codec.label}

    # What is shown.

    def _shown(self, ids: Sequence[int], costs: Sequence[int] | None = None, **how: bool) -> Write:
        """A text on the screen; without costs it is ready to be shown."""
        return Write(tuple(ids), tuple(costs or [0] * len(ids)), **how)

    def _filled(self, anchors: AnchorSet, **how: Any) -> Write:
        """The device's text with these anchors: a pass for every token of its own but the first, which comes
        of the prompt's pass.
        """
        options = FillOptions(score_anchors=False, max_tokens=self.plan.canvas, **how)
        tokens = list(fill(self.edge.engine, self.prompt_ids, anchors, options))
        return self._shown([token.id for token in tokens], _costs(tokens))

    def _exchange(self, method: str, device: Sequence[Action], cloud: Sequence[Action]) -> Exchange:
        texts = {action.ids for action in device if isinstance(action, Write) and action.whole}
        right = {ids: is_right(self.item, self.tokenizer.decode(list(ids))) for ids in texts}
        return Exchange(method, device, cloud, right)

    # The methods.

    def _whole(self, run: Denoised) -> Iterator[Exchange]:
        """(a) The cloud finishes and sends the answer."""
        answer = run.answer
        yield self._streamed(run)
        text = self.tokenizer.decode(answer).encode()
        codecs = text_codecs(self.item.prompt)
        work = Work(CLOUD, run.steps)
        for name, codec in (("gzip", "gzip"), ("zstd", "zstd-19, prompt as dictionary")):
            send = Send(len(codecs[codec](text)), RESPONSE)
            device: list[Action] = [self._request(), Receive(), self._shown(answer)]
            yield self._exchange(WHOLE[name], device, [Receive(), work, send])
        anchors = run.anchors(dict(enumerate(answer)), self.contract, len(answer))
        yield self._coded(WHOLE["coded"], PipelineResult(self.item.prompt, run, anchors, None))

    def _streamed(self, run: Denoised) -> Exchange:
        """The text as it becomes final: a diffusion model's, up to the first token that is still open."""
        answer = run.answer
        ready = _ready(run.when[: len(answer)])
        steps = sorted({*ready, run.steps})
        device: list[Action] = [self._request(accept=EVENTS)]
        cloud: list[Action] = [Receive()]
        before = shown = 0
        for step in steps:
            upto = sum(when <= step for when in ready)
            piece = b"".join(self.tokenizer.token_bytes(id_) for id_ in answer[shown:upto])
            event = len("data: \n\n") + len(json.dumps(piece.decode("utf-8", "replace"))) - len(piece)
            ends = step == steps[-1]
            first = before == 0
            cloud += [Work(CLOUD, step - before), Send(len(piece), PART, event, EVENTS, first, ends)]
            device += [Receive(), self._shown(answer[:upto], whole=ends)]
            before, shown = step, upto
        return self._exchange(WHOLE["text"], device, cloud)

    def _coded(self, method: str, result: PipelineResult) -> Exchange:
        """A payload of codec predictive: decoding it is a pass of the device for every token."""
        data, passes = self._predictive(result)
        tokens = list(self.edge.fill(self.edge.read(data, self.item.prompt)))
        costs = [int(index > 0) for index in range(len(tokens))]
        walked = result.walk.passes if result.walk else 0
        cloud: list[Action] = [Receive(), Work(CLOUD, result.run.steps), Work(EDGE, walked + passes)]
        request = self._request(self._ours([result.run.steps], Codec.PREDICTIVE))
        shown = self._shown([token.id for token in tokens], costs)
        device: list[Action] = [request, Receive(), self.read, shown]
        return self._exchange(method, device, [*cloud, Send(len(data), RESPONSE)])

    def _predictive(self, result: PipelineResult) -> tuple[bytes, int]:
        """The payload, and the passes of the edge model that writing it takes in the cloud."""
        stats = FillStats()
        predictor = self.edge.predictive_model.predictor(self.prompt_ids, stats)
        shared = Shared(self.contract, self.prompt_ids, self.tokenizer, predictor=predictor)
        data = encode(result.anchors, shared, Codec.PREDICTIVE, result.run.extras(), draft=result.draft)
        return data, stats.passes

    def _one_shot(self, method: str, run: Denoised, selection: Selection) -> Exchange:
        """(e) Ours: one payload, edge-aware; and the same draft sent whole."""
        (result,) = self.pipeline.select([self.item.prompt], [run], selection)
        return self._coded(method, result)

    def _refined(self) -> Exchange:
        """(e) Ours: the device writes at once, and corrects itself with every payload, of codec compact."""
        device: list[Action] = [self._request(self._ours(self.options.refine, Codec.COMPACT), EVENTS)]
        device += [self.read, replace(self.alone, yields=True)]
        cloud: list[Action] = [Receive()]
        done = 0
        runs = [
            self.denoised(replace(commit_in_parallel(self.plan), steps=steps))
            for steps in self.options.refine
        ]
        runs = [run for index, run in enumerate(runs) if not index or run.steps > runs[index - 1].steps]
        for run in runs:
            (result,) = self.pipeline.select([self.item.prompt], [run])
            data = len(self.pipeline.payload(result, Codec.COMPACT))
            event = len('event: payload\ndata: {"payload":"","delta":false}\n\n') + 4 * -(-data // 3) - data
            last = run is runs[-1]
            walked = result.walk.passes if result.walk else 0
            cloud += [Work(CLOUD, run.steps - done), Work(EDGE, walked)]
            cloud += [Send(data, PART, event, EVENTS, done == 0, last)]
            device += [Receive(), replace(self._filled(result.anchors), yields=not last)]
            done = run.steps
        return self._exchange(REFINED, device, cloud)

    def _cloud_tokens(self) -> DiffusionEngine:
        return DiffusionEngine(self.pipeline.masked_model, len(self.prompt_ids), self.plan.canvas)

    def routed(self) -> Exchange:
        """(b) The device writes, and asks for the tokens that it is unsure of."""

        def ask(text: Sequence[int]) -> int:
            engine = self._cloud_tokens()
            token: int = int(engine.append(text, [len(text) - 1])[0].argmax())
            answers.append(token)
            return token

        answers: list[int] = []
        found = route(
            self.edge.engine,
            ask,
            self.prompt_ids,
            self.contract.eos_ids,
            self.plan.canvas,
            self.options.confident,
        )
        device: list[Action] = [self.read]
        cloud: list[Action] = []
        known = 0
        costs = [int(index > 0) for index in range(len(found.ids))]
        for number, place in enumerate(found.asked):
            before = found.ids[:place]
            device += [
                self._shown(before, costs[:place], whole=False),
                self._question(before[known:], first=number == 0),
                Receive(),
            ]
            cloud += [Receive(), Work(CLOUD, 1), _ids_sent(answers[number : number + 1])]
            known = place + 1
        device.append(self._shown(found.ids, costs))
        return self._exchange(ROUTED, device, cloud)

    def _question(self, ids: Sequence[int], *, first: bool) -> Send:
        """Token ids to the cloud, with the question where it is the first time."""
        size = len(b"".join(map(varint, ids))) + (self.asked if first else 0)
        fields: dict[str, object] = {"prompt": self.item.prompt} if first else {"session": "0" * 16}
        return Send(size, REQUEST, len(json.dumps({**fields, "ids": list(ids)})) - size)

    def _verified(self) -> Exchange:
        """(c) The device drafts, the cloud takes what it would have written: speculative decoding over the
        network. The text is the cloud's own, token by token.
        """
        drafts: list[tuple[int, list[int]]] = []  # each with the length of the answer before it
        small = DraftModel(self.edge.engine)
        self.edge.engine.rewind(0)

        def draft(text: Sequence[int], wanted: int) -> list[int]:
            drafts.append((len(text) - len(self.prompt_ids), small(text, wanted)))
            return drafts[-1][1]

        ends, room = self.contract.eos_ids, self.plan.canvas
        ids = speculate(self._cloud_tokens(), self.prompt_ids, ends, room, draft, self.options.drafted).ids
        device: list[Action] = [self.read]
        cloud: list[Action] = []
        behind = [*(begin for begin, _ in drafts[1:]), len(ids)]
        for number, ((begin, drafted), end) in enumerate(zip(drafts, behind, strict=True)):
            cloud += [Receive(), Work(CLOUD, 1, rows=len(drafted) + 1)]
            # The number of tokens taken, and the one behind them.
            cloud.append(_ids_sent([end - begin, *ids[end - 1 : end]]))
            device += [
                Work(DEVICE, len(drafted)),
                self._question(drafted, first=number == 0),
                Receive(),
                self._shown(ids[:end], whole=end == len(ids) and number == len(drafts) - 1),
            ]
        return self._exchange(VERIFIED, device, cloud)

    def _sketched(self, run: Denoised) -> Exchange:
        """(d) The words that carry a fact as text; the device writes the rest around them."""
        words = sketch_words(self.tokenizer.decode(run.answer))
        squeeze = text_codecs(self.item.prompt)["zstd-19, prompt as dictionary"]
        data = squeeze("".join(words).encode())
        pieces = [self.tokenizer.encode(word) for word in words]
        ids, given = expand(
            self.edge.engine, pieces, self.prompt_ids, self.contract.eos_ids, self.plan.canvas
        )
        costs = [int(not sent and index > 0) for index, sent in enumerate(given)]
        cloud: list[Action] = [Receive(), Work(CLOUD, run.steps), Send(len(data), RESPONSE)]
        device: list[Action] = [self._request(), Receive(), self.read, self._shown(ids, costs)]
        return self._exchange(SKETCH, device, cloud)


def _ready(when: Sequence[int]) -> list[int]:
    """The step from which each token stands with all before it."""
    found: list[int] = []
    for step in when:
        found.append(max(step, found[-1] if found else 0))
    return found


def _costs(tokens: Sequence[Token]) -> list[int]:
    """Passes of the device by token: those of its own take one, but the first of them none, since the pass
    over the prompt gives it; anchors share the pass of the token before them.
    """
    own = [token.source is Source.FILL for token in tokens]
    return [int(mine and any(own[:index])) for index, mine in enumerate(own)]


def _ids_sent(ids: Sequence[int]) -> Send:
    size = len(b"".join(map(varint, ids)))
    return Send(size, RESPONSE, len(json.dumps({"ids": list(ids)})) - size)
