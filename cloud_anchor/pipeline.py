"""The cloud side as one object: from prompts to payloads, with models that stay loaded.

    pipeline = Pipeline.open("tiny", edge="bundles/tiny-qwen")
    (result,) = pipeline.make(["Where does the river end?"], DenoiseConfig(canvas=128, steps=12))
    data = pipeline.payload(result)

Responsible for combining prompt form, sampler, selection and codec. Not responsible for files, terminals or
networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint, load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.prompt_form import PromptForm, prompt_form
from cloud_anchor.sampling.config import DenoiseConfig, resolve_commit
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise
from cloud_anchor.selection.edge_aware import EdgeWalk, edge_aware, within_bytes
from cloud_anchor.selection.scorer import EngineScorer, Scorer, open_scorer
from cloud_anchor.selection.select import Selection, require_anchors, select
from edge_runtime.bundle.bundle import MANIFEST, Bundle
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.predictor import PredictiveModel
from edge_runtime.runtime import EdgeRuntime
from payload import AUTO, TOLERANCE, AnchorSet, Codec, Shared, encode

DEFAULT_PLAN = (256, 128)
"""Canvas and steps where a checkpoint states none: the paper's timing runs (table 6)."""


@dataclass(frozen=True)
class PipelineResult:
    """One prompt with its run, the selected anchors, and the edge model's walk of an edge-aware selection."""

    prompt: str
    run: Denoised
    anchors: AnchorSet
    walk: EdgeWalk | None

    def payload(
        self,
        form: PromptForm,
        codec: Codec | str = Codec.COMPACT,
        embed_prompt: bool = False,
        predictive_model: PredictiveModel | None = None,
        tolerance: float = TOLERANCE,
    ) -> bytes:
        """The payload of these anchors, with the run's steps and, if `embed_prompt`, the prompt's text.

        predictive_model, tolerance: for codec predictive: the device's model, and by how much its
        log-probabilities may differ there, in nats.

        Raises RequestError where codec predictive has no predictive_model.
        """
        predictive = codec in (Codec.PREDICTIVE, Codec.PREDICTIVE.label)
        if predictive and predictive_model is None:
            raise RequestError("codec predictive: expected an edge bundle (--edge), found none")
        model = predictive_model if predictive or codec == AUTO else None
        prompt_ids = self.run.prompt_ids
        return encode(
            self.anchors,
            Shared(
                self.anchors.contract,
                prompt_ids,
                form.tokenizer,
                predictor=model.predictor(prompt_ids) if model else None,
            ),
            codec,
            self.run.extras(self.prompt if embed_prompt else None),
            tolerance=tolerance,
            draft=self.walk.text if self.walk else self.run.predicted_answer,
        )


