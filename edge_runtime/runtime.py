"""A loaded bundle, ready to turn payloads into text: the edge in one object.

    edge = EdgeRuntime.open("bundles/qwen2.5-0.5b")
    for token in edge.fill(edge.read(data)):
        ...

Knows how prompt, payload, tokenizer and engine come together. Does not know files, terminals or networks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Unpack

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.decode.speculate import Speculator, chunk_costs
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.engine.prepack import PrepackCache
from edge_runtime.engine.profiles import LATENCY, EngineSettings
from edge_runtime.errors import UsageError
from edge_runtime.predictor import PredictiveModel
from edge_runtime.system import performance_cores
from edge_runtime.text.tokenizer import TextStream
from payload import AnchorSet, Codec, Decoding, Shared, Step, decode, peek
from payload.errors import PromptRequiredError

HEAD_START = 0.03
"""Seconds that `EdgeRuntime.preload` waits before it returns."""


@dataclass(frozen=True)
class FillRequest:
    """A payload that has been read: the ids of its prompt in the chat template, and its anchors.

    walked: of codec predictive, the tokens that were found while reading, one pass of the model each;
    reading: what these passes cost.
    """

    prompt_ids: list[int]
    anchors: AnchorSet
    walked: Sequence[Token] = ()
    reading: FillStats | None = None


class EdgeRuntime:
    """One bundle and its engine, which is loaded when it is first needed and then used again.

    Requests run one after the other; a later one starts where its prompt leaves the one before.
    """

    def __init__(
        self, bundle: Bundle, *, cache: PrepackCache | None = None, **settings: Unpack[EngineSettings]
    ) -> None:
        self.bundle = bundle
        self._cache = cache
        threads = settings.get("threads")
        self.threads = performance_cores() if threads is None else threads
        self._settings: EngineSettings = {**settings, "threads": self.threads}
        self._loading: Future[Engine] | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        variant: str | None = None,
        *,
        verify: bool = True,
        prepack: bool = True,
        **settings: Unpack[EngineSettings],
    ) -> EdgeRuntime:
        """Opens a bundle folder; see `Bundle.open` and `OrtEngine.open` for the arguments and errors.

        prepack: keep the weights of large models in this processor's order in the user's cache folder. Files
        verified when that was done are verified again only where their size or time has changed.
        """
        bundle = Bundle.open(path, variant, verify=False)
        cache = PrepackCache(bundle) if prepack else None
        if cache and not cache.worthwhile():
            cache = None
        if not (cache and cache.verified()):
            if verify:
                bundle.verify()
            else:
                cache = None  # nothing is kept of files that were not verified
        return cls(bundle, cache=cache, **settings)

    @cached_property
    def engine(self) -> Engine:
        return self._loading.result() if self._loading else self._load()

    def _load(self) -> Engine:
        return OrtEngine.open(self.bundle, cache=self._cache, **self._settings)

    def preload(self) -> None:
        """Starts to load the model beside what the caller does next. Its errors come from `engine`."""
        if self._loading is None and "engine" not in vars(self):
            pool = ThreadPoolExecutor(1, "engine")
            self._loading = pool.submit(self._load)
            pool.shutdown(wait=False)
            # ONNX Runtime needs the interpreter for its first milliseconds; reading a tokenizer holds it for
            # hundreds.
            wait([self._loading], HEAD_START)

    @cached_property
    def predictive_model(self) -> PredictiveModel:
        """The unrounded model that predictive payloads are written and read with."""
        return PredictiveModel(self.bundle, context=self._settings.get("context"), threads=self.threads)

    def options(
        self,
        *,
        max_tokens: int | None = None,
        score_anchors: bool = True,
        speculate: str = "auto",
        lookahead: int = 0,
    ) -> FillOptions:
        """Options within the bounds of this runtime's profile; speculate: see `speculator`."""
        profile = self._settings.get("profile", LATENCY)
        return FillOptions(
            max_tokens=max_tokens,
            score_anchors=score_anchors,
            max_chunk=profile.max_chunk,
            max_rows=profile.max_rows,
            drafter=self.speculator(speculate),
            lookahead=lookahead,
        )

    def speculator(self, mode: str = "auto") -> Speculator | None:
        """A guesser for gap tokens, for `FillOptions.drafter`.

        "auto": where this processor's costs are kept with its prepacked weights; they are measured, in a
        second, when there are none yet. "on": always. "off": never, and never where deterministic: how many
        guesses are made depends on measured times.
        """
        if (
            mode == "off"
            or self._settings.get("deterministic")
            or (mode == "auto" and not (self._cache and self._cache.verified()))
        ):
            return None
        costs = self._cache.costs(self.threads) if self._cache else None
        if costs is None:
            costs = chunk_costs(self.engine)
            if self._cache:
                self._cache.keep_costs(self.threads, costs)
        return Speculator(costs)

    def prompt_ids(self, prompt: str) -> list[int]:
        """Ids of a user's prompt in the chat template, up to where the answer begins."""
        return self.bundle.tokenizer.encode(self.bundle.template.render_prompt(prompt))

    def read(self, data: bytes, prompt: str | None = None) -> FillRequest:
        """The request in a payload's bytes.

        prompt: the user's prompt as text, where the payload does not carry it. Raises UsageError where it is
        missing or another than the payload's, and `payload.PayloadError` for a payload that cannot be used:
        RankingError says that one of codec compact for the same anchors could be.

        A predictive payload is read with the model, a pass a position: its tokens are then known already, and
        `fill` makes no pass for them. See `stream` for its tokens as they come.
        """
        if peek(data).codec is Codec.PREDICTIVE:
            stats = FillStats()
            decoding, ids = self._decoding(data, prompt, stats)
            walked = [_token(step) for step in _timed(decoding, stats)]
            return FillRequest(ids, decoding.anchors, walked, stats)
        ids = self.prompt_ids(self._prompt_of(data, prompt))
        return FillRequest(ids, decode(data, self._shared(ids)))

    def stream(
        self,
        data: bytes,
        prompt: str | None = None,
        options: FillOptions | None = None,
        stats: FillStats | None = None,
    ) -> Generator[Token]:
        """Streams an answer's tokens from a payload's bytes; those of codec predictive while it is read.

        Whether a predictive payload was read right is known at its end only: where RankingError is raised,
        the tokens given so far are to be taken back. Raises what `read` does, after the first is asked for.
        """
        if peek(data).codec is not Codec.PREDICTIVE:
            yield from self.fill(self.read(data, prompt), options, stats)
            return
        stats = stats if stats is not None else FillStats()
        decoding, ids = self._decoding(data, prompt, stats)
        walked = map(_token, _timed(decoding, stats))
        yield from self._go_on(walked, ids, lambda: decoding.anchors, options, stats)

    def _prompt_of(self, data: bytes, prompt: str | None) -> str:
        """The prompt of a payload, as text."""
        header = peek(data)
        carried = header.extras.prompt
        text = carried if prompt is None else prompt
        if text is None:
            # A payload that cannot be used at all is refused for that, not for its prompt.
            if header.codec is not Codec.PREDICTIVE:
                with suppress(PromptRequiredError):
                    decode(data, self._shared())
            raise UsageError("the payload does not carry its prompt: give it with --prompt or --prompt-file")
        if carried not in (None, text):
            raise UsageError(
                f"the payload carries another prompt ({carried!r:.60}) "
                f"than the one given ({prompt!r:.60}): leave the prompt out, or ask for another payload"
            )
        return text

    def _decoding(self, data: bytes, prompt: str | None, stats: FillStats) -> tuple[Decoding, list[int]]:
        """A predictive payload on its way, and the ids of its prompt."""
        ids = self.prompt_ids(self._prompt_of(data, prompt))
        predictor = self.predictive_model.behind(ids, stats)
        return Decoding(data, Shared(self.bundle.contract, predictor=predictor)), ids

    def _shared(self, prompt_ids: list[int] | None = None) -> Shared:
        """What this device and the payload's writer both hold."""
        return Shared(self.bundle.contract, prompt_ids, self.bundle.tokenizer)

    def fill(
        self, request: FillRequest, options: FillOptions | None = None, stats: FillStats | None = None
    ) -> Iterator[Token]:
        """Streams the answer's tokens; see `forced.fill`."""
        if request.reading is None:
            return fill(self.engine, request.prompt_ids, request.anchors, options, stats)
        if stats is None:
            stats = FillStats()
        stats.passes += request.reading.passes
        stats.computed += request.reading.computed
        stats.prefill += request.reading.prefill
        stats.fill += request.reading.fill
        return self._go_on(request.walked, request.prompt_ids, lambda: request.anchors, options, stats)

    def _go_on(
        self,
        walked: Iterable[Token],
        prompt_ids: list[int],
        anchors: Callable[[], AnchorSet],
        options: FillOptions | None,
        stats: FillStats,
    ) -> Generator[Token]:
        """What is found while a predictive payload is read, and what the same model writes behind it."""
        options = options or FillOptions()
        if options.echo_prompt:
            for index, id_ in enumerate(prompt_ids):
                yield Token(id_, index - len(prompt_ids), Source.PROMPT, None)
        answered = []
        for token in walked:
            answered.append(token.id)
            if options.max_tokens is None or len(answered) <= options.max_tokens:
                yield token
        rest = replace(options, echo_prompt=False)
        yield from fill(self.predictive_model.engine, prompt_ids, anchors(), rest, stats, answered=answered)

    def text_stream(self) -> TextStream:
        """A decoder from this bundle's token ids to text."""
        return TextStream(self.bundle.tokenizer)


def _token(step: Step) -> Token:
    return Token(step.id, step.position, Source.ANCHOR if step.anchor else Source.FILL, step.logprob)


def _timed(steps: Iterable[Step], stats: FillStats) -> Iterator[Step]:
    """The same steps; notes when the first one came, and the last."""
    started = time.perf_counter()
    for step in steps:
        stats.prefill = stats.prefill or time.perf_counter() - started
        yield step
    stats.fill = time.perf_counter() - started - stats.prefill
