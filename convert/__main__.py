"""python -m convert: converts a checkpoint to a bundle and prints the figures of its verification.

Responsible for options and the table. Not responsible for the conversion (see `conversion`).
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.cli import CommandParser, option, required, run_command
from common.files import read_text
from common.progress import Bars

with required("convert", "convert"):
    from rich.console import Console
    from rich.table import Table

    from convert.check.verify import Thresholds
    from convert.conversion import DEFAULT_VARIANTS, convert
    from convert.errors import OptionError
    from convert.source.hub import DEFAULT_MODEL
    from convert.stages import workspace_of
    from convert.variants import RECIPES, checked_names
    from edge_runtime.bundle.bundle import Manifest

_EPILOG = """examples:
  python -m convert ./Qwen2.5-0.5B-Instruct -o bundles/qwen --variants fp32,int8
  python -m convert ./SmolLM2-135M-Instruct.Q4_1.gguf -o bundles/smollm2

variants:
{variants}

exit codes: 0 done, 2 wrong options, 4 the model cannot be used or fetched,
5 a variant differs too much from the original, 6 too little disk or memory,
130 interrupted (run again to continue)
"""


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """The options of this command."""

    model: str = option(
        DEFAULT_MODEL,
        "checkpoint folder, .gguf file or hub name (default: %(default)s)",
        flags=("model",),
        nargs="?",
        metavar="MODEL",
    )
    out: Path = option(None, "folder to write", flags=("-o", "--out"), required=True, metavar="BUNDLE")
    variants: str = option(",".join(DEFAULT_VARIANTS), "see below (default: %(default)s)", metavar="NAMES")
    context: int | None = option(None, "most tokens, prompt and answer (default: 2048)", metavar="TOKENS")
    force: bool = option(False, "replace a bundle that is already there")
    json: bool = option(False, "print the manifest instead of a table")
    tokenizer: Path | None = option(None, "tokenizer and chat template for a .gguf file", metavar="FOLDER")
    chat_template: Path | None = option(None, "chat template in Jinja, for a model without one")
    revision: str | None = option(None, "branch, tag or commit of a hub model")
    threshold: list[str] | None = option(
        None,
        "bound of a figure: top1 and greedy from below, mean_kl and max_delta from above, as in "
        "int4.mean_kl=0.3; repeatable",
        action="append",
        metavar="VARIANT.NAME=VALUE",
    )


def parser() -> CommandParser:
    result = CommandParser(
        prog="python -m convert",
        usage="python -m convert [MODEL] -o BUNDLE [options]",
        description="Convert a checkpoint to a bundle for the device, checked against the original.",
        epilog=_EPILOG.format(variants="\n".join(f"  {name:13} {r.about}" for name, r in RECIPES.items())),
    )
    result.declare(ConvertOptions)
    return result


def thresholds_of(variants: Sequence[str], settings: Sequence[str]) -> dict[str, Thresholds]:
    """The variants' own thresholds with settings like "int4.mean_kl=0.3" applied; raises OptionError."""
    result = {name: RECIPES[name].thresholds for name in variants}
    for setting in settings:
        left, equals, value = setting.partition("=")
        variant, dot, name = left.partition(".")
        if not equals or not dot or variant not in result:
            known = f"VARIANT.NAME=VALUE with a variant of {', '.join(result)}"
            raise OptionError(f"--threshold: expected {known}, found {setting!r}.")
        result[variant] = result[variant].changed(name, value)
    return result


def table(manifest: Manifest) -> Table:
    """The sizes and figures of every variant, one row each."""
    positions = max(v.verification["positions"] for v in manifest.variants.values())
    result = Table(caption=f"{positions} positions; context {manifest.context}; * is the default")
    for name in ("variant", "MB", "top-1", "mean KL", "max Δ", "greedy", "ms/token"):
        result.add_column(name, justify="left" if name == "variant" else "right", no_wrap=True)
    for name, variant in manifest.variants.items():
        figures = variant.verification
        result.add_row(
            name + ("*" if name == manifest.default_variant else ""),
            f"{sum(record.size for record in variant.files.values()) / 1e6:.1f}",
            f"{figures['top1']:.4f}",
            f"{figures['mean_kl']:.1e}",
            f"{figures['max_delta']:.1e}",
            f"{figures['greedy']:.3f}",
            f"{figures['milliseconds']:.1f}",
        )
    return result


def main(argv: Sequence[str] | None = None) -> int:
    # The tokenizers library warns about forks after use; nothing here gains from its threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    options = parser().parse(ConvertOptions, argv)
    code = run_command("convert", lambda: run(options), extra="convert", interrupted="interrupted.")
    folder = workspace_of(options.out.resolve())
    if code and folder.is_dir():
        print(
            f"Finished stages are kept in {folder}: the same command continues; delete it to start over.",
            file=sys.stderr,
        )
    return code


def run(options: ConvertOptions) -> None:
    """Convert as the options say and print the manifest's figures."""
    variants = checked_names(tuple(name.strip() for name in options.variants.split(",") if name.strip()))
    manifest = convert(
        options.model,
        options.out,
        variants=variants,
        context=options.context,
        revision=options.revision,
        tokenizer=options.tokenizer,
        chat_template=read_text(options.chat_template, OptionError) if options.chat_template else None,
        thresholds=thresholds_of(variants, options.threshold or []),
        force=options.force,
        progress=Bars(),
    )
    if options.json:
        print(json.dumps(manifest.to_json(), indent=1))
    else:
        Console().print(table(manifest))
    print(f"Try it: python -m edge_runtime.chat --edge {shlex.quote(str(options.out))}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
