"""python -m edge_runtime.decide: answers a form's questions about a text, by reading probabilities.

Responsible for the command line. Not responsible for forms, reading and calibration (see `decisions`).
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from common.cli import option, run_options
from edge_runtime.commands import ALONE, STDIN, ModelOptions, choose_bundle, open_runtime
from edge_runtime.errors import CloudUnavailableError

if TYPE_CHECKING:
    from edge_runtime.decisions import Decider
    from edge_runtime.form import Form
    from edge_runtime.runtime import EdgeRuntime

_EPILOG = """\
examples:
  python -m edge_runtime.decide --schema edge_runtime/triage.json --text "The pump is down, send someone"
  python -m edge_runtime.decide --schema triage.json --text - --url http://localhost:8080 < message.txt
  python -m edge_runtime.decide --schema triage.json --calibrate rows.jsonl --accuracy 0.9
  python -m edge_runtime.decide --schema triage.json --text - --backend openai:http://host:8000/v1 --model m

exit codes: 0 done, 2 wrong usage, 4 bad or missing model, 5 refused, 7 the device alone, 130 interrupted
"""

_WHAT = {"either": "what", "required": True, "metavar": "TEXT"}


@dataclass(frozen=True, kw_only=True)
class _DecideArguments(ModelOptions):
    """Answer questions with listed options about a text: their probabilities are read, nothing is written."""

    schema: Path = option(None, "JSON Schema of booleans, enums, small integers and sets", required=True)
    text: str | None = option(None, "the text; - for standard input", **_WHAT)
    calibrate: Path | None = option(
        None,
        'fit device and cloud to labelled rows, JSONL of {"text": ..., "value": {...}}, and keep it',
        **_WHAT | {"metavar": "FILE"},
    )
    accuracy: float | None = option(
        None, "with --calibrate: of what the device answers itself; sets its threshold", metavar="A"
    )
    url: str | None = option(None, "service that reads the questions the device is not sure of")
    backend: str | None = option(
        None, "in its place a server of OpenAI's protocol that tells log-probabilities: openai:URL"
    )
    model: str | None = option(None, "its name of the model", metavar="NAME")
    threshold: float | None = option(
        None, "probability below which it is asked (default: as calibrated, else 0.8)", metavar="P"
    )
    timeout: float = option(15.0, "most seconds to wait for it (default 15)", metavar="S")
    json: bool = option(False, "print one JSON object: value, probabilities, sources")


def main(argv: Sequence[str] | None = None) -> int:
    return run_options(
        "edge_runtime.decide", _run, _DecideArguments, argv, _EPILOG, usage="--schema FILE --text TEXT"
    )


def _run(args: _DecideArguments) -> int:
    from edge_runtime.client.chat_server import ChatServer
    from edge_runtime.client.client import open_client
    from edge_runtime.form import Form

    form = Form.of(args.schema)
    client = open_client("url", args.url, None, args.timeout) if args.url else None
    edge = open_runtime(args, choose_bundle(client, args.edge))
    cloud: Decider | None = client
    if args.backend:
        cloud = ChatServer.open(args.backend, args.model, timeout=args.timeout)
    reader = args.model or args.url or ""
    if args.text is None:
        assert args.calibrate is not None  # the parser requires one of them
        return _calibrate(edge, form, args.calibrate, args.accuracy, cloud, reader)
    text = sys.stdin.read() if args.text == str(STDIN) else args.text
    return answer(edge, form, text, cloud, args.json, reader, args.threshold)


def _calibrate(
    edge: EdgeRuntime, form: Form, rows: Path, accuracy: float | None, cloud: Decider | None, reader: str
) -> int:
    from edge_runtime.decisions import Calibration, Read, fit, loss, read_rows, said, save

    slots, own = range(len(form.slots)), edge.bundle.variant_name
    read: dict[str, list[list[Read]]] = defaultdict(lambda: [[] for _ in slots])
    for text, right in read_rows(rows, form):
        scores = {own: edge.read_form(form, text)}
        if cloud:
            told = cloud.decide(form, text, slots)
            scores[reader] = [said(told[at]) for at in slots]
        for name, found in scores.items():
            for at in slots:
                read[name][at].append((found[at], right[at]))
    for name, questions in read.items():
        fitted = fit(questions, accuracy)
        before, now = (mean(map(loss, questions, hows)) for hows in ([Calibration()] * len(slots), fitted))
        print(
            f"{name}: {len(questions[0])} rows, {before:.3f} nats an answer before, {now:.3f} now; "
            f"threshold {fitted[0].threshold:g}; kept in {save(edge.bundle, form, name, fitted)}"
        )
    return 0


def answer(
    edge: EdgeRuntime,
    form: Form,
    text: str,
    cloud: Decider | None,
    as_json: bool,
    reader: str = "",
    threshold: float | None = None,
) -> int:
    """Writes the answers to a form's questions, as calibrated; returns the exit code."""
    from edge_runtime.decisions import Calibration, load

    own, theirs = (load(edge.bundle, form, name) for name in (edge.bundle.variant_name, reader))
    hows, code = own or [Calibration()] * len(form.slots), 0
    if threshold is not None:
        hows = [replace(each, threshold=threshold) for each in hows]
    try:
        decision = edge.decide(text, form, hows, cloud, theirs)
    except CloudUnavailableError as error:
        print(f"decide: {error}; this device answers alone", file=sys.stderr)
        decision, code = edge.decide(text, form, hows), ALONE
    if as_json:
        choices = [
            {
                "question": each.slot.title,
                "probabilities": dict(zip(each.slot.labels, each.probabilities, strict=True)),
                "source": each.source,
            }
            for each in decision.choices
        ]
        print(json.dumps({"value": decision.value, "choices": choices}, ensure_ascii=False))
        return code
    width = max(len(each.slot.title) for each in decision.choices)
    for each in decision.choices:
        label = each.slot.labels[each.index]
        print(f"{each.slot.title:<{width}}  {label:<24} {each.probability:.2f}  {each.source}")
    return code


if __name__ == "__main__":
    sys.exit(main())
