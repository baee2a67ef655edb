"""The selections by name: what needs an edge model, what each sends, and when that is too little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud_anchor.errors import NothingToSendError, RequestError
from cloud_anchor.selection.edge_aware import EdgeAwareConfig
from cloud_anchor.selection.scorer import Scorer
from cloud_anchor.selection.select import Selected, Selection, require_anchors, select
from tests.cloud_anchor.selection.test_edge_aware import CONTRACT, EOS, HashEngine, draft

SCORER = Scorer(HashEngine(), EOS)


def test_the_default_depends_on_the_edge_model() -> None:
    assert Selection().resolve(edge_model=True).name == "edge-aware"
    assert Selection().resolve(edge_model=False).name == "paper"
    assert Selection("confidence").resolve(edge_model=True).name == "confidence"
    assert [Selection(name).rule.sends_predictions for name in ("paper", "confidence", "edge-aware")] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("selection", [Selection("edge-aware"), Selection(max_bytes=50)])
def test_what_needs_an_edge_model_says_so(selection: Selection) -> None:
    with pytest.raises(RequestError):
        select(draft([3], [0.9]), CONTRACT, selection)


def test_each_selection_of_one_run() -> None:
    run = draft([3, 1, 4, 1, 5], [0.9, 0.2, 0.9, 0.2, 0.9])
    paper = select(run, CONTRACT, Selection("paper"), SCORER)
    assert len(paper.anchors) == 0, "nothing is committed"
    confident = select(run, CONTRACT, Selection("confidence", EdgeAwareConfig(threshold=0.5)))
    assert (confident.anchors.positions, confident.anchors.length) == ((0, 2, 4), 5)
    aware = select(run, CONTRACT, Selection(), SCORER)
    assert aware.walk is not None
    assert [aware.walk.text[p] for p in (0, 2, 4)] == [3, 4, 5]
    assert list(aware.anchors.positions) == aware.walk.sent


def test_what_is_accepted_for_now_is_sent_as_if_committed() -> None:
    run = replace(draft([3, 1, 4, 1, 5], [0.9] * 5), accepted=frozenset({0, 2, 7}))
    paper = select(run, CONTRACT, Selection("paper"))
    assert paper.anchors.by_position == {0: 3, 2: 4}, "position 7 is behind the predicted end"
    assert paper.anchors.length is None


@pytest.mark.parametrize(
    ("selection", "predicted"), [("paper", [3, 1]), ("confidence", []), ("edge-aware", [])]
)
def test_nothing_to_send_is_an_error(selection: str, predicted: list[int]) -> None:
    run = draft(predicted, [0.5] * len(predicted))
    selected = select(run, CONTRACT, Selection(selection), SCORER)
    assert len(selected.anchors) == 0
    with pytest.raises(NothingToSendError):
        require_anchors(run, selected)


def test_an_edge_model_that_needs_no_help_is_no_error() -> None:
    run = draft([3, 1], [0.9] * 2)
    selected = select(run, CONTRACT, Selection(), SCORER)
    assert selected.walk is not None
    require_anchors(run, Selected(run.anchors({}, CONTRACT, 2), replace(selected.walk, sent=[])))
