"""EdgeRuntime: one bundle, ready to turn payloads into text.

    edge = EdgeRuntime.open("bundles/qwen2.5-0.5b")
    answer = edge.fill(edge.read(data))
    for token in answer:
        ...
    print(answer.stats)

Responsible for joining prompt, payload, tokenizer and engine. Not responsible for files, terminals or
networks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.engine.base import Engine
from edge_runtime.engine.genai_engine import GenaiEngine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.engine.prepack import PrepackCache
from edge_runtime.engine.profiles import ENGINES, GENAI, LATENCY, ORT, EngineSettings
from edge_runtime.errors import UsageError
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from edge_runtime.predictor import PredictiveModel
from edge_runtime.system import performance_cores
from edge_runtime.text.chat import Prompt, as_messages
from edge_runtime.text.tokenizer import TextStream
from payload import AnchorSet, Codec, DecodedToken, Decoding, Header, Shared, decode, doubt, peek
from payload.anchors import MAX_CANVAS
from payload.errors import PromptRequiredError

Schema = Grammar | Mapping[str, Any]
"""What an answer is a sentence of; a mapping is a JSON Schema."""

MOST_GRAMMARS = 16
"""Compiled grammars that a runtime keeps."""

HEAD_START = 0.03
"""Seconds that `EdgeRuntime.preload` waits before it returns."""


@dataclass(frozen=True)
class FillRequest:
    """A payload that has been read: the ids of its prompt in the chat template, and its anchors.

    tokens: of a predictive payload, the answer's tokens that reading it has found already;
    stats:  the cost of finding them.
    doubt:  of the diffusion model, where the payload carries it; see `Answer.doubt`.
    """

    prompt_ids: list[int]
    anchors: AnchorSet
    tokens: Sequence[Token] = ()
    stats: FillStats | None = None
    doubt: float | None = None


class EdgeRuntime:
    """One bundle and its engine, which is loaded on first use and kept.

    Answers are decoded one after the other; each reuses the part of the prompt that it shares with the one
    before.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        cache: PrepackCache | None = None,
        engine: str = ORT,
        **settings: Unpack[EngineSettings],
    ) -> None:
        if engine not in ENGINES:
            raise UsageError(f"engine: expected one of {', '.join(ENGINES)}, found {engine!r}")
        if engine == GENAI and settings.get("deterministic"):
            raise UsageError(f"deterministic: expected engine {ORT}, found {GENAI}, which has no such mode")
        self.bundle = bundle
        self.engine_name = engine
        self._cache = cache
        threads = settings.get("threads")
        self.threads = performance_cores() if threads is None else threads
        self._settings: EngineSettings = {**settings, "threads": self.threads}
        self._loading: Future[Engine] | None = None
        self._grammars: dict[Grammar, CompiledGrammar] = {}

    @classmethod
    def open(
        cls,
        path: str | Path,
        variant: str | None = None,
        *,
        verify: bool = True,
        prepack: bool = True,
        engine: str = ORT,
        **settings: Unpack[EngineSettings],
    ) -> EdgeRuntime:
        """Opens a bundle folder; for other arguments and errors see `Bundle.open` and `OrtEngine.open`.

        prepack: keep the weights of large models in this processor's order in the user's cache folder. Files
                 verified when that was done are verified again only where their size or time has changed.
        engine:  "onnxruntime", or "onnxruntime-genai" for applications that ship that library. The latter
                 ignores prepack and the profile's memory settings. Predictive payloads are always decoded
                 with onnxruntime: they need the writer's exact numerics.
        """
        bundle = Bundle.open(path, variant, verify=False)
        cache = PrepackCache(bundle) if prepack and engine == ORT else None
        if cache and not cache.worthwhile():
            cache = None
        if not (cache and cache.verified()):
            if verify:
                bundle.verify()
            else:
                cache = None  # nothing is kept of files that were not verified
        return cls(bundle, cache=cache, engine=engine, **settings)

    @cached_property
    def engine(self) -> Engine:
        """The engine, loaded where it is not yet. Raises ContextError or EngineError."""
        return self._loading.result() if self._loading else self._load()

    def _load(self) -> Engine:
        if self.engine_name == GENAI:
            return GenaiEngine.open(self.bundle, context=self._settings.get("context"), threads=self.threads)
        return OrtEngine.open(self.bundle, cache=self._cache, **self._settings)

    def preload(self) -> None:
        """Begins to load the model in a thread. Its errors are raised by `engine`."""
        if self._loading is None and "engine" not in vars(self):
            pool = ThreadPoolExecutor(1, "engine")
            self._loading = pool.submit(self._load)
            pool.shutdown(wait=False)
            # ONNX Runtime needs the interpreter for its first milliseconds; reading a tokenizer holds it for
            # hundreds.
            wait([self._loading], HEAD_START)

    @cached_property
    def predictive_model(self) -> PredictiveModel:
        """The model with float32 activations, with which predictive payloads are written and read."""
        return PredictiveModel(self.bundle, context=self._settings.get("context"), threads=self.threads)

    def options(
        self,
        *,
        max_tokens: int | None = None,
        score_anchors: bool = True,
        grammar: Grammar | None = None,
    ) -> FillOptions:
        """Options within the limits of this runtime's profile.

        grammar: what the answer is to be a sentence of; see `compiled`. A predictive payload is read first
                 then, one pass per position.
        """
        profile = self._settings.get("profile", LATENCY)
        return FillOptions(
            max_tokens=max_tokens,
            score_anchors=score_anchors,
            max_chunk=profile.max_chunk,
            max_rows=profile.max_rows,
            grammar=None if grammar is None else self.compiled(grammar),
        )

    def constrained(self, options: FillOptions | None, schema: Schema | None) -> FillOptions | None:
        """The options, for an answer that is a sentence of `schema`; the same where that is None."""
        if schema is None:
            return options
        grammar = schema if isinstance(schema, Grammar) else Grammar.json_schema(schema)
        return replace(options or FillOptions(), grammar=self.compiled(grammar))

    def compiled(self, grammar: Grammar) -> CompiledGrammar:
        """A grammar for this bundle's vocabulary, for `FillOptions.grammar`; kept for further answers.

        Raises GrammarError.
        """
        if grammar not in self._grammars:
            if len(self._grammars) == MOST_GRAMMARS:
                del self._grammars[next(iter(self._grammars))]
            self._grammars[grammar] = CompiledGrammar(grammar, self.grammar_vocabulary)
        return self._grammars[grammar]

    @cached_property
    def grammar_vocabulary(self) -> GrammarVocabulary:
        """This bundle's tokens for grammars, made on first use."""
        return GrammarVocabulary(self.bundle.tokenizer, self.bundle.contract)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Ids of a question or conversation in the chat template, up to where the answer begins."""
        return self.bundle.form.ids(prompt)

    def question_context(self, predictive: bool = True) -> Shared:
        """What both sides of a question frame hold (see `links.frames.encode_question`).

        predictive: with the model behind the chat template's opening, to write or read its text predictively.
        Its passes use the runtime's engine with float32 activations: one frame at a time.
        """
        bundle = self.bundle
        predictor = self.predictive_model.predictor(bundle.form.opening) if predictive else None
        return Shared(bundle.contract, tokens=bundle.tokenizer, predictor=predictor)

    @property
    def no_anchors(self) -> AnchorSet:
        """An empty set, for an answer of the device alone."""
        return AnchorSet.empty(min(self.engine.context, MAX_CANVAS), self.bundle.contract)

    def read(self, data: bytes | Header, prompt: Prompt | None = None) -> FillRequest:
        """Decodes a payload, of which the header may be read already.

        prompt: the question as text, or the conversation, where the payload does not carry it. Raises
        UsageError where it is missing or differs from the payload's, and `payload.PayloadError` for a payload
        that cannot be used; FingerprintError means that one of codec compact for the same anchors could be.

        A predictive payload is decoded with the model, one pass per position: its tokens are known then, and
        `fill` runs no pass for them. See `stream` for its tokens while they are found.
        """
        header = peek(data)
        unsure = doubt(header.extras.confidence)
        if header.codec is Codec.PREDICTIVE:
            stats = FillStats()
            decoding, ids = self._decoding(header, prompt, stats)
            tokens = [_token(step) for step in _timed(decoding, stats)]
            return FillRequest(ids, decoding.anchors, tokens, stats, unsure)
        ids = self.prompt_ids(self._prompt_of(header, prompt))
        return FillRequest(
            ids, decode(header, Shared(self.bundle.contract, ids, self.bundle.tokenizer)), doubt=unsure
        )

    def fill(self, request: FillRequest, options: FillOptions | None = None) -> Answer[Token]:
        """The answer to a payload that has been read. Raises what `forced.fill` does."""
        if request.stats is None or _decides(options):
            stats = FillStats() if request.stats is None else replace(request.stats)
            tokens = fill(self.engine, request.prompt_ids, request.anchors, options, stats)
        else:
            stats = replace(request.stats)
            tokens = self._continued(
                request.tokens, request.prompt_ids, lambda: request.anchors, options, stats
            )
        return Answer(tokens, request.prompt_ids, lambda: request.anchors, stats, doubt=request.doubt)

    def stream(
        self, data: bytes, prompt: Prompt | None = None, options: FillOptions | None = None
    ) -> Answer[Token]:
        """The answer to a payload's bytes; tokens of a predictive payload come while it is decoded.

        A predictive payload is checked at its end: where FingerprintError is raised, the tokens so far are
        wrong. Otherwise raises what `read` and `fill` do.
        """
        header = peek(data)
        if header.codec is not Codec.PREDICTIVE or _decides(options):
            return self.fill(self.read(header, prompt), options)
        stats = FillStats()
        decoding, ids = self._decoding(header, prompt, stats)
        found = map(_token, _timed(decoding, stats))
        tokens = self._continued(found, ids, lambda: decoding.anchors, options, stats)
        unsure = doubt(header.extras.confidence)
        return Answer(tokens, ids, lambda: decoding.anchors, stats, doubt=unsure)

    def _prompt_of(self, header: Header, prompt: Prompt | None) -> Prompt:
        """The prompt of a payload: the one given, or the one that it carries."""
        carried = header.extras.prompt
        found = carried if prompt is None else prompt
        if found is None:
            # A payload that cannot be used at all is refused for that, not for its prompt.
            if header.codec is not Codec.PREDICTIVE:
                with suppress(PromptRequiredError):
                    decode(header, Shared(self.bundle.contract, None, self.bundle.tokenizer))
            raise UsageError("the payload does not carry its prompt: give it with --prompt or --messages")
        if carried is not None and as_messages(carried) != as_messages(found):
            raise UsageError(
                f"the payload carries another prompt ({carried!r:.60}) "
                f"than the one given ({prompt!r:.60}): leave the prompt out, or ask for another payload"
            )
        return found

    def _decoding(
        self, header: Header, prompt: Prompt | None, stats: FillStats
    ) -> tuple[Decoding, list[int]]:
        """The decoding of a predictive payload, and the ids of its prompt."""
        ids = self.prompt_ids(self._prompt_of(header, prompt))
        predictor = self.predictive_model.predictor(ids, stats)
        return Decoding(header, Shared(self.bundle.contract, predictor=predictor)), ids

    def _continued(
        self,
        found: Iterable[Token],
        prompt_ids: list[int],
        anchors: Callable[[], AnchorSet],
        options: FillOptions | None,
        stats: FillStats,
    ) -> Generator[Token]:
        """The tokens of a predictive payload, and what the same model generates after them."""
        options = options or FillOptions()
        if options.echo_prompt:
            for index, id_ in enumerate(prompt_ids):
                yield Token(id_, index - len(prompt_ids), Source.PROMPT, None)
        answered = []
        for token in found:
            answered.append(token.id)
            if options.max_tokens is None or len(answered) <= options.max_tokens:
                yield token
        rest = replace(options, echo_prompt=False)
        yield from fill(self.predictive_model.engine, prompt_ids, anchors(), rest, stats, answered=answered)

    def text_stream(self) -> TextStream:
        """A decoder from this bundle's token ids to text."""
        return TextStream(self.bundle.tokenizer)


def _decides(options: FillOptions | None) -> bool:
    """Whether the answer may have other tokens than those that a predictive payload decodes to."""
    return options is not None and options.grammar is not None


def _token(step: DecodedToken) -> Token:
    return Token(step.id, step.position, Source.ANCHOR if step.anchor else Source.FILL, step.logprob)


def _timed(steps: Iterable[DecodedToken], stats: FillStats) -> Iterator[DecodedToken]:
    """The same steps; times the first one, and the rest."""
    started = time.perf_counter()
    for step in steps:
        stats.prefill = stats.prefill or time.perf_counter() - started
        yield step
    stats.fill = time.perf_counter() - started - stats.prefill
