"""Which tokens of an unfinished canvas are sent.

Knows the paper's rule (everything committed) and the rule by confidence (everything the model is sure of,
committed or not). Does not know the edge model; the rule that asks it is in `edge_aware`.
"""

from __future__ import annotations

from cloud_anchor.errors import NothingToSendError
from cloud_anchor.sampling.denoised import Denoised
from payload import AnchorSet, Contract


def committed(run: Denoised, contract: Contract) -> AnchorSet:
    """The paper's anchors (section 3.1): every committed token before the first committed end marker.

    The length is stated where the commits say so (see Denoised.length). Special tokens other than end markers
    are no anchors and are left out.
    """
    kept = {
        position: token
        for position, token in enumerate(run.answer)
        if token != run.mask_id and token < contract.vocab_size
    }
    return _anchors(run, contract, kept, run.length)


def confident(run: Denoised, contract: Contract, threshold: float) -> AnchorSet:
    """Every current prediction with at least this probability, before the predicted end of the answer.

    With threshold 0 it is the whole draft: the control that any cleverer selection has to equal with fewer
    bytes.
    """
    draft = run.predicted_answer
    kept = {
        position: token
        for position, token in enumerate(draft)
        if token < contract.vocab_size and run.confidence[position] >= threshold
    }
    return _anchors(run, contract, kept, len(draft))


def _anchors(run: Denoised, contract: Contract, kept: dict[int, int], length: int | None) -> AnchorSet:
    if not kept:
        raise NothingToSendError(
            f"after {run.steps} of {run.total_steps} steps expected at least one token to send, found none. "
            "Run more steps (--fraction, --steps), or plan fewer (--total-steps)."
        )
    return run.anchors(kept, contract, length)
