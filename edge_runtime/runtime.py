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
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from threading import RLock
from typing import Any

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.decisions import Calibration, Decider, Decision, Scores, decide, read_scores
from edge_runtime.decode.answer import Answer
from edge_runtime.decode.forced import FillOptions, FillStats, Source, Token, fill
from edge_runtime.engine.base import Engine
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.engine.prepack import PrepackCache
from edge_runtime.engine.shared import MAX_BYTES, SharedModel
from edge_runtime.errors import UsageError
from edge_runtime.form import Form
from edge_runtime.grammar.grammar import Grammar
from edge_runtime.grammar.matcher import CompiledGrammar, GrammarVocabulary
from edge_runtime.predictor import EnginePredictor
from edge_runtime.system import performance_cores
from edge_runtime.text.chat import Prompt, as_messages
from edge_runtime.text.tokenizer import TextStream
from payload import AnchorSet, Codec, Decoding, Header, Shared, decode, doubt, peek
from payload.anchors import MAX_CANVAS
from payload.errors import PromptRequiredError

Schema = Grammar | Mapping[str, Any]
"""What an answer is a sentence of; a mapping is a JSON Schema."""

MOST_GRAMMARS, MOST_FORMS = 16, 64
"""Compiled grammars, and forms' scores of an empty text, that a runtime keeps."""

HEAD_START = 0.03
"""Seconds that `EdgeRuntime.preload` waits before it returns."""


@dataclass(frozen=True)
class FillRequest:
    """A payload that has been read: the ids of its prompt in the chat template, and its anchors.

    tokens: of a predictive payload, the answer's tokens that reading it has found already;
    stats:  the cost of finding them.
    doubt:  of the diffusion model, where the payload carries it; see `Answer.doubt`.
    portable: the payload is for the model's portable graph.
    """

    prompt_ids: list[int]
    anchors: AnchorSet
    tokens: Sequence[Token] = ()
    stats: FillStats | None = None
    doubt: float | None = None
    portable: bool = False


