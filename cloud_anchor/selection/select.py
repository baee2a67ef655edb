"""Selection: the tokens of an unfinished run that are sent, by the name of the rule.

Responsible for the choice among the selections and for when a selection is too little to send. Not
responsible for the rules themselves (see `committed`, `edge_aware`) or for payload bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cloud_anchor.errors import NothingToSendError, RequestError, require
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.selection.committed import committed, confident
from cloud_anchor.selection.edge_aware import EdgeAwareConfig, EdgeWalk, edge_aware, verify_drafts
from cloud_anchor.selection.scorer import Scorer
from payload import AnchorSet, Contract

PAPER, CONFIDENCE, EDGE_AWARE = SELECTIONS = ("paper", "confidence", "edge-aware")


@dataclass(frozen=True)
class Selection:
    """The rule that decides which tokens are sent.

    name:      `paper`: committed tokens; `confidence`: predictions with at least config.threshold;
               `edge-aware`: those of these that the edge model would not predict by itself. None: edge-aware
               where there is an edge model, else paper.
    config:    options of confidence (threshold only) and edge-aware.
    max_bytes: largest payload, with edge-aware only.
    """

    name: str | None = None
    config: EdgeAwareConfig = field(default_factory=EdgeAwareConfig)
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        require("select", self.name in (None, *SELECTIONS), " or ".join(SELECTIONS), self.name)
        if self.max_bytes is not None and self.name in (PAPER, CONFIDENCE):
            raise RequestError(f"max bytes: expected selection {EDGE_AWARE}, found {self.name}")

    def resolve(self, *, edge_model: bool) -> Selection:
        """This selection with a name; raises RequestError where it needs an edge model and there is none."""
        if edge_model:
            return replace(self, name=self.name or EDGE_AWARE)
        if self.name == EDGE_AWARE:
            raise RequestError("select edge-aware: expected an edge bundle (--edge), found none")
        if self.max_bytes is not None:
            raise RequestError("max bytes: expected an edge bundle (--edge) to choose by, found none")
        return replace(self, name=self.name or PAPER)

    @property
    def sends_predictions(self) -> bool:
        """True where uncommitted predictions are sent; of a selection with a name."""
        return self.name != PAPER


@dataclass(frozen=True)
class Selected:
    """The anchors of one run, and the edge model's walk where the selection is edge-aware."""

    anchors: AnchorSet
    walk: EdgeWalk | None = None


def select(
    runs: Sequence[Denoised], contract: Contract, selection: Selection, scorer: Scorer | None = None
) -> list[Selected]:
    """The anchors of each run, without regard to max_bytes. They may be none: see `require_anchors`.

    Raises RequestError where an edge-aware selection has no scorer, and what the scorer raises.
    """
    selection = selection.resolve(edge_model=scorer is not None)
    if selection.name == PAPER:
        return [Selected(committed(run, contract)) for run in runs]
    if scorer is None or selection.name == CONFIDENCE:
        return [Selected(confident(run, contract, selection.config.threshold)) for run in runs]
    walks = verify_drafts(scorer, runs, contract, selection.config)
    return [Selected(edge_aware(run, walk, contract), walk) for run, walk in zip(runs, walks, strict=True)]


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
