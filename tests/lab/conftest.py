"""What the laboratory's tests share: the published traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.published.published_runs import DEFAULT_TOKENIZER, Trace, TraceTokenizer, read_traces

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "dream7b_dev.jsonl"


@pytest.fixture(scope="session")
def traces() -> list[Trace]:
    if not TRACES.is_file():
        pytest.skip("the published traces are not beside the repository (../shared/traces)")
    return read_traces(TRACES)


@pytest.fixture(scope="session")
def qwen() -> TraceTokenizer:
    pytest.importorskip("tokenizers")
    path = TRACES.parent / DEFAULT_TOKENIZER
    if not path.is_file():
        pytest.skip("the Qwen2.5 tokenizer is not beside the repository (../shared/tokenizer)")
    return TraceTokenizer(path)


MOST_LINES = 5
"""That one can tell apart."""


@pytest.fixture(autouse=True)
def no_plot_has_more_lines_than_one_can_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every plot that a test of the laboratory draws: the named lines of each panel."""
    from matplotlib.figure import Figure

    save = Figure.savefig

    def checked(figure: Figure, *arguments: Any, **options: Any) -> None:
        for axes in figure.axes:
            labels = axes.get_legend_handles_labels()[1]
            assert len(set(labels)) <= MOST_LINES, f"{axes.get_title()}: {labels}"
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", checked)
