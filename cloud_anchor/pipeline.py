"""From prompts to payloads, with models that stay loaded: the cloud in one object.

    pipeline = Pipeline.open("tiny", edge="bundles/tiny-qwen")
    made, = pipeline.make(["Where does the river end?"], DenoiseConfig(canvas=128, steps=12))
    data = made.payload(pipeline.form)

Knows how prompt form, sampler, selection and payload come together. Does not know files, terminals or
networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cloud_anchor.errors import RequestError
from cloud_anchor.model.checkpoint import find_checkpoint, load_model
from cloud_anchor.model.dream import DreamModel
from cloud_anchor.model.prompt_form import PromptForm, prompt_form
from cloud_anchor.sampling.config import CONFIDENCE as BY_CONFIDENCE
from cloud_anchor.sampling.config import in_parallel
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import DenoiseConfig, denoise
from cloud_anchor.selection.committed import committed, confident
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk, edge_aware, walk, within_bytes
from cloud_anchor.selection.scorer import Scorer, open_scorer
from edge_runtime.bundle.bundle import MANIFEST, Bundle
from edge_runtime.bundle.lookup import SHIPPED
from edge_runtime.predictor import PredictiveModel
from payload import AUTO, TOLERANCE, AnchorSet, Codec, Shared, encode

DEFAULT_PLAN = (256, 128)
"""Canvas and steps where a checkpoint states none: the paper's timing runs (table 6)."""

PAPER, CONFIDENCE, EDGE_AWARE = SELECTIONS = ("paper", "confidence", "edge-aware")


@dataclass(frozen=True)
class Selection:
    """Which tokens are sent.

    how: `paper` what is committed; `confidence` what is predicted with a probability of walk.threshold or
         more; `edge-aware` what of the prediction the edge model would not write by itself. None:
         edge-aware where there is an edge model, else paper.
    max_bytes: most bytes of a payload, with edge-aware only.
    """

    how: str | None = None
    walk: EdgeAwareConfig = field(default_factory=EdgeAwareConfig)
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.how not in (None, *SELECTIONS):
            raise RequestError(f"select: expected {' or '.join(SELECTIONS)}, found {self.how!r}")
        if self.max_bytes is not None and self.how in (PAPER, CONFIDENCE):
            raise RequestError(f"max bytes: expected selection {EDGE_AWARE}, found {self.how}")


@dataclass(frozen=True)
class PipelineResult:
    """One prompt's run, the anchors chosen from it, and the edge model's walk where there was one."""

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
    """A diffusion model, the way prompts are put to it, and the edge model it writes for, if that is
    known: as a scorer to choose by, and as a predictive_model to write codec predictive with.
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
        edge: str | Path | None = None,
        edge_checkpoint: str | Path | None = None,
        device: str | None = None,
        dtype: str | None = None,
        compiled: bool = False,
    ) -> Pipeline:
        """Loads a model (see `checkpoint.load_model`), and the edge bundle it writes for.

        The tiny model writes for the bundle shipped beside it where none is given. Raises CloudError,
        EdgeError, or ContractMismatchError where the two do not share a vocabulary.

        edge_checkpoint: checkpoint that the bundle was made from; selections are then scored with it, in
        PyTorch on the diffusion model's device, in place of the bundle on ONNX Runtime.
        """
        if edge is None and model == "tiny" and (SHIPPED / MANIFEST).is_file():
            edge = SHIPPED
        bundle = Bundle.open(edge) if edge is not None else None
        dream = load_model(model, device=device, dtype=dtype)
        if compiled:
            dream.compile()
        form = prompt_form(dream, find_checkpoint(model), bundle)
        if bundle is None and edge_checkpoint is not None:
            raise RequestError("edge checkpoint: expected the edge bundle made from it (--edge), found none")
        scorer = open_scorer(bundle, edge_checkpoint, dream.device) if bundle else None
        return cls(dream, form, scorer, PredictiveModel(bundle) if bundle else None)

    def payload(
        self, made: PipelineResult, codec: Codec | str = Codec.COMPACT, embed_prompt: bool = False
    ) -> bytes:
        """The payload of one answer; raises RequestError where codec predictive lacks an edge model."""
        return made.payload(self.form, codec, embed_prompt, self.predictive_model, self.tolerance)

    def plan(self, prompts: Sequence[str]) -> tuple[int, int]:
        """Canvas and steps of a full run where nothing else is asked for: the checkpoint's own, else 256
        and 128.

        The canvas is cut to what the longest prompt leaves of the model's context.
        """
        canvas, steps = self.model.plan or DEFAULT_PLAN
        longest = max(len(self.form.ids(prompt)) for prompt in prompts)
        return max(1, min(canvas, self.model.context - longest)), steps

    def how(self, selection: Selection) -> str:
        """The selection's name, with the default in place of None."""
        return selection.how or (PAPER if self.scorer is None else EDGE_AWARE)

    def suited(self, config: DenoiseConfig, how: str) -> DenoiseConfig:
        """`config` with the commit rule that a selection is best served by, where none is asked for.

        The paper's selection is what the schedule's quota has committed. The others send current predictions,
        which are better the more is committed: `plan.in_parallel`, unless another order is asked for.
        """
        if how == PAPER or config.alg != BY_CONFIDENCE or config.threshold is not None:
            return config
        return in_parallel(config)

    def make(
        self, prompts: Sequence[str], config: DenoiseConfig, selection: Selection | None = None
    ) -> list[PipelineResult]:
        """Denoises the prompts in one batch, as suits the selection, and chooses the anchors of each.

        To commit in another way, `sampler.denoise` and then `choose`.
        """
        config = self.suited(config, self.how(selection or Selection()))
        runs = denoise(self.model, [self.form.ids(prompt) for prompt in prompts], config)
        return self.choose(prompts, runs, selection)

    def choose(
        self,
        prompts: Sequence[str],
        runs: Sequence[Denoised],
        selection: Selection | None = None,
        codec: Codec | str = Codec.COMPACT,
        embed_prompt: bool = False,
    ) -> list[PipelineResult]:
        """The anchors of finished or unfinished runs. Codec and embedding matter for max_bytes only."""
        selection = selection or Selection()
        how = self.how(selection)
        contract = self.form.contract
        if how != EDGE_AWARE:
            if selection.max_bytes is not None:
                raise RequestError("max bytes: expected an edge bundle (--edge) to choose by, found none")
            chosen = [
                committed(run, contract)
                if how == PAPER
                else confident(run, contract, selection.walk.threshold)
                for run in runs
            ]
            return [PipelineResult(*each, None) for each in zip(prompts, runs, chosen, strict=True)]
        if self.scorer is None:
            raise RequestError("select edge-aware: expected an edge bundle (--edge), found none")
        made = []
        walks = walk(self.scorer, runs, contract, selection.walk)
        for prompt, run, found in zip(prompts, runs, walks, strict=True):
            result = PipelineResult(prompt, run, edge_aware(run, found, contract), found)
            if selection.max_bytes is not None:

                def size(anchors: AnchorSet, result: PipelineResult = result) -> int:
                    return len(self.payload(replace(result, anchors=anchors), codec, embed_prompt))

                kept = within_bytes(
                    self.scorer, run, found, contract, selection.walk, selection.max_bytes, size
                )
                result = PipelineResult(prompt, run, edge_aware(run, kept, contract), kept)
            made.append(result)
        return made
