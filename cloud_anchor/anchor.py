"""`python -m cloud_anchor.anchor`: from a prompt to a payload.

Responsible for the command line. Not responsible for making payloads (see `pipeline`, `batch`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_anchor import options
from cloud_anchor.errors import RequestError
from common.cli import run_command
from common.files import write_whole
from common.progress import Bars
from payload import AUTO, TOLERANCE, AnchorSet, Codec

if TYPE_CHECKING:  # these bring torch along
    from cloud_anchor.pipeline import Pipeline, PipelineResult
    from common.progress import Progress

EPILOG = """examples:
  # the shipped model, 10% of its steps
  python -m cloud_anchor.anchor --model tiny --prompt "Where does the river end?" --fraction 0.1 \\
      -o payload.bin

  # the paper's settings on Dream-7B, anchors for the device that runs this bundle
  python -m cloud_anchor.anchor --model Dream-org/Dream-v0-Instruct-7B --edge bundles/qwen2.5-0.5b \\
      --order entropy --temperature 0.2 --top-p 0.95 --canvas 512 --fraction 0.1 \\
      --prompt-file prompt.txt -o payload.bin

  # many prompts, one JSON object or string per line; run again to continue after an interruption
  python -m cloud_anchor.anchor --input prompts.jsonl -o payloads/

