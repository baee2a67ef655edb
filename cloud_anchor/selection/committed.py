"""Selections without an edge model: committed tokens, and confident predictions.

Responsible for the paper's selection and the selection by confidence. Not responsible for the selection with
an edge model (see `edge_aware`) or for the choice between them (see `select`).
"""

from __future__ import annotations

from cloud_anchor.sampling.denoised import Denoised
from payload import AnchorSet, Contract


def committed(run: Denoised, contract: Contract) -> AnchorSet:
    """The paper's anchors (section 3.1): every committed token before the first committed end marker.

    The length is stated where the commits determine it (see Denoised.length). Special tokens other than end
    markers are no anchors and are left out. What a model has accepted for now is sent too: a later payload
    takes it back if the model does.
    """
    accepted = {p: run.predicted[p] for p in run.accepted if p < min(run.first_end, run.predicted_length)}
    tokens = {p: token for p, token in enumerate(run.answer) if token != run.mask_id} | accepted
    kept = {p: token for p, token in tokens.items() if contract.is_ordinary(token)}
    return run.anchors(kept, contract, run.length)


def confident(run: Denoised, contract: Contract, threshold: float) -> AnchorSet:
    """Every prediction with at least this probability, before the predicted end of the answer.

    With threshold 0 it is the whole draft: the control that a selection has to equal with fewer bytes.
    """
    draft = run.predicted_answer
    kept = {
        position: token
        for position, token in enumerate(draft)
        if contract.is_ordinary(token) and run.confidence[position] >= threshold
    }
    return run.anchors(kept, contract, run.ending_with(draft))
