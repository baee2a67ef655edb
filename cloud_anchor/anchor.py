"""`python -m cloud_anchor.anchor`: from a prompt to a payload.

Knows the command line. The work is done by `sampler`, `select` and `payload`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloud_anchor.errors import CloudError, RequestError
from edge_runtime.errors import EdgeError
from payload import AUTO, AnchorSet, Codec, PayloadError, encode
from payload.files import UsageError, write_whole

EPILOG = """examples:
  # the shipped model, 10% of its steps
  python -m cloud_anchor.anchor --model tiny --prompt "Where does the river end?" --fraction 0.1 -o
  payload.bin

  # the paper's settings on Dream-7B, anchors for the device that runs this bundle
  python -m cloud_anchor.anchor --model Dream-org/Dream-v0-Instruct-7B --edge bundles/qwen2.5-0.5b \\
      --alg entropy --temperature 0.2 --top-p 0.95 --canvas 512 --fraction 0.1 --prompt-file prompt.txt -o
      payload.bin

exit codes: 0 ok, 2 usage, 3 nothing that could be sent, 4 bad or missing model, 130 interrupted
"""

DEFAULT_CANVAS = 256


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except (CloudError, EdgeError) as error:
        return _fail(error, error.exit_code)
    except UsageError as error:
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
        "--prompt-file", type=Path, help="a UTF-8 file with the question, or - for standard input"
    )
    parser.add_argument("-o", "--output", help="payload file, or - for standard output")
    parser.add_argument(
        "--json", action="store_true", help="print everything, with the commit history, as JSON"
    )

    model = parser.add_argument_group("model")
    model.add_argument("--model", default="tiny", help="tiny, a folder, or a hub name (default: tiny)")
    model.add_argument(
        "--edge", type=Path, metavar="BUNDLE", help="the device's bundle: its template and contract"
    )
    model.add_argument("--device", help="cuda, cpu (default: cuda where there is one)")
    model.add_argument("--dtype", help="float32, bfloat16, float16 (default: bfloat16 on cuda, else float32)")

    add_sampling(parser)

    out = parser.add_argument_group("payload")
    out.add_argument(
        "--codec",
        default=Codec.COMPACT.label,
        choices=[AUTO, *(codec.label for codec in Codec)],
        help="how it is written",
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
    group.add_argument("--total-steps", type=int, default=128, help="steps of a full run (default 128)")
    group.add_argument(
        "--canvas",
        type=int,
        help=f"response positions (default {DEFAULT_CANVAS}, or what the model's context leaves)",
    )
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
        "--commit-above", type=float, metavar="P", help="commit all tokens this sure, not a quota"
    )
    group.add_argument("--seed", type=int, default=0)


@dataclass(frozen=True)
class _Sizes:
    """Bytes of one payload."""

    written: int
    with_prompt: int
    without_prompt: int


def _run(args: argparse.Namespace) -> int:
    prompt = _prompt(args)
    # Imported here: `--help` and a mistyped option should not wait for torch.
    from cloud_anchor.dream import find_checkpoint, load_model
    from cloud_anchor.prompts import prompt_form
    from cloud_anchor.sampler import DenoiseConfig, denoise, steps_for
    from cloud_anchor.select import committed
    from edge_runtime.bundle import Bundle

    bundle = Bundle.open(args.edge) if args.edge else None
    options = {
        "total_steps": args.total_steps,
        "steps": args.steps if args.steps is not None else steps_for(args.fraction, args.total_steps),
        "alg": args.alg,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k,
        "alg_temp": args.alg_temp,
        "schedule": args.schedule,
        "threshold": args.commit_above,
        "seed": args.seed,
    }
    DenoiseConfig(
        canvas=args.canvas or DEFAULT_CANVAS, **options
    )  # a wrong option fails before the model loads
    model = load_model(args.model, device=args.device, dtype=args.dtype)
    form = prompt_form(model, find_checkpoint(args.model), bundle)
    prompt_ids = form.ids(prompt)
    canvas = args.canvas or max(1, min(DEFAULT_CANVAS, model.context - len(prompt_ids)))
    config = DenoiseConfig(canvas=canvas, **options)
    (run,) = denoise(model, [prompt_ids], config)
    anchors = committed(run, form.contract, prompt)

    def payload(embed: bool) -> bytes:
        return encode(
            anchors,
            args.codec,
            prompt_ids=prompt_ids,
            tokens=form.tokenizer,
            embed_prompt=embed,
        )

    data = payload(args.embed_prompt)
    if args.output == "-":
        sys.stdout.buffer.write(data)
    elif args.output:
        write_whole(Path(args.output), data)
    sizes = _Sizes(len(data), len(payload(True)), len(payload(False)))
    if args.json:
        report = sys.stderr if args.output == "-" else sys.stdout
        print(json.dumps(_json(run, anchors, sizes, form.tokenizer.decode)), file=report)
    else:
        print(_text(run, anchors, sizes, form.tokenizer.decode, args.output), file=sys.stderr)
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


def _json(run: Any, anchors: AnchorSet, sizes: _Sizes, decode: Decode) -> dict[str, Any]:
    return {
        "prompt": anchors.prompt,
        "prompt_tokens": len(run.prompt_ids),
        "steps": run.steps,
        "total_steps": run.total_steps,
        "canvas": run.canvas,
        "length": anchors.length,
        "anchors": [
            {"position": position, "id": token, "text": decode([token])}
            for position, token in zip(anchors.positions, anchors.ids, strict=True)
        ],
        "coverage": run.coverage,
        "s50": run.s50,
        "predicted_text": decode(run.predicted_answer),
        "history": [
            {"step": commit.step, "positions": commit.positions, "ids": commit.ids} for commit in run.history
        ],
        "bytes": {
            "written": sizes.written,
            "with_prompt": sizes.with_prompt,
            "without_prompt": sizes.without_prompt,
        },
        "contract": anchors.contract.to_json(),
    }


GAP = "·"
"""Stands for a run of tokens that are not sent."""


def skeleton(anchors: AnchorSet, decode: Decode) -> str:
    """The anchors as text with a dot for each gap."""
    parts: list[str] = []
    expected = 0
    for position, token in zip(anchors.positions, anchors.ids, strict=True):
        parts += [GAP] * (position > expected) + [decode([token])]
        expected = position + 1
    open_end = anchors.length is None or anchors.length > expected
    return "".join(parts) + GAP * open_end


def _text(run: Any, anchors: AnchorSet, sizes: _Sizes, decode: Decode, output: str | None) -> str:
    length = "open" if anchors.length is None else f"{anchors.length} tokens"
    lines = [
        skeleton(anchors, decode),
        "",
        f"{run.steps} of {run.total_steps} steps, canvas {run.canvas}, answer length {length}",
        f"{len(anchors)} anchors, {sizes.without_prompt} bytes ({sizes.with_prompt} with the prompt)",
    ]
    if output and output != "-":
        lines.append(f"{output}: {sizes.written} bytes written")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
