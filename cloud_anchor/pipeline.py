"""The cloud side as one object: from prompts to payloads, with models that stay loaded.

    pipeline = Pipeline.open("testbed")
    (result,) = pipeline.make(["Where does the river end?"], DenoiseConfig(canvas=128, steps=12))
    data = pipeline.payload(result)

Responsible for combining prompt form, sampler, translation, selection and codec. Not responsible for files,
terminals or networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cloud_anchor.errors import RequestError, require
from cloud_anchor.model.chat import ChatForm, ChatModel
from cloud_anchor.sampling.config import DEFAULT_PLAN, DenoiseConfig, resolve_commit
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.protocol import DiffusionModel, MaskedModel, OwnSampler
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeWalk, edge_aware, within_bytes
from cloud_anchor.selection.scorer import Scorer
from cloud_anchor.selection.select import PAPER, Selection, require_anchors, select
from cloud_anchor.selection.translate import TranslatedRun, Translation
from cloud_anchor.shipped import PAIRS
from common.progress import Progress, Silent
from edge_runtime.bundle.bundle import MANIFEST, Bundle
from edge_runtime.bundle.manifest import PORTABLE_GUARD
from edge_runtime.client.chat_server import PREFIX, ChatServer
from edge_runtime.runtime import EdgeRuntime
from edge_runtime.text.chat import Prompt
from edge_runtime.text.prompt_form import PromptForm
from payload import AUTO, AnchorSet, Codec, Shared, encode

_PREPACKED = 3
"""Bytes in memory a byte of an edge bundle's variant: its file, and its weights prepacked."""


@dataclass(frozen=True)
class PipelineResult:
    """One prompt with its run, the selected anchors, and the edge model's walk of an edge-aware selection.

    bound: that walk is of the edge model's portable graph, so other graphs would write another text.
    """

    prompt: Prompt
    run: Denoised
    anchors: AnchorSet
    walk: EdgeWalk | None
    bound: bool = False

    @property
    def draft(self) -> Sequence[int]:
        """The text that the device is expected to write."""
        return self.walk.text if self.walk else self.run.predicted_answer


