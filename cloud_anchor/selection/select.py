"""Selection: the tokens of an unfinished run that are sent, by the name of the rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cloud_anchor.errors import NothingToSendError, RequestError, require
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk, edge_aware, verify_draft
from cloud_anchor.selection.scorer import Scorer
from payload import AnchorSet, Contract

PAPER, CONFIDENCE, EDGE_AWARE = "paper", "confidence", "edge-aware"


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


class Selected(NamedTuple):
    """The anchors of one run, and the edge model's walk where the rule has one."""

    anchors: AnchorSet
    walk: EdgeWalk | None = None


@dataclass(frozen=True)
class Rule:
    """A selection.

    select:  from a run, its contract, options and the edge model to the anchors.
    walks:   True where it needs the edge model and gives its walk, of which a payload of bounded size keeps
             the largest gains.
    sends_predictions: True where it sends uncommitted predictions.
    """

    select: Callable[[Denoised, Contract, EdgeAwareConfig, Scorer | None], Selected]
    walks: bool = False
    sends_predictions: bool = True


def _edge_aware(
    run: Denoised, contract: Contract, config: EdgeAwareConfig, scorer: Scorer | None
) -> Selected:
    assert scorer is not None  # it walks
    walk = verify_draft(scorer, run, contract, config)
    return Selected(edge_aware(run, walk, contract), walk)


SELECTIONS: dict[str, Rule] = {
    PAPER: Rule(lambda run, contract, *_: Selected(committed(run, contract)), sends_predictions=False),
    CONFIDENCE: Rule(lambda run, contract, config, _: Selected(confident(run, contract, config.threshold))),
    EDGE_AWARE: Rule(_edge_aware, walks=True),
}
"""By name. Another rule is one more entry: options, service and laboratory take its name from here."""


@dataclass(frozen=True)
class Selection:
    """The rule that decides which tokens are sent.

    name:      `paper`: committed tokens; `confidence`: predictions with at least config.threshold;
               `edge-aware`: those of these that the edge model would not predict by itself; or another of
               SELECTIONS. None: edge-aware where there is an edge model, else paper.
    config:    options of confidence (threshold only) and edge-aware.
    max_bytes: largest payload, of a rule that walks.
    """

    name: str | None = None
    config: EdgeAwareConfig = field(default_factory=EdgeAwareConfig)
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        require("select", self.name in (None, *SELECTIONS), " or ".join(SELECTIONS), self.name)
        if self.max_bytes is not None and self.name is not None and not self.rule.walks:
            raise RequestError(f"max bytes: expected selection {EDGE_AWARE}, found {self.name}")

    @property
    def rule(self) -> Rule:
        """The rule of a selection with a name."""
        return SELECTIONS[str(self.name)]

    def resolve(self, *, edge_model: bool) -> Selection:
        """This selection with a name; raises RequestError where it needs an edge model and there is none."""
        if edge_model:
            return replace(self, name=self.name or EDGE_AWARE)
        if self.name is not None and self.rule.walks:
            raise RequestError(f"select {self.name}: expected an edge bundle (--edge), found none")
        if self.max_bytes is not None:
            raise RequestError("max bytes: expected an edge bundle (--edge) to choose by, found none")
        return replace(self, name=self.name or PAPER)


def select(run: Denoised, contract: Contract, selection: Selection, scorer: Scorer | None = None) -> Selected:
    """The anchors of a run, without regard to max_bytes. They may be none: see `require_anchors`.

    Raises RequestError where a rule that walks has no scorer, and what the scorer raises.
    """
    selection = selection.resolve(edge_model=scorer is not None)
    return selection.rule.select(run, contract, selection.config, scorer)


def require_anchors(run: Denoised, selected: Selected) -> None:
    """Raises NothingToSendError where there is nothing to send.

    No anchors are enough only in an edge-aware selection of an answer: the edge model then needs no help.
    """
    steps = f"after {run.steps} of {run.total_steps} steps expected"
    if selected.walk is not None and not selected.walk.text:
        predicted = "an answer of at least one token, but the model predicts an empty one"
        raise NothingToSendError(f"{steps} {predicted}. Run more steps (--fraction, --steps).")
    if selected.walk is None and not len(selected.anchors):
        raise NothingToSendError(
            f"{steps} at least one token to send, found none. Run more steps (--fraction, --steps), or plan "
            "fewer (--total-steps)."
        )
