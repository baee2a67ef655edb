"""python -m lab.benches.time_of_a_form BUNDLE [VARIANT]

The time of a form of 4 questions with 4 options each, of up to 3 tokens, over that of reading a text of 64
tokens; in turn in one run, the median of 12 texts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from edge_runtime.form import Form
from edge_runtime.runtime import EdgeRuntime

OPTIONS = {
    "when": ["right now", "this week", "some day", "not at all"],
    "team": ["billing", "network", "sales desk", "repair shop"],
    "mood": ["angry", "neutral", "happy", "sad indeed"],
    "about": ["money owed", "an outage", "a question", "a complaint"],
}
TEXT = "The pump at the north station is down since this morning and nobody answers the phone there; " * 4


def main(bundle: str, variant: str | None = None) -> None:
    edge = EdgeRuntime.open(Path(bundle), variant)
    form = Form.of({"properties": {name: {"enum": options} for name, options in OPTIONS.items()}})
    tokenizer, seconds = edge.bundle.tokenizer, list[tuple[float, ...]]()
    lengths = [[len(tokenizer.encode(option)) for option in slot.options] for slot in form.slots]
    for number in range(13):
        ids = tokenizer.encode(f"{number}: {TEXT}")[:64]
        asked = form.question(tokenizer.decode(ids))
        read = edge.model.engine.fork()
        first = _timed(lambda: read.append(ids, [63]))  # noqa: B023
        seconds.append((first, *(_timed(lambda: edge.scores(form, asked)) for _ in range(2))))  # noqa: B023
    read_ms, with_text, alone = (1e3 * median(column) for column in zip(*seconds[1:], strict=True))
    figures = {"read 64 tokens, ms": read_ms, "form, its text new": with_text / read_ms}
    print(json.dumps(figures | {"form, its text known": alone / read_ms, "tokens": lengths}))


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(*sys.argv[1:])
