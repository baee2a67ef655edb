"""`python -m cloud_anchor.anchor`: from a prompt to a payload, made by `pipeline`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud_anchor.errors import RequestError
from cloud_anchor.options import PipelineOptions
from cloud_anchor.shipped import PAIRS
from common.cli import option, run_options
from common.files import write_whole
from common.progress import Bars
from edge_runtime.commands import read_messages
from edge_runtime.send import SendArguments, send
from edge_runtime.text.chat import Prompt, as_messages
from payload import AUTO, AnchorSet, Codec

if TYPE_CHECKING:  # these bring torch along
    from cloud_anchor.pipeline import PipelineResult

EPILOG = """examples:
  # a question to the shipped model, 10% of its steps
  python -m cloud_anchor.anchor --prompt "What is tin?" -o payload.bin

  # Dream-7B for a device with this bundle
  python -m cloud_anchor.anchor --model Dream-org/Dream-v0-Instruct-7B \\
      --edge bundles/qwen2.5-0.5b --prompt "Why is the sky blue?" -o payload.bin

  # any model of Ollama, llama.cpp, vLLM or another chat server
  python -m cloud_anchor.anchor --backend openai:http://localhost:11434/v1 \\
      --model qwen2.5:7b --edge bundles/smollm2 --prompt "Why tin?" -o payload.bin

  # any model's finished answer, whole
  python -m cloud_anchor.anchor --answer answer.txt --prompt "What is tin?" -o payload.bin

exit codes: 0 ok, 2 usage, 3 nothing to send, 4 bad or missing model, 6 too
little memory, 130 interrupted
"""

_OUTPUT = ("-o", "--output")
_SOURCE: dict[str, Any] = {"either": "source", "required": True}


@dataclass(frozen=True, kw_only=True)
class AnchorOptions(PipelineOptions):
    """Run part of a diffusion model's steps; write anchors of its answer as a payload."""

    prompt: str | None = option(None, "the question", metavar="TEXT", **_SOURCE)
    messages: Path | None = option(
        None, "a conversation: JSON list of role and content; - for stdin", **_SOURCE
    )
    system: str | None = option(None, "system message before the question", metavar="TEXT")
    answer: Path | None = option(None, "a finished text; - for stdin; codec auto, no model")
    output: str | None = option(None, "payload to write; - for stdout", flags=_OUTPUT, metavar="FILE")
    json: bool = option(False, "print everything, with each step, as JSON")
    codec: str | None = option(
        None,
        "portable: few passes (default, else compact); predictive: few bytes; auto, template-gzip",
        metavar="NAME",
        choices=[AUTO, *(codec.label for codec in Codec)],
    )
    embed_prompt: bool = option(
        True,
        "carry the question too (default)",
        action=argparse.BooleanOptionalAction,
    )
    confidence: bool = option(
        True,
        "carry how sure each anchor is (default)",
        action=argparse.BooleanOptionalAction,
    )


def main(argv: Sequence[str] | None = None) -> int:
    return run_options(
        "cloud_anchor.anchor",
        _run,
        AnchorOptions,
        argv,
        EPILOG,
        usage="--prompt TEXT [-o FILE] [options]",
        extra="cloud",
    )


def _run(options: AnchorOptions) -> int:
    if options.answer is not None:
        return _send(options, options.answer)
    prompt = _prompt(options)
    options.check()
    bars = Bars("anchor", passing=True)
    pipeline = options.open_pipeline(progress=bars)
    codec = options.codec or pipeline.default_codec(options.selection())
    (result,) = pipeline.make(
        [prompt],
        options.config(pipeline.plan([prompt])),
        options.selection(),
        codec,
        options.embed_prompt,
        bars,
        confidence=options.confidence,
    )
    payloads = {embed: pipeline.payload(result, codec, embed, options.confidence) for embed in (True, False)}
    data = payloads[options.embed_prompt]
    if options.output == "-":
        sys.stdout.buffer.write(data)
    elif options.output:
        write_whole(Path(options.output), data)
    sizes = {"written": len(data), "with_prompt": len(payloads[True]), "without_prompt": len(payloads[False])}
    decode = pipeline.form.tokenizer.decode
    if options.json:
        report = sys.stderr if options.output == "-" else sys.stdout
        print(json.dumps(_json(result, sizes, decode)), file=report)
    else:
        print(_text(result, sizes, decode, options.output), file=sys.stderr)
    return 0


def _send(options: AnchorOptions, answer: Path) -> int:
    """What `edge_runtime.send` does, for the bundle that this command's payloads are for."""
    pair = PAIRS.get(options.model)
    edge = options.edge or (pair and pair.bundle)
    if edge is None:
        raise RequestError("--answer: expected the bundle that the devices have (--edge), found none")
    return send(
        SendArguments(
            answer=answer,
            output=None if options.output is None else Path(options.output),
            codec=options.codec or AUTO,
            json=options.json,
            edge=str(edge),
            prompt=options.prompt,
            messages=options.messages,
            system=options.system,
        )
    )


def _prompt(options: AnchorOptions) -> Prompt:
    prompt: Prompt | None = read_messages(options.messages) if options.messages else options.prompt
    assert prompt is not None  # the parser requires one of them
    if isinstance(prompt, str) and not prompt.strip():
        raise RequestError("prompt: expected a question, found nothing but spaces")
    return prompt if options.system is None else as_messages(prompt, options.system)


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
    if result.walk is not None:
        lines.append(f"{result.walk.passes} passes of the edge model over {result.walk.tokens} tokens")
    if output and output != "-":
        lines.append(f"{output}: {sizes['written']} bytes written")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