class Pipeline:
    """A diffusion model, its prompt form, and the edge model that its payloads are for, where that is known.

    form: of payloads: contract, tokenizer and template of the edge model where that is known. The diffusion
    model has the same, unless its vocabulary is another: then runs are translated before selection, and what
    the diffusion model reads is `model_form`.
    edge: the edge model as devices run it: `scorer` asks its engine, codecs that are bound to a model that of
    its portable graph.
    """

    def __init__(
        self,
        model: DiffusionModel,
        form: PromptForm,
        edge: EdgeRuntime | None = None,
        translation: Translation | None = None,
    ) -> None:
        self.model = model
        self.form = form
        self.edge = edge
        self.translation = translation
        self.scorer = None
        if edge is not None:
            guard = edge.bundle.manifest.guard
            self.scorer = Scorer(edge.model, form.contract.eos_ids, guard)

    @classmethod
    def open(
        cls,
        model: str,
        *,
        edge: str | Path | EdgeRuntime | None = None,
        backend: str | ChatServer | None = None,
        backend_key: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        answers: int = 1,
        canvas: int | None = None,
        progress: Progress | None = None,
    ) -> Pipeline:
        """Loads a model (see `checkpoint.load_model`) and the edge model that its payloads are for.

        edge: a bundle folder or a shipped bundle's name, or a runtime, which is shared. A shipped model has
        the bundle shipped beside it where none is given. With another vocabulary payloads are translated.
        backend: a server that runs the model in this process's place, such as vllm:http://host:8000, with its
        key; of `model` then all but the weights is read. Or a chat server, such as openai:http://host:11434/v1,
        which knows any model as `model`, and needs no PyTorch here.
        answers, canvas: answers denoised together, and positions of each (default: the checkpoint's own), by
        which the memory needed is estimated before anything is loaded. progress: of loading.

        Raises CloudError, EdgeError, or ContractMismatchError for a tokenizer that payloads do not support.
        """
        if isinstance(backend, str) and backend.startswith(PREFIX):
            backend = ChatServer.open(backend, model, key=backend_key or "")
        if isinstance(backend, ChatServer):
            require("model", model not in PAIRS, "the chat server's name of a model", model)
            if edge is None:
                raise RequestError("backend: expected the devices' bundle (--edge), found none")
            chat = ChatModel.of(backend, edge if isinstance(edge, EdgeRuntime) else EdgeRuntime.open(edge))
            form = chat.edge.bundle.form
            return cls(chat, ChatForm(form.tokenizer, form.template, form.contract), chat.edge)
        # These bring PyTorch along.
        from cloud_anchor.model.checkpoint import find_checkpoint, load_model
        from cloud_anchor.model.prompt_form import prompt_form
        from cloud_anchor.model.served import open_server

        if edge is None and model in PAIRS and (PAIRS[model].bundle / MANIFEST).is_file():
            edge = PAIRS[model].bundle
        if isinstance(edge, str | Path):
            edge = EdgeRuntime(Bundle.open(edge))
        bundle = None if edge is None else edge.bundle
        loaded: DiffusionModel
        if backend is None:
            beside = _PREPACKED * bundle.variant.size if bundle else 0
            sizes: dict[str, Any] = {"answers": answers, "canvas": canvas, "beside": beside}
            loaded = load_model(model, device=device, dtype=dtype, progress=progress, **sizes)
        else:
            loaded = open_server(backend, model, backend_key, answers)
        form = prompt_form(loaded, find_checkpoint(model, weights=backend is None), bundle)
        if bundle is None or form.contract.same_vocabulary(bundle.contract):
            return cls(loaded, form, edge)
        return cls(loaded, bundle.form, edge, Translation(form, bundle.form))

    @property
    def masked_model(self) -> MaskedModel:
        """The model for those who run its passes by themselves; RequestError where it has its own sampler."""
        if not isinstance(self.model, MaskedModel):
            found = f"found {self.model.source}, which has a sampler of its own"
            raise RequestError(f"expected a model that predicts masked tokens, {found}")
        return self.model

    @property
    def model_form(self) -> PromptForm:
        """The prompt form that the diffusion model reads; the ids of its runs are in its vocabulary."""
        return self.translation.cloud if self.translation else self.form

    def plan(self, prompts: Sequence[Prompt] = ()) -> DenoiseConfig:
        """A full run: canvas and steps as the checkpoint states them, else 256 and 128; parallel commits as
        the checkpoint states them. Its `steps` are set where a part of them is nothing to stop at.

        The canvas is cut to what the longest of the prompts leaves of the model's context.
        """
        canvas, steps = self.model.plan or DEFAULT_PLAN
        longest = max((len(self.model_form.ids(prompt)) for prompt in prompts), default=0)
        room = self.model.context - longest if prompts else canvas
        config = DenoiseConfig(canvas=max(1, min(canvas, room)), total_steps=steps)
        if isinstance(self.model, ChatModel):
            return replace(config, steps=steps)
        commit: float | None = getattr(self.model, "commit", None)
        return config if commit is None else replace(config, parallel=commit)

    @cached_property
    def portable_scorer(self) -> Scorer:
        """The scorer of the edge model's portable graph. Raises BundleFileError where it has none."""
        assert self.edge
        return Scorer(self.edge.predictive_model, self.form.contract.eos_ids, PORTABLE_GUARD)

    def scorer_of(self, codec: Codec | str) -> Scorer | None:
        """The scorer of the graph with which devices decode payloads of a codec."""
        return self.portable_scorer if self.edge is not None and self.bound(codec) else self.scorer

    def bound(self, codec: Codec | str) -> bool:
        """Whether payloads of a codec are for the edge model's portable graph: auto's where it has one."""
        if codec == AUTO:
            return self.edge is not None and self.edge.bundle.variant.portable is not None
        return any(each.bound and codec in (each, each.label) for each in Codec)

    def default_codec(self, selection: Selection) -> Codec | str:
        """Portable where the selection asks an edge model with such a graph: few anchors, few passes; of a
        finished text the smallest.
        """
        if isinstance(self.model, ChatModel):
            return AUTO
        walks = self.scorer is not None and selection.resolve(edge_model=True).rule.walks
        return Codec.PORTABLE if walks and self.bound(AUTO) else Codec.COMPACT

    def resolve(
        self, config: DenoiseConfig, selection: Selection | None = None
    ) -> tuple[DenoiseConfig, Selection]:
        """Both without defaults that depend on the edge model or on each other.

        The selection gets a name and the commit rule is decided (see `resolve_commit`). Raises RequestError
        where the selection needs an edge model and there is none.
        """
        selection = selection or Selection()
        if isinstance(self.model, ChatModel) and selection.max_bytes is None:  # all of a finished text
            selection = replace(selection, name=selection.name or PAPER)
        selection = selection.resolve(edge_model=self.scorer is not None)
        sends = selection.rule.sends_predictions
        if isinstance(self.model, OwnSampler) and config.commit == "auto":
            return self.model.published(config, sends_predictions=sends), selection
        return resolve_commit(config, sends_predictions=sends), selection

    def make(
        self,
        prompts: Sequence[Prompt],
        config: DenoiseConfig,
        selection: Selection | None = None,
        codec: Codec | str = Codec.COMPACT,
        embed_prompt: bool = False,
        progress: Progress | None = None,
        *,
        confidence: bool = True,
    ) -> list[PipelineResult]:
        """Denoises the prompts in one batch and selects the anchors of each; see `resolve` and `select`.

        progress: of the steps.
        Raises RequestError for options that do not fit model and prompts, and what `select` raises.
        """
        config, selection = self.resolve(config, selection)
        ids = [self.model_form.ids(prompt) for prompt in prompts]
        with (progress or Silent()).stage("denoising", config.run_steps) as step:
            runs = denoise(self.model, ids, config, after_step=lambda: step(1))
        return self.select(prompts, runs, selection, codec, embed_prompt, confidence)

    def select(
        self,
        prompts: Sequence[Prompt],
        runs: Sequence[Denoised],
        selection: Selection | None = None,
        codec: Codec | str = Codec.COMPACT,
        embed_prompt: bool = False,
        confidence: bool = True,
    ) -> list[PipelineResult]:
        """The anchors of finished or unfinished runs, for payloads of this codec. Embed_prompt and
        confidence, which are those of `payload`, matter for max_bytes only.

        Runs in another vocabulary than the edge's are translated, and the results' runs are the translated
        ones. Raises NothingToSendError where a run has nothing to send, and RequestError where a selection
        needs an edge model and there is none.
        """
        selection = selection or Selection()
        results = []
        for prompt, run in zip(prompts, runs, strict=True):
            if self.translation is not None and not isinstance(run, TranslatedRun):
                run = self.translation.translate(run, self.form.ids(prompt))
            selected = select(run, self.form.contract, selection, self.scorer_of(codec))
            require_anchors(run, selected)
            bound = selected.walk is not None and self.bound(codec)
            result = PipelineResult(prompt, run, selected.anchors, selected.walk, bound)
            if selection.max_bytes is not None:
                result = self._within_bytes(result, selection, codec, embed_prompt, confidence)
            results.append(result)
        return results

    def _within_bytes(self, result: PipelineResult, selection: Selection, *form: Any) -> PipelineResult:
        """The result with as many anchors as a payload of this form holds; raises RequestError."""
        scorer = self.scorer_of(form[0])
        assert scorer
        assert result.walk
        assert selection.max_bytes
        run, about = result.run, (self.form.contract, selection.config, selection.max_bytes)

        def size(anchors: AnchorSet) -> int:
            return len(self.payload(replace(result, anchors=anchors), *form))

        walk = within_bytes(scorer, run, result.walk, *about, size)
        return replace(result, anchors=edge_aware(run, walk, self.form.contract), walk=walk)

    def payload(
        self,
        result: PipelineResult,
        codec: Codec | str = Codec.COMPACT,
        embed_prompt: bool = False,
        confidence: bool = True,
    ) -> bytes:
        """The payload of a result's anchors, with the run's steps.

        embed_prompt: with the prompt's text too, where it is a single question: a payload carries no other
        conversation.

        confidence: also how sure the diffusion model is of each anchor, 2 bits each: the device's doubt.
        A text that no run of this model has made has none to tell.

        Raises RequestError where a codec that is bound to a model lacks it, and where the anchors suffice
        for that model's portable graph only and the codec is for any.
        """
        if codec == AUTO and result.bound:
            bound = Codec.PORTABLE, Codec.PREDICTIVE
            return min((self.payload(result, each, embed_prompt, confidence) for each in bound), key=len)
        predictive = self.bound(codec) and codec != AUTO
        if predictive and self.edge is None:
            raise RequestError(f"codec {codec}: expected an edge bundle (--edge), found none")
        if result.bound and not predictive:
            raise RequestError(
                f"codec {codec}: expected anchors selected for it, found those for the portable graph"
            )
        run, anchors = result.run, result.anchors
        text = result.prompt if embed_prompt and isinstance(result.prompt, str) else None
        weighed = self.edge is not None and (predictive or codec == AUTO)
        return encode(
            anchors,
            self.shared(run.prompt_ids, predictive=weighed),
            codec,
            run.extras(text, anchors.positions if confidence else ()),
            draft=result.draft,
        )

    def shared(self, prompt_ids: Sequence[int], *, predictive: bool) -> Shared:
        """What a device has too; predictive: with the edge model's predictions."""
        predictor = self.edge.predictor(prompt_ids) if self.edge and predictive else None
        return Shared(self.form.contract, prompt_ids, self.form.tokenizer, predictor=predictor)