class EdgeRuntime:
    """One bundle and its model, which is loaded on first use and kept.

    It takes any number of callers, from threads, tasks and answers that are half read, and each gets the text
    that it would get alone: answers have caches of their own, and their passes take turns in the order in
    which they are asked for. An answer reuses what an earlier one has read of its prompt.

    engine:  used in place of an `OrtEngine` of the bundle, such as a `GenaiEngine`. Predictive payloads are
             always decoded with ONNX Runtime: they need the writer's exact numerics.
    context: most tokens of prompt and answer; None for the bundle's context.
    threads: None for one per fast core; shared by the passes that run at once.
    engines: number of passes that may run at once.
    waiting: bytes of caches that are kept of earlier answers.
    """

    def __init__(
        self,
        bundle: Bundle,
        engine: Engine | None = None,
        *,
        context: int | None = None,
        threads: int | None = None,
        engines: int = 1,
        waiting: int = MAX_BYTES,
        cache: PrepackCache | None = None,
    ) -> None:
        if engines < 1:
            raise UsageError(f"engines: expected at least 1, found {engines}")
        self.bundle = bundle
        self.context = context
        self.threads = max(1, (performance_cores() if threads is None else threads) // engines)
        self.predictive_identity = bundle.manifest.fingerprint(bundle.variant_name)
        self._share = partial(SharedModel, concurrent=engines, most=waiting)
        self._cache = cache
        self._lock = RLock()
        self._loading: Future[Engine] | None = None
        self._model: SharedModel | None = None
        self._predictive: SharedModel | None = None
        self._compiled = lru_cache(MOST_GRAMMARS)(
            lambda grammar: CompiledGrammar(grammar, self.grammar_vocabulary)
        )
        self._prior = lru_cache(MOST_FORMS)(lambda form: self.scores(form, form.question("")))
        if engine is not None:
            self._model = self._share(engine)

    @classmethod
    def open(
        cls,
        path: str | Path,
        variant: str | None = None,
        *,
        context: int | None = None,
        threads: int | None = None,
        engines: int = 1,
        waiting: int = MAX_BYTES,
        prepack: bool = True,
    ) -> EdgeRuntime:
        """Opens a bundle folder and verifies its files; raises what `Bundle.open` does.

        engines, waiting: see the class.
        prepack: keep the weights of large models in this processor's order in the user's cache folder. Files
                 verified when that was done are verified again only where their size or time has changed.
        """
        bundle = Bundle.open(path, variant, verify=False)
        cache = PrepackCache(bundle) if prepack else None
        if cache and not cache.worthwhile():
            cache = None
        if not (cache and cache.verified()):
            bundle.verify()
        return cls(bundle, context=context, threads=threads, engines=engines, waiting=waiting, cache=cache)

    @property
    def model(self) -> SharedModel:
        """The model, loaded where it is not yet. Raises ContextError or EngineError."""
        with self._lock:
            if self._model is None:
                self._model = self._share(self._loading.result() if self._loading else self._load())
            return self._model

    @property
    def engine(self) -> Engine:
        """The engine that was loaded, to be measured; answers are decoded by engines leased from `model`."""
        return self.model.engine

    def _load(self, portable: bool = False) -> Engine:
        return OrtEngine.open(
            self.bundle,
            context=self.context,
            threads=self.threads,
            cache=self._cache,
            portable=portable,
        )

    def preload(self) -> None:
        """Begins to load the model in a thread. Its errors are raised by `model`."""
        with self._lock:
            if self._loading is not None or self._model is not None:
                return
            pool = ThreadPoolExecutor(1, "engine")
            self._loading = pool.submit(self._load)
            pool.shutdown(wait=False)
        # ONNX Runtime needs the interpreter for its first milliseconds; reading a tokenizer holds it for
        # hundreds.
        wait([self._loading], HEAD_START)

    @property
    def predictive_model(self) -> SharedModel:
        """The model of the portable graph: of payloads that are bound to a model. Raises BundleFileError."""
        with self._lock:
            if self._predictive is None:
                self._predictive = self._share(self._load(portable=True))
            return self._predictive

    def model_of(self, request: FillRequest) -> SharedModel:
        """The model that a payload is for."""
        return self.predictive_model if request.portable else self.model

    def predictor(self, prompt_ids: Sequence[int], stats: FillStats | None = None) -> EnginePredictor:
        """The predictor of answers to a prompt, for codec predictive."""
        return EnginePredictor(
            self.predictive_model, prompt_ids, self.bundle.contract, self.predictive_identity, stats
        )

    def decide(
        self,
        text: str,
        form: Form,
        calibration: Sequence[Calibration] | None = None,
        cloud: Decider | None = None,
        theirs: Sequence[Calibration] | None = None,
    ) -> Decision:
        """The answers to a form's questions about a text, read in place of written (see `decisions.decide`).

        calibration, theirs: of each question, the device's and the cloud's; None for none. Raises
        ContextError where the text does not fit, EngineError, and CloudFailureError.
        """
        hows = calibration or [Calibration()] * len(form.slots)
        return decide(text, form, self.read_form(form, text), hows, cloud, theirs)

    def scores(self, form: Form, prompt: str) -> list[Scores]:
        """The scores of a form's options behind a prompt (see `decisions.read_scores`)."""
        return read_scores(self.model, self.bundle.form, form, prompt)

    def read_form(self, form: Form, text: str) -> list[Scores]:
        """The scores of a form's options about a text, less those about an empty one, which are kept."""
        found = self.scores(form, form.question(text))
        return [read - before for read, before in zip(found, self._prior(form), strict=True)]

    def constrained(self, options: FillOptions | None, schema: Schema | None) -> FillOptions:
        """The options, for an answer that is a sentence of `schema` where that is given.

        A predictive payload is read first then, one pass per position. Raises GrammarError.
        """
        options = options or FillOptions()
        if schema is None:
            return options
        grammar = schema if isinstance(schema, Grammar) else Grammar.json_schema(schema)
        return replace(options, grammar=self._compiled(grammar))

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
        """
        bundle = self.bundle
        predictor = self.predictor(bundle.form.opening) if predictive else None
        return Shared(bundle.contract, tokens=bundle.tokenizer, predictor=predictor)

    @property
    def no_anchors(self) -> AnchorSet:
        """An empty set, for an answer of the device alone."""
        return AnchorSet.empty(min(self.model.context, MAX_CANVAS), self.bundle.contract)

    def read(self, data: bytes | Header, prompt: Prompt | None = None) -> FillRequest:
        """Decodes a payload, of which the header may be read already.

        prompt: the question as text, or the conversation, where the payload does not carry it. Raises
        UsageError where it is missing or differs from the payload's, and `payload.PayloadError` for a payload
        that cannot be used; FingerprintError means that one of codec compact for the same anchors could be.

        A predictive payload is decoded with the model, one pass per position: its tokens are known then, and
        `fill` runs no pass for them.
        """
        header = peek(data)
        ids = self.prompt_ids(self._prompt_of(header, prompt))
        unsure = doubt(header.extras.confidence)
        if header.codec is not Codec.PREDICTIVE:
            bound = self.predictor(ids) if header.codec.bound else None
            anchors = decode(header, Shared(self.bundle.contract, ids, self.bundle.tokenizer, None, bound))
            return FillRequest(ids, anchors, doubt=unsure, portable=header.codec.bound)
        stats, tokens, started = FillStats(), [], time.perf_counter()
        predictor = self.predictor(ids, stats)
        decoding = Decoding(header, Shared(self.bundle.contract, predictor=predictor))
        for step in decoding:
            stats.prefill = stats.prefill or time.perf_counter() - started
            source = Source.ANCHOR if step.anchor else Source.FILL
            tokens.append(Token(step.id, step.position, source, step.logprob))
        stats.fill = time.perf_counter() - started - stats.prefill
        return FillRequest(ids, decoding.anchors, tokens, stats, unsure, portable=True)

    def fill(self, request: FillRequest, options: FillOptions | None = None) -> Answer[Token]:
        """The answer to a payload that has been read. Raises what `forced.fill` does."""
        options = options or FillOptions()
        stats = replace(request.stats) if request.stats else FillStats()
        if request.stats is None or options.grammar:
            tokens = fill(self.model_of(request), request.prompt_ids, request.anchors, options, stats)
        else:
            tokens = self._continued(request, options, stats)
        ids, anchors, limit = request.prompt_ids, request.anchors, self.bundle.manifest.not_sure_from
        return Answer(tokens, ids, lambda: anchors, stats, doubt=request.doubt, not_sure_from=limit)

    def _continued(self, request: FillRequest, options: FillOptions, stats: FillStats) -> Generator[Token]:
        """The tokens of a predictive payload, and what the same model generates after them."""
        yield from request.tokens[: options.max_tokens]
        model, answered = self.predictive_model, [token.id for token in request.tokens]
        yield from fill(model, request.prompt_ids, request.anchors, options, stats, answered=answered)

    def _prompt_of(self, header: Header, prompt: Prompt | None) -> Prompt:
        """The prompt of a payload: the one given, or the one that it carries."""
        carried = header.extras.prompt
        found = carried if prompt is None else prompt
        if found is None:
            # A payload that cannot be used at all is refused for that, not for its prompt.
            if not header.codec.bound:
                with suppress(PromptRequiredError):
                    decode(header, Shared(self.bundle.contract, None, self.bundle.tokenizer))
            raise UsageError("the payload does not carry its prompt: give it with --prompt or --messages")
        if carried is not None and as_messages(carried) != as_messages(found):
            raise UsageError(
                f"the payload carries another prompt ({carried!r:.60}) "
                f"than the one given ({prompt!r:.60}): leave the prompt out, or ask for another payload"
            )
        return found

    def text_stream(self) -> TextStream:
        """A decoder from this bundle's token ids to text."""
        return TextStream(self.bundle.tokenizer)
