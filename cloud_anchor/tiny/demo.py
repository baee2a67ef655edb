"""The whole way on the shipped pair, shown in a terminal: `make demo`.

Prompt -> a tenth of the denoising steps -> anchors -> payload.bin -> forced decoding -> text, and beside it
what the full diffusion run says. Every figure is computed from what just ran.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cloud_anchor.errors import CloudError
from cloud_anchor.metrics import word_f1
from cloud_anchor.sampling.config import commit_in_parallel, steps_for
from cloud_anchor.sampling.denoised import Denoised
from cloud_anchor.sampling.sampler import denoise, denoise_steps
from cloud_anchor.selection.scorer import EngineScorer
from cloud_anchor.suite.conditions import PARALLEL_CONDITIONS, SWIFT, Situation, committed
from cloud_anchor.tiny.check import is_right
from cloud_anchor.tiny.pair import FULL_RUN, Pair
from cloud_anchor.tiny.problem import Problem
from cloud_anchor.tiny.tasks import held_out_problems, problems
from edge_runtime.decode.forced import FillStats, Source, Token
from edge_runtime.errors import EdgeError
from payload import AnchorSet, Extras, PayloadError, Shared, encode
from payload.files import write_whole

CLOUD, EDGE, GAP = "cyan", "yellow", "·"
SELECTIONS = {"edge-aware": PARALLEL_CONDITIONS[SWIFT].select, "paper": committed}


@dataclass(frozen=True)
class Run:
    """One way through the denoising steps, and the seconds it took."""

    found: Denoised
    seconds: float


@dataclass(frozen=True)
class Filled:
    """What one payload became on the device."""

    anchors: AnchorSet
    data: bytes
    tokens: list[Token]
    stats: FillStats
    text: str


def held_out_problem(seed: int) -> Problem:
    """A test problem: a description, for these are the longest answers."""
    stream = problems("description", seed, held_out=True)
    return next(p for p in stream if p.difficulty == "hard")


def known_problem(prompt: str) -> Problem | None:
    """The test problem with this very prompt, if it is one of the first few hundred."""
    return next((p for p in held_out_problems(400) if p.prompt == prompt), None)


def run_cloud(pair: Pair, prompt_ids: list[int], steps: int) -> dict[str, Run]:
    """By name: `paper`, a quota a step, stopped after `steps`; `full`, the same to its end; `edge-aware`, in
    which whatever is sure commits at once, for as many steps or until the answer is complete.
    """
    runs = {}
    started = time.perf_counter()
    for state in denoise_steps(pair.dream, [prompt_ids], FULL_RUN):
        if state.steps[0] in (steps, FULL_RUN.total_steps):
            (found,) = state.results(pair.dream, FULL_RUN)
            name = "paper" if "paper" not in runs else "full"
            runs[name] = Run(found, time.perf_counter() - started)
    started = time.perf_counter()
    (swift,) = denoise(pair.dream, [prompt_ids], replace(commit_in_parallel(FULL_RUN), steps=steps))
    runs["edge-aware"] = Run(swift, time.perf_counter() - started)
    runs.setdefault("full", runs["paper"])
    return runs


def fill_file(pair: Pair, prompt: str, path: Path, anchors: AnchorSet, extras: Extras) -> Filled:
    """Write the payload, read it back and fill it, as a device would."""
    data = encode(anchors, Shared(anchors.contract, pair.form.ids(prompt)), extras=extras)
    write_whole(path, data)
    request = pair.edge.read(path.read_bytes(), prompt)
    tokens, stats = pair.fill(request.prompt_ids, request.anchors)
    return Filled(request.anchors, data, tokens, stats, pair.text([t.id for t in tokens]))


def show_anchors(pair: Pair, anchors: AnchorSet) -> Text:
    """The anchors at their places, a dot for each position that is left to the device."""
    text = Text()
    at = anchors.by_position
    end = anchors.length if anchors.length is not None else (max(at, default=-1) + 1)
    for position in range(end):
        if position in at:
            text.append(pair.text([at[position]]), style=f"bold {CLOUD}")
        else:
            text.append(GAP, style=EDGE)
    if anchors.length is None:
        text.append(" ...", style="dim")
    return text


def show_tokens(pair: Pair, tokens: list[Token]) -> Text:
    """The filled text, cloud and edge tokens in two colours."""
    text = Text()
    stream = pair.edge.text_stream()
    for token in tokens:
        style = f"bold {CLOUD}" if token.source is Source.ANCHOR else EDGE
        text.append(stream.push(token.id), style=style)
    text.append(stream.flush())
    return text


def _verdict(problem: Problem | None, text: str) -> str:
    return "unchecked" if problem is None else "right" if is_right(problem, text) else "wrong"


def run(pair: Pair, prompt: str, problem: Problem | None, fraction: float, select: str, path: Path) -> None:
    """Show everything for one prompt; writes the payload to `path`."""
    console = Console()
    steps = steps_for(fraction, FULL_RUN.total_steps)
    prompt_ids = pair.form.ids(prompt)
    runs = run_cloud(pair, prompt_ids, steps)
    full = runs["full"].found
    scorer = EngineScorer(pair.edge.engine, pair.form.contract.eos_ids)
    situation = Situation(
        runs["paper"].found, full.answer, pair.form.contract, scorer, 0, runs["edge-aware"].found
    )
    reference = pair.text(full.answer)
    filled = {
        name: fill_file(pair, prompt, path, choose(situation), runs[name].found.extras())
        for name, choose in SELECTIONS.items()
    }
    chosen = filled[select]
    write_whole(path, chosen.data)
    alone_tokens, alone_stats = pair.fill(prompt_ids, situation.anchors({}))
    alone = pair.text([t.id for t in alone_tokens])
    ran = runs[select].found.steps

    note = "" if problem is None else f" ({problem.family}, {problem.difficulty}; not in the training set)"
    console.print(Panel(prompt, title=f"prompt{note}", title_align="left"))
    console.print(
        Panel(
            show_anchors(pair, chosen.anchors),
            title=f"anchors after {ran} of {FULL_RUN.total_steps} diffusion steps, chosen {select}; "
            f"[{EDGE}]{GAP}[/] is left to the device",
            title_align="left",
        )
    )
    console.print(
        Panel(
            show_tokens(pair, chosen.tokens),
            title=f"filled on the device: [bold {CLOUD}]cloud[/] and [{EDGE}]edge[/] tokens",
            title_align="left",
        )
    )
    console.print(
        Panel(reference, title=f"full diffusion run, {FULL_RUN.total_steps} steps", title_align="left")
    )
    _table(console, problem, reference, alone, alone_stats, len(alone_tokens), filled, len(full.answer))
    packed = len(gzip.compress(reference.encode(), mtime=0))
    saved = FULL_RUN.total_steps - ran
    console.print(
        f"payload        [bold]{len(chosen.data)} bytes[/] in {path}, against {packed} for gzip of the full "
        "text\n"
        f"diffusion      {ran} steps run of {steps} asked for, [bold]{saved} of {FULL_RUN.total_steps} "
        "saved[/] "
        f"({runs[select].seconds:.2f} s against {runs['full'].seconds:.2f} s)\n"
        f"edge           {chosen.stats.passes} forward passes for {len(chosen.tokens)} tokens\n"
        f"once more      python -m edge_runtime.fill {path} --prompt {prompt!r}",
        highlight=False,
        soft_wrap=True,
    )


def _table(
    console: Console,
    problem: Problem | None,
    reference: str,
    alone: str,
    alone_stats: FillStats,
    alone_tokens: int,
    filled: dict[str, Filled],
    full_tokens: int,
) -> None:
    table = Table()
    for column in ("", "word F1", "answer", "tokens sent", "bytes", "edge passes", "tokens"):
        table.add_column(column, justify="right" if column else "left")

    def row(name: str, text: str, sent: str, size: str, passes: str, tokens: int) -> None:
        table.add_row(
            name, f"{word_f1(text, reference):.3f}", _verdict(problem, text), sent, size, passes, str(tokens)
        )

    row("edge model alone", alone, "0", "0", str(alone_stats.passes), alone_tokens)
    for name, one in filled.items():
        sizes = (str(len(one.anchors)), str(len(one.data)), str(one.stats.passes), len(one.tokens))
        row(f"anchors, {name}", one.text, *sizes)
    row("full diffusion run", reference, "", "", "", full_tokens)
    console.print(table)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.tiny.demo",
        description="Run the whole loop on the shipped pair and show it.",
        epilog='example: python -m cloud_anchor.tiny.demo --prompt "Tell me about Torden: its river, mayor, '
        'dish, bird and craft."',
    )
    parser.add_argument("--prompt", help="what to ask (default: a held-out problem)")
    parser.add_argument("--seed", type=int, default=0, help="which held-out problem")
    parser.add_argument(
        "--fraction", type=float, default=0.1, help="share of the diffusion steps (default 0.1)"
    )
    parser.add_argument(
        "--select", choices=list(SELECTIONS), default="edge-aware", help="which payload is written"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("payload.bin"))
    parser.add_argument("--model", default="tiny", help="diffusion checkpoint (default: the shipped one)")
    parser.add_argument("--edge", type=Path, help="edge bundle (default: the shipped one)")
    args = parser.parse_args(argv)
    try:
        pair = Pair.load(args.model, **({"bundle": args.edge} if args.edge else {}))
        problem = known_problem(args.prompt) if args.prompt else held_out_problem(args.seed)
        prompt = args.prompt or (problem.prompt if problem else "")
        run(pair, prompt, problem, args.fraction, args.select, args.output)
    except (CloudError, EdgeError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except PayloadError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    # A short program that people wait for: collecting garbage while libraries load takes half a second of it,
    # and taking torch apart at the end another one.
    gc.disable()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
