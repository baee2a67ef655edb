"""Records the demo's payloads: `python web/demo/record.py`. Needs the extra `cloud`; run it for a new pair.

Questions and payloads only: the demo's texts are written in the browser.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from cloud_anchor.model.checkpoint import read_examples  # noqa: E402
from cloud_anchor.pipeline import Pipeline  # noqa: E402
from cloud_anchor.sampling.config import steps_for  # noqa: E402
from cloud_anchor.selection.select import EDGE_AWARE, Selection  # noqa: E402
from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS  # noqa: E402

PERCENT = (5, 10, 25, 40)
QUESTIONS = 5


def main() -> None:
    pipeline = Pipeline.open(DEFAULT_MODEL, device="cpu")
    questions = []
    for prompt in read_examples(PAIRS[DEFAULT_MODEL].checkpoint)[:QUESTIONS]:
        plan = pipeline.plan([prompt])
        payloads = []
        for percent in PERCENT:
            config = replace(plan, steps=steps_for(percent / 100, plan.total_steps))
            (result,) = pipeline.make([prompt], config, Selection(EDGE_AWARE))
            data = base64.b64encode(pipeline.payload(result)).decode("ascii")
            payloads.append({"percent": percent, "steps": config.steps, "data": data})
        questions.append({"prompt": prompt, "total_steps": plan.total_steps, "payloads": payloads})
        print(
            f"{prompt[:60]!r}: {[len(base64.b64decode(each['data'])) for each in payloads]} bytes", flush=True
        )
    text = json.dumps({"questions": questions}, indent=1, ensure_ascii=True)
    (HERE / "payloads.json").write_text(text + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
