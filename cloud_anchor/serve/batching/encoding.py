"""The payloads of a run, one or a chain: translation, selection and codec of what a job has asked for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from cloud_anchor.errors import NothingToSendError
from cloud_anchor.pipeline import Pipeline, PipelineResult
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.chain import chain_within_bytes
from cloud_anchor.serve.batching.jobs import Job, ServedPayload
from payload import AnchorSet, Base, PayloadError, encode


def payloads_of(pipeline: Pipeline, job: Job, run: Denoised, last: bool) -> list[ServedPayload]:
    """The payload of a job's run, or its chain; the first adds to the job's last one where it can.

    last: no further run of the job follows. Raises what the selection and the codec raise.
    """
    if pipeline.translation is not None and job.edge_prompt_ids is not None:
        run = pipeline.translation.translate(run, job.edge_prompt_ids)
    result = _selected(pipeline, job, run)
    shared = pipeline.shared(run.prompt_ids, predictive=pipeline.bound(job.codec))

    def written(anchors: AnchorSet, base: Base | None) -> bytes:
        extras = run.extras(sure_of=anchors.positions if job.confidence else ())
        if job.chain:  # for links where every byte counts
            extras = replace(extras, step=0, total_steps=0)
        return encode(anchors, replace(shared, base=base), job.codec, extras, draft=result.draft)

    base, contract = None if job.self_contained else job.base, pipeline.form.contract
    scorer = pipeline.scorer_of(job.codec)
    if job.chain is not None and result.walk is not None and scorer is not None:
        (most, count), config = job.chain, job.selection.config
        chain = chain_within_bytes(scorer, run, result.walk, contract, config, most, written, base, count)
    else:
        chain = []
        if base is not None:
            with suppress(PayloadError):  # an anchor that was sent has changed since
                chain = [(Base(written(result.anchors, base), result.anchors), True)]
        chain = chain or [(Base(written(result.anchors, None), result.anchors), False)]
    job.base = chain[-1][0]
    at = run.steps, run.total_steps, run.canvas
    left = range(len(chain))[::-1]
    return [
        ServedPayload(data, len(anchors), anchors.length, *at, delta, last and not more, more > 0)
        for more, ((data, anchors), delta) in zip(left, chain, strict=True)
    ]


def _selected(pipeline: Pipeline, job: Job, run: Denoised) -> PipelineResult:
    try:
        (result,) = pipeline.select([""], [run], job.selection, job.codec, confidence=job.confidence)
    except NothingToSendError:
        # Not an error: without anchors the device decodes the whole response by itself.
        return PipelineResult("", run, run.anchors({}, pipeline.form.contract, None), None)
    return result