exit codes: 0 ok, 2 usage, 3 nothing to send or some prompts failed, 4 bad or missing model,
6 too little memory, 130 interrupted
"""

PROFILES = {"bytes": Codec.PREDICTIVE.label, "latency": Codec.COMPACT.label}
"""Codec of each profile."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    return run_command("anchor", lambda: _run(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.anchor",
        description="Run part of a diffusion model's steps and write anchors of its answer as a payload.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", help="the question")
    source.add_argument(
        "--input", type=Path, metavar="JSONL", help="one prompt per line, payloads to the folder -o"
    )
    source.add_argument(
        "--prompt-file", type=Path, help="a UTF-8 file with the question, or - for standard input"
    )
    parser.add_argument(
        "-o", "--output", help="payload file, or - for standard output; with --input a folder"
    )
    parser.add_argument("--batch", type=int, default=8, help="answers denoised together (default 8)")
    parser.add_argument(
        "--json", action="store_true", help="print everything, with the commit history, as JSON"
    )

    model = options.add_model(parser)
    model.add_argument("--compile", action="store_true", help="torch.compile: slow first steps, then faster")
    options.add_sampling(parser)
    options.add_selection(parser)

    goal = parser.add_argument_group("goal, in place of fraction, selection and codec")
    goal.add_argument(
        "--target-f1",
        type=float,
        metavar="X",
        help="fewest steps, then bytes, measured to give this mean F1",
    )
    goal.add_argument(
        "--frontier",
        type=Path,
        metavar="FILE",
        help="table of measured settings, from lab.experiments.frontier (default: the shipped pair's)",
    )
    out = parser.add_argument_group("payload")
    written = out.add_mutually_exclusive_group()
    written.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        help="bytes: codec predictive, fewest bytes, one pass of the edge model per position; latency: codec "
        "compact, fewest passes (default)",
    )
    written.add_argument(
        "--codec",
        choices=[AUTO, *(codec.label for codec in Codec)],
        help="codec by name",
    )
    out.add_argument(
        "--rank-tolerance",
        type=float,
        default=TOLERANCE,
        metavar="NATS",
        help="by how much the device's log-probabilities may differ from those here, with codec predictive "
        f"(default {TOLERANCE})",
    )
    out.add_argument(
        "--rank-guard", dest="rank_tolerance", type=float, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    out.add_argument(
        "--embed-prompt",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="carry the prompt, so that the file is filled without it (default); the device usually has it",
    )
    out.add_argument(
        "--confidence",
        action="store_true",
        help="carry how sure the diffusion model is of each anchor, 2 bits each, for the device's doubt",
    )
    return parser


def apply_target(args: argparse.Namespace) -> None:
    """Sets fraction, selection and codec for --target-f1; raises RequestError."""
    from cloud_anchor.selection.target import cheapest, read_table
    from cloud_anchor.shipped import PAIRS
    from edge_runtime.bundle.bundle import bundle_folder, read_manifest

    pair = PAIRS.get(args.model)
    edge: Path | None = args.edge or (pair.bundle if pair else None)
    table = args.frontier or (pair.settings if pair and pair.settings.is_file() else None)
    if edge is None or table is None:
        raise RequestError("target F1: expected an edge bundle (--edge) and its table (--frontier)")
    if any(given is not None for given in (args.steps, args.total_steps, args.select, args.threshold)):
        raise RequestError(
            "target F1: expected no --steps, --total-steps, --select or --threshold, for it chooses them"
        )
    manifest = read_manifest(bundle_folder(edge))
    settings = read_table(table, manifest.fingerprint(manifest.default_variant).hex())
    named = args.codec or (args.profile and PROFILES[args.profile])
    chosen = cheapest(settings, args.target_f1, {named} if named else set(PROFILES.values()))
    args.fraction, args.select, args.threshold = chosen.fraction, chosen.select, chosen.threshold
    args.total_steps, args.codec = chosen.total_steps, chosen.codec
    print(
        f"anchor: {chosen.fraction:.0%} of {chosen.total_steps} steps, {chosen.select} from "
        f"{chosen.threshold} on, codec {chosen.codec}: measured F1 {chosen.f1:.3f}, {chosen.bytes:.1f} bytes",
        file=sys.stderr,
    )


def _open_pipeline(args: argparse.Namespace, answers: int, progress: Progress) -> Pipeline:
    pipeline = options.open_pipeline(args, compiled=args.compile, answers=answers, progress=progress)
    pipeline.tolerance = args.rank_tolerance
    return pipeline


def _run(args: argparse.Namespace) -> int:
    if args.target_f1 is not None:
        apply_target(args)
    args.codec = args.codec or PROFILES[args.profile or "latency"]
    return _run_one(args) if args.input is None else _run_many(args)


def _run_one(args: argparse.Namespace) -> int:
    prompt = _prompt(args)
    options.check(args)
    bars = Bars("anchor", passing=True)
    pipeline = _open_pipeline(args, 1, bars)
    config, selection = options.denoise_config(args, pipeline.plan([prompt])), options.selection(args)
    (result,) = pipeline.make(
        [prompt], config, selection, args.codec, args.embed_prompt, bars, confidence=args.confidence
    )
    payloads = {
        embed: pipeline.payload(result, args.codec, embed, args.confidence) for embed in (True, False)
    }
    data = payloads[args.embed_prompt]
    if args.output == "-":
        sys.stdout.buffer.write(data)
    elif args.output:
        write_whole(Path(args.output), data)
    sizes = {"written": len(data), "with_prompt": len(payloads[True]), "without_prompt": len(payloads[False])}
    decode = pipeline.form.tokenizer.decode
    if args.json:
        report = sys.stderr if args.output == "-" else sys.stdout
        print(json.dumps(_json(result, sizes, decode)), file=report)
    else:
        print(_text(result, sizes, decode, args.output), file=sys.stderr)
    return 0


def _run_many(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from cloud_anchor.batch import MANIFEST, BatchOptions, Folder, read_jobs, run_batch

    if not args.output or args.output == "-":
        raise RequestError("input: expected a folder for the payloads (-o FOLDER), found none")
    if args.batch < 1:
        raise RequestError(f"batch: expected at least 1, found {args.batch}")
    jobs = read_jobs(args.input)
    options.check(args)
    pipeline = _open_pipeline(args, args.batch, Bars("anchor", passing=True))
    config, selection = pipeline.resolve(
        options.denoise_config(args, pipeline.plan()), options.selection(args)
    )
    batch = BatchOptions(config, selection, args.codec, args.embed_prompt, args.batch, args.confidence)
    settings = {
        "model": args.model,
        "contract": pipeline.form.contract.identity,
        "codec": args.codec,
        "embed_prompt": args.embed_prompt,
        "rank_guard": args.rank_tolerance,
        **({"confidence": True} if args.confidence else {}),
        **config.to_json(),
        **{f"select_{name}": value for name, value in asdict(selection).items()},
    }
    folder = Folder(Path(args.output), settings)
    left = [job for job in jobs if job.name not in folder.done]
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed = 0
    with Progress(*columns, console=Console(stderr=True), disable=not left) as bar:
        task = bar.add_task("payloads", total=len(jobs), completed=len(jobs) - len(left))
        for error in run_batch(pipeline, left, folder, batch):
            failed += error is not None
            bar.advance(task)
    summary = {"prompts": len(jobs), "made": len(left) - failed, "already_there": len(jobs) - len(left)}
    summary["failed"] = failed
    if args.json:
        print(json.dumps(summary))
    else:
        print(
            ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in summary.items()), file=sys.stderr
        )
    if failed:
        print(f"anchor: {failed} prompts failed; see the errors in {folder.path / MANIFEST}", file=sys.stderr)
        return 3
    return 0


def _prompt(args: argparse.Namespace) -> str:
    if args.prompt is not None:
        prompt = str(args.prompt)
    else:
        try:
            prompt = sys.stdin.read() if str(args.prompt_file) == "-" else args.prompt_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(
                f"{args.prompt_file}: expected a readable UTF-8 text, found: {error}"
            ) from error
    if not prompt.strip():
        raise RequestError("prompt: expected a question, found nothing but spaces")
    return prompt


Decode = Callable[[Sequence[int]], str]


def _json(result: PipelineResult, sizes: dict[str, int], decode: Decode) -> dict[str, Any]:
    run, anchors = result.run, result.anchors
    report: dict[str, Any] = {
        "prompt": result.prompt,
        "prompt_tokens": len(run.prompt_ids),
        "steps": run.steps,
        "total_steps": run.total_steps,
        "canvas": run.canvas,
        "length": anchors.length,
        "anchors": [
            {"position": position, "id": token, "text": decode([token])}
            for position, token in anchors.by_position.items()
        ],
        "coverage": run.coverage,
        "s50": run.s50,
        "predicted_text": decode(run.predicted_answer),
        "history": [
            {"step": commit.step, "positions": commit.positions, "ids": commit.ids} for commit in run.history
        ],
        "bytes": sizes,
        "contract": anchors.contract.to_json(),
    }
    if result.walk is not None:
        report["edge"] = {"passes": result.walk.passes, "tokens": result.walk.tokens}
        report["edge"]["text"] = decode(result.walk.text)
    if run.guide_passes:
        report["guide"] = {"passes": run.guide_passes, "tokens": run.guide_tokens}
    return report


GAP = "·"
"""Stands for one or more tokens that are not sent."""


def skeleton(anchors: AnchorSet, decode: Decode) -> str:
    """The anchors as text, with one dot for each gap."""
    parts: list[str] = []
    expected = 0
    for position, token in anchors.by_position.items():
        parts += [GAP] * (position > expected) + [decode([token])]
        expected = position + 1
    open_end = anchors.length is None or anchors.length > expected
    return "".join(parts) + GAP * open_end


def _text(result: PipelineResult, sizes: dict[str, int], decode: Decode, output: str | None) -> str:
    run, anchors = result.run, result.anchors
    length = "open" if anchors.length is None else f"{anchors.length} tokens"
    lines = [
        skeleton(anchors, decode),
        "",
        f"{run.steps} of {run.total_steps} steps, canvas {run.canvas}, answer length {length}",
        f"{len(anchors)} anchors, {sizes['without_prompt']} bytes ({sizes['with_prompt']} with the prompt)",
    ]
    if run.guide_passes:
        lines.append(f"{run.guide_passes} guiding passes of the edge model over {run.guide_tokens} tokens")
    if result.walk is not None:
        lines.append(f"{result.walk.passes} passes of the edge model over {result.walk.tokens} tokens")
    if output and output != "-":
        lines.append(f"{output}: {sizes['written']} bytes written")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