class Pipeline:
    """A diffusion model, its prompt form, and the edge model that its payloads are for, where that is known.

    The edge model is held in two forms: `scorer` for edge-aware selection, and `predictive_model` for codec
    predictive.
    """

    tolerance: float = TOLERANCE
    """By how much the device's log-probabilities may differ from those here, in nats (codec predictive)."""

    def __init__(
        self,
        model: DreamModel,
        form: PromptForm,
        scorer: Scorer | None = None,
        predictive_model: PredictiveModel | None = None,
    ) -> None:
        self.model = model
        self.form = form
        self.scorer = scorer
        self.predictive_model = predictive_model

    @classmethod
    def open(
        cls,
        model: str,
        *,
        edge: str | Path | EdgeRuntime | None = None,
        edge_checkpoint: str | Path | None = None,
        device: str | None = None,
        dtype: str | None = None,
        compiled: bool = False,
    ) -> Pipeline:
        """Loads a model (see `checkpoint.load_model`) and the edge model that its payloads are for.

        edge: a bundle folder, or a runtime whose engine is shared. The tiny model has the bundle shipped
        beside it where none is given.
        edge_checkpoint: checkpoint that the bundle was made from; selections are then scored with it, in
        PyTorch on the diffusion model's device, in place of the bundle on ONNX Runtime.

        Raises CloudError, EdgeError, or ContractMismatchError where the two do not share a vocabulary.
        """
        if edge is None and model == "tiny" and (SHIPPED / MANIFEST).is_file():
            edge = SHIPPED
        bundle = None
        if isinstance(edge, EdgeRuntime):
            bundle = edge.bundle
        elif edge is not None:
            bundle = Bundle.open(edge)
        dream = load_model(model, device=device, dtype=dtype)
        if compiled:
            dream.compile()
        form = prompt_form(dream, find_checkpoint(model), bundle)
        if bundle is None:
            if edge_checkpoint is not None:
                raise RequestError(
                    "edge checkpoint: expected the edge bundle made from it (--edge), found none"
                )
            return cls(dream, form)
        if isinstance(edge, EdgeRuntime) and edge_checkpoint is None:
            scorer: Scorer = EngineScorer(edge.engine, form.contract.eos_ids)
        else:
            scorer = open_scorer(bundle, edge_checkpoint, dream.device)
        shared = edge.predictive_model if isinstance(edge, EdgeRuntime) else None
        return cls(dream, form, scorer, shared or PredictiveModel(bundle))

    def plan(self, prompts: Sequence[str] = ()) -> DenoiseConfig:
        """A full run: canvas and steps as the checkpoint states them, else 256 and 128.

        The canvas is cut to what the longest of the prompts leaves of the model's context.
        """
        canvas, steps = self.model.plan or DEFAULT_PLAN
        longest = max((len(self.form.ids(prompt)) for prompt in prompts), default=0)
        room = self.model.context - longest if prompts else canvas
        return DenoiseConfig(canvas=max(1, min(canvas, room)), total_steps=steps)

    def resolve(
        self, config: DenoiseConfig, selection: Selection | None = None
    ) -> tuple[DenoiseConfig, Selection]:
        """Both without defaults that depend on the edge model or on each other.

        The selection gets a name and the commit rule is decided (see `resolve_commit`). Raises RequestError
        where the selection or the commit rule needs an edge model and there is none.
        """
        selection = (selection or Selection()).resolve(edge_model=self.scorer is not None)
        config.require_guide(present=self.scorer is not None)
        return resolve_commit(config, sends_predictions=selection.sends_predictions), selection

    def make(
        self,
        prompts: Sequence[str],
        config: DenoiseConfig,
        selection: Selection | None = None,
        codec: Codec | str = Codec.COMPACT,
        embed_prompt: bool = False,
    ) -> list[PipelineResult]:
        """Denoises the prompts in one batch and selects the anchors of each; see `resolve` and `select`.

        Raises RequestError for options that do not fit model and prompts, and what `select` raises.
        """
        config, selection = self.resolve(config, selection)
        ids = [self.form.ids(prompt) for prompt in prompts]
        runs = denoise(self.model, ids, config, guide=self.scorer)
        return self.select(prompts, runs, selection, codec, embed_prompt)

    def select(
        self,
        prompts: Sequence[str],
        runs: Sequence[Denoised],
        selection: Selection | None = None,
        codec: Codec | str = Codec.COMPACT,
        embed_prompt: bool = False,
    ) -> list[PipelineResult]:
        """The anchors of finished or unfinished runs. Codec and embed_prompt matter for max_bytes only.

        Raises NothingToSendError where a run has nothing to send, and RequestError where a selection needs an
        edge model and there is none.
        """
        selection = selection or Selection()
        contract = self.form.contract
        results = []
        for prompt, run, selected in zip(
            prompts, runs, select(runs, contract, selection, self.scorer), strict=True
        ):
            require_anchors(run, selected)
            result = PipelineResult(prompt, run, selected.anchors, selected.walk)
            if selection.max_bytes is not None:
                result = self._within_bytes(result, selection, selection.max_bytes, codec, embed_prompt)
            results.append(result)
        return results

    def _within_bytes(
        self,
        result: PipelineResult,
        selection: Selection,
        max_bytes: int,
        codec: Codec | str,
        embed_prompt: bool,
    ) -> PipelineResult:
        """The result with as many anchors as a payload of max_bytes holds; raises RequestError."""
        assert self.scorer is not None  # a byte budget implies edge-aware
        assert result.walk is not None

        def size(anchors: AnchorSet) -> int:
            return len(self.payload(replace(result, anchors=anchors), codec, embed_prompt))

        run, contract = result.run, self.form.contract
        walk = within_bytes(self.scorer, run, result.walk, contract, selection.config, max_bytes, size)
        return replace(result, anchors=edge_aware(run, walk, contract), walk=walk)

    def payload(
        self, result: PipelineResult, codec: Codec | str = Codec.COMPACT, embed_prompt: bool = False
    ) -> bytes:
        """The payload of one result; raises RequestError where codec predictive lacks an edge model."""
        return result.payload(self.form, codec, embed_prompt, self.predictive_model, self.tolerance)
