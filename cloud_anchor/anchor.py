"""`python -m cloud_anchor.anchor`: from a prompt to a payload.

Knows the command line. The work is done by `pipeline`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_anchor.errors import CloudError, RequestError
from edge_runtime.errors import EdgeError
from payload import AUTO, TOLERANCE, AnchorSet, Codec, PayloadError
from payload.files import InputError, write_whole

if TYPE_CHECKING:  # these bring torch along
    from cloud_anchor.pipeline import Pipeline, PipelineResult, Selection
    from cloud_anchor.sampling.sampler import DenoiseConfig

EPILOG = """examples:
  # the shipped model, 10% of its steps
  python -m cloud_anchor.anchor --model tiny --prompt "Where does the river end?" --fraction 0.1 \\
      -o payload.bin

  # the paper's settings on Dream-7B, anchors for the device that runs this bundle
  python -m cloud_anchor.anchor --model Dream-org/Dream-v0-Instruct-7B --edge bundles/qwen2.5-0.5b \\
      --alg entropy --temperature 0.2 --top-p 0.95 --canvas 512 --fraction 0.1 \\
      --prompt-file prompt.txt -o payload.bin

  # many prompts, one JSON object or string a line; run again to go on after an interruption
  python -m cloud_anchor.anchor --input prompts.jsonl -o payloads/

exit codes: 0 ok, 2 usage, 3 nothing that could be sent or single prompts failed, 4 bad or missing model,
130 interrupted
"""

PROFILES = {"bytes": Codec.PREDICTIVE.label, "latency": Codec.COMPACT.label}
"""Codec of each profile."""

TINY_TABLE = Path(__file__).parent / "tiny" / "frontier.json"

QUOTA = "quota"

PLAN_TO_CHECK = (256, 1 << 16)
"""Stands for the model's plan while options are checked before it is known; it allows all steps."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        if args.target_f1 is not None:
            aim(args)
        args.codec = args.codec or PROFILES[args.profile or "latency"]
        return _run(args) if args.input is None else _run_many(args)
    except (CloudError, EdgeError) as error:
        return _fail(error, error.exit_code)
    except InputError as error:
        return _fail(error, 2)
    except PayloadError as error:
        return _fail(error, 3)
    except KeyboardInterrupt:
        return 130


