"""The whole loop on a shipped pair: `make demo`.

Prompt -> a tenth of the denoising steps -> anchors -> payload -> forced decoding -> text, and beside it the
full diffusion run. Every figure is computed from this run. `send` is the public API in the order of the data.
Responsible for what is run. Not responsible for how it is shown (see `demo_view`).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from common.cli import CommandParser, required, run_command
from common.files import write_whole

with required("demo", "cloud"):
    from cloud_anchor.demo_view import Filled, Generated, show
    from cloud_anchor.errors import RequestError
    from cloud_anchor.options import BACKEND_KEY
    from cloud_anchor.pipeline import Pipeline
    from cloud_anchor.sampling.config import DenoiseConfig, steps_for
    from cloud_anchor.sampling.denoised import Denoised
    from cloud_anchor.selection.select import EDGE_AWARE, PAPER, Selection
    from cloud_anchor.shipped import DEFAULT_MODEL, PAIRS, TAUGHT, bundle_of, names_a_subject
    from edge_runtime.decisions import Calibration
    from edge_runtime.decode.forced import FillOptions
    from edge_runtime.form import Form, Slot
    from edge_runtime.runtime import EdgeRuntime, FillRequest
    from payload import AUTO, AnchorSet
    from payload.decisions import encode_decisions

QUESTION = "Tell me about Peru."
"""Asked of the taught model where the user names neither: a long answer, which shows what is saved."""
DECISION = "What is the currency of Peru?"
CURRENCIES = ("peso", "nuevo sol", "real", "dollar")


def send(
    pipeline: Pipeline,
    edge: EdgeRuntime,
    prompt: str,
    config: DenoiseConfig,
    selection: Selection,
    path: Path,
    known: Denoised | None = None,
) -> Filled:
    """One prompt's way from the cloud to the device, with the payload in a file between. known: the run."""
    # In the cloud: denoise, select the anchors, encode.
    started = time.perf_counter()
    made = pipeline.select([prompt], [known], selection, AUTO) if known else None
    (result,) = made or pipeline.make([prompt], config, selection, AUTO)
    seconds = time.perf_counter() - started
    write_whole(path, pipeline.payload(result, AUTO))

    # On the device: decode the payload, fill in what it leaves open.
    data = path.read_bytes()
    request = edge.read(data, prompt)
    return Filled(result, seconds, data, generate(edge, request))


def generate(edge: EdgeRuntime, request: FillRequest) -> Generated:
    """The device's answer to a request, greedy, with its cost."""
    answer = edge.fill(request, FillOptions(score_anchors=False))
    tokens = list(answer)
    text = edge.bundle.tokenizer.decode([t.id for t in tokens])
    return Generated(tokens, answer.stats.passes, text, answer.doubt)


def run(pipeline: Pipeline, edge: EdgeRuntime, prompt: str, fraction: float, output: Path) -> None:
    """Runs both selections and the two ends between which they lie, and shows them.

    output: where the edge-aware payload is left.
    """
    full_run = pipeline.plan([prompt])
    config = replace(full_run, steps=full_run.steps or steps_for(fraction, full_run.total_steps))
    started = time.perf_counter()
    (full,) = pipeline.make([prompt], full_run, Selection(PAPER))
    seconds = time.perf_counter() - started
    # The last one's payload stays in the file. A server's text is one for all.
    paper, aware = (
        send(pipeline, edge, prompt, config, Selection(name), output, full.run if full_run.steps else None)
        for name in (PAPER, EDGE_AWARE)
    )
    nothing = AnchorSet.empty(full_run.canvas, pipeline.form.contract)
    alone = generate(edge, FillRequest(edge.prompt_ids(prompt), nothing))
    filled = {EDGE_AWARE: aware, PAPER: paper}
    show(prompt, edge, filled, alone, (full, seconds), config, output)


def decide(pipeline: Pipeline, edge: EdgeRuntime) -> None:
    """One choice, read by both models and not written, and its bytes."""
    from cloud_anchor.decide import probabilities  # PyTorch, which no server needs

    slot = Slot("currency", tuple(f" {each}" for each in CURRENCIES), CURRENCIES)
    form = Form(("The currency of Peru is the", "."), (slot,))
    found = probabilities(pipeline, form, DECISION)
    alone = [Calibration().probabilities(edge.scores(form, DECISION)[0]).tolist()]
    data = encode_decisions(form.identity, DECISION, form.sizes, found)
    cloud, device = (max(zip(each[0], CURRENCIES, strict=True)) for each in (found, alone))
    told = f"{cloud[1]}, {cloud[0]:.2f}, in {len(data)} bytes; the edge alone: {device[1]}, {device[0]:.2f}"
    print(f"a decision     {DECISION} Read in one pass: {told}")


def example(model: str, seed: int) -> str:
    """One of the questions that a checkpoint offers; raises RequestError where it offers none."""
    from cloud_anchor.model.checkpoint import find_checkpoint, read_examples

    found = read_examples(find_checkpoint(model))
    if not found:
        raise RequestError(f"{model}: expected a question (--prompt), for it comes without examples")
    return found[seed % len(found)]


def main(argv: list[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m cloud_anchor.demo",
        description="Run the whole loop on a shipped pair and show it.",
        epilog='example: python -m cloud_anchor.demo --prompt "What is the capital of Japan?"',
    )
    parser.add_argument("--prompt", help=f"the question (default: {QUESTION} to testbed-taught)")
    parser.add_argument("--seed", type=int, help="a held-out question, by its number")
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the steps (default 0.1)")
    parser.add_argument("-o", "--output", type=Path, default=Path("payload.bin"))
    parser.add_argument(
        "--model",
        help=f"{', '.join(PAIRS)}, or a diffusion checkpoint (default: {DEFAULT_MODEL})",
    )
    parser.add_argument("--backend", help="a server that runs it, such as openai:http://localhost:11434/v1")
    parser.add_argument("--edge", type=Path, help="edge bundle (default: the shipped pair's)")
    args = parser.parse_args(argv)

    def command() -> None:
        shown = args.model is args.prompt is args.seed is args.backend is None
        model = TAUGHT.format("testbed") if shown else args.model or DEFAULT_MODEL
        prompt = QUESTION if shown else args.prompt or example(model, args.seed or 0)
        place = bundle_of(model, args.edge)
        edge = EdgeRuntime.open(place)
        if not names_a_subject(model, prompt):
            print(f"This question names nothing that I know. I know {edge.bundle.manifest.knows}.")
            return
        key = os.environ.get(BACKEND_KEY)
        pipeline = Pipeline.open(model, edge=place, backend=args.backend, backend_key=key, device="cpu")
        run(pipeline, edge, prompt, args.fraction, args.output)
        if shown:
            decide(pipeline, edge)

    return run_command("demo", command, extra="cloud")


if __name__ == "__main__":
    # A short program that people wait for: collecting garbage while libraries load takes half a second of it,
    # and taking torch apart at the end another one.
    gc.disable()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