def _fail(error: Exception, code: int) -> int:
    print(f"anchor: {error}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cloud_anchor.anchor",
        description="Run a part of a diffusion model's steps and write what it knows as a payload.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", help="the question")
    source.add_argument(
        "--input", type=Path, metavar="JSONL", help="a prompt a line, payloads to the folder -o"
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

    model = parser.add_argument_group("model")
    model.add_argument("--model", default="tiny", help="tiny, a folder, or a hub name (default: tiny)")
    model.add_argument(
        "--edge", type=Path, metavar="BUNDLE", help="the device's bundle: its template and contract"
    )
    model.add_argument("--device", help="cuda, cpu (default: cuda where there is one)")
    model.add_argument("--compile", action="store_true", help="torch.compile: slow first steps, then faster")
    model.add_argument("--dtype", help="float32, bfloat16, float16 (default: bfloat16 on cuda, else float32)")

    add_sampling(parser)
    add_selection(parser)

    goal = parser.add_argument_group("goal, in place of fraction, selection and codec")
    goal.add_argument(
        "--target-f1", type=float, metavar="X", help="least steps, then bytes, measured to give this mean F1"
    )
    goal.add_argument(
        "--frontier",
        type=Path,
        metavar="FILE",
        help="the table to choose from, made by cloud_anchor.suite.frontier (default: the tiny pair's)",
    )
    out = parser.add_argument_group("payload")
    written = out.add_mutually_exclusive_group()
    written.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        help="bytes: codec predictive, fewest bytes, a pass of the edge model a position; latency: codec "
        "compact, fewest passes (default)",
    )
    written.add_argument(
        "--codec",
        choices=[AUTO, *(codec.label for codec in Codec)],
        help="how it is written, by name",
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
        help="carry the prompt, so that the file can be filled alone (default); the device usually has it",
    )
    return parser


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """The options of `sampler.DenoiseConfig`."""
    group = parser.add_argument_group("denoising")
    length = group.add_mutually_exclusive_group()
    length.add_argument("--fraction", type=float, default=0.1, help="share of the steps to run (default 0.1)")
    length.add_argument("--steps", type=int, help="steps to run, instead of a share")
    group.add_argument("--total-steps", type=int, help="steps of a full run (default: the model's, or 128)")
    group.add_argument("--canvas", type=int, help="response positions (default: the model's, or 256)")
    group.add_argument(
        "--alg",
        default="confidence",
        help="order of commits: confidence (default), or Dream's origin, maskgit_plus, topk_margin, entropy",
    )
    group.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token (default)")
    group.add_argument("--top-p", type=float, help="nucleus filter")
    group.add_argument("--top-k", type=int, help="keep this many tokens")
    group.add_argument(
        "--alg-temp", type=float, help="draw positions by their score instead of taking the best"
    )
    group.add_argument("--schedule", default="dream", help="dream (default) or cosine")
    group.add_argument(
        "--commit-above",
        type=_commit_rule,
        metavar="P",
        help="commit all tokens this sure at once, or `quota`: the schedule's number a step (default: "
        "quota for select paper and other orders than confidence, else 0.9 until the answer is complete)",
    )
    group.add_argument("--stop", metavar="RULE", help="end an answer before: complete, prophet, plateau")
    group.add_argument(
        "--prefix-every",
        type=int,
        default=0,
        metavar="N",
        help="run the prompt in every Nth step only: faster behind long prompts, and approximate (default: "
        "every step)",
    )
    group.add_argument("--seed", type=int, default=0)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options of `pipeline.Selection`."""
    group = parser.add_argument_group("selection")
    group.add_argument(
        "--select",
        metavar="HOW",
        help="paper: what is committed; confidence: what is predicted with at least --threshold; edge-aware: "
        "what of that the edge model would not write by itself (default where there is an edge model)",
    )
    group.add_argument(
        "--threshold", type=float, metavar="P", help="probability that makes a prediction bind"
    )
    group.add_argument(
        "--guard", type=float, metavar="LOGITS", help="send what the edge would only just write"
    )
    group.add_argument("--edge-passes", type=int, metavar="N", help="most passes of the edge model")
    group.add_argument("--max-bytes", type=int, metavar="N", help="keep the anchors that help most")


def _commit_rule(text: str) -> float | str:
    try:
        return QUOTA if text == QUOTA else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a probability or {QUOTA!r}, found {text!r}") from None


def suited(args: argparse.Namespace, pipeline: Pipeline, config: DenoiseConfig, how: str) -> DenoiseConfig:
    """`pipeline.suited`, unless the command line says how to commit."""
    return config if args.commit_above == QUOTA else pipeline.suited(config, how)


def config_of(args: argparse.Namespace, canvas: int, steps: int) -> DenoiseConfig:
    """The sampling options, with canvas and steps of a full run where none are given; raises RequestError."""
    from cloud_anchor.sampling.sampler import DenoiseConfig, steps_for

    total = steps if args.total_steps is None else args.total_steps
    return DenoiseConfig(
        canvas=canvas if args.canvas is None else args.canvas,
        total_steps=total,
        steps=args.steps if args.steps is not None else steps_for(args.fraction, total),
        alg=args.alg,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        alg_temp=args.alg_temp,
        schedule=args.schedule,
        threshold=None if args.commit_above == QUOTA else args.commit_above,
        stop=args.stop,
        prefix_every=args.prefix_every,
        seed=args.seed,
    )


def aim(args: argparse.Namespace) -> None:
    """Sets fraction, selection and codec as --target-f1 asks for; raises RequestError."""
    from cloud_anchor.selection.target import cheapest, read_table
    from edge_runtime.bundle.bundle import read_manifest
    from edge_runtime.bundle.lookup import SHIPPED

    edge = args.edge or (SHIPPED if args.model == "tiny" else None)
    table = args.frontier or (TINY_TABLE if args.model == "tiny" else None)
    if edge is None or table is None:
        raise RequestError("target F1: expected an edge bundle (--edge) and its table (--frontier)")
    if any(given is not None for given in (args.steps, args.total_steps, args.select, args.threshold)):
        raise RequestError(
            "target F1: expected no --steps, --total-steps, --select or --threshold, for it chooses them"
        )
    manifest = read_manifest(edge)
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


def selection_of(args: argparse.Namespace) -> Selection:
    """The selection options, read; raises RequestError."""
    from cloud_anchor.pipeline import Selection
    from cloud_anchor.selection.edge_aware import EdgeAwareConfig

    dials = {"threshold": args.threshold, "guard": args.guard, "max_passes": args.edge_passes}
    given = {name: value for name, value in dials.items() if value is not None}
    return Selection(args.select, EdgeAwareConfig(**given), args.max_bytes)


def open_pipeline(args: argparse.Namespace) -> Pipeline:
    """The models that the options name."""
    from cloud_anchor.pipeline import Pipeline

    pipeline = Pipeline.open(
        args.model, edge=args.edge, device=args.device, dtype=args.dtype, compiled=args.compile
    )
    pipeline.tolerance = args.rank_tolerance
    return pipeline


def _run(args: argparse.Namespace) -> int:
    prompt = _prompt(args)
    # Imported here: `--help` and a mistyped option should not wait for torch.
    from cloud_anchor.sampling.sampler import denoise

    selection = selection_of(args)
    config_of(args, *PLAN_TO_CHECK)  # a wrong option fails before a model is loaded
    pipeline = open_pipeline(args)
    config = suited(args, pipeline, config_of(args, *pipeline.plan([prompt])), pipeline.how(selection))
    runs = denoise(pipeline.model, [pipeline.form.ids(prompt)], config)
    (made,) = pipeline.choose([prompt], runs, selection, args.codec, args.embed_prompt)
    payloads = {embed: pipeline.payload(made, args.codec, embed) for embed in (True, False)}
    data = payloads[args.embed_prompt]
    if args.output == "-":
        sys.stdout.buffer.write(data)
    elif args.output:
        write_whole(Path(args.output), data)
    sizes = {"written": len(data), "with_prompt": len(payloads[True]), "without_prompt": len(payloads[False])}
    decode = pipeline.form.tokenizer.decode
    if args.json:
        report = sys.stderr if args.output == "-" else sys.stdout
        print(json.dumps(_json(made, sizes, decode)), file=report)
    else:
        print(_text(made, sizes, decode, args.output), file=sys.stderr)
    return 0


def _run_many(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from cloud_anchor.batch import MANIFEST, BatchOptions, Folder, read_jobs, run_batch
    from cloud_anchor.pipeline import DEFAULT_PLAN

    if not args.output or args.output == "-":
        raise RequestError("input: expected a folder for the payloads (-o FOLDER), found none")
    if args.batch < 1:
        raise RequestError(f"batch: expected at least 1, found {args.batch}")
    jobs = read_jobs(args.input)
    selection = selection_of(args)
    config_of(args, *PLAN_TO_CHECK)
    pipeline = open_pipeline(args)
    config = suited(
        args, pipeline, config_of(args, *(pipeline.model.plan or DEFAULT_PLAN)), pipeline.how(selection)
    )
    options = BatchOptions(config, selection, args.codec, args.embed_prompt, args.batch)
    settings = {
        "model": args.model,
        "contract": pipeline.form.contract.identity,
        "codec": args.codec,
        "embed_prompt": args.embed_prompt,
        "rank_guard": args.rank_tolerance,
        **asdict(config),
        **{f"select_{name}": value for name, value in asdict(selection).items()},
    }
    folder = Folder(Path(args.output), settings)
    left = [job for job in jobs if job.name not in folder.done]
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    failed = 0
    with Progress(*columns, console=Console(stderr=True), disable=not left) as bar:
        task = bar.add_task("payloads", total=len(jobs), completed=len(jobs) - len(left))
        for error in run_batch(pipeline, left, folder, options):
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


def _json(made: PipelineResult, sizes: dict[str, int], decode: Decode) -> dict[str, Any]:
    run, anchors = made.run, made.anchors
    report: dict[str, Any] = {
        "prompt": made.prompt,
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
    if made.walk is not None:
        report["edge"] = {"passes": made.walk.passes, "tokens": made.walk.tokens}
        report["edge"]["text"] = decode(made.walk.text)
    return report


GAP = "·"
"""Stands for a run of tokens that are not sent."""


def skeleton(anchors: AnchorSet, decode: Decode) -> str:
    """The anchors as text with a dot for each gap."""
    parts: list[str] = []
    expected = 0
    for position, token in anchors.by_position.items():
        parts += [GAP] * (position > expected) + [decode([token])]
        expected = position + 1
    open_end = anchors.length is None or anchors.length > expected
    return "".join(parts) + GAP * open_end


def _text(made: PipelineResult, sizes: dict[str, int], decode: Decode, output: str | None) -> str:
    run, anchors = made.run, made.anchors
    length = "open" if anchors.length is None else f"{anchors.length} tokens"
    lines = [
        skeleton(anchors, decode),
        "",
        f"{run.steps} of {run.total_steps} steps, canvas {run.canvas}, answer length {length}",
        f"{len(anchors)} anchors, {sizes['without_prompt']} bytes ({sizes['with_prompt']} with the prompt)",
    ]
    if made.walk is not None:
        lines.append(f"{made.walk.passes} passes of the edge model over {made.walk.tokens} tokens")
    if output and output != "-":
        lines.append(f"{output}: {sizes['written']} bytes written")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
