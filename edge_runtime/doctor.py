"""python -m edge_runtime.doctor: checks a bundle on this device and recommends a variant.

Responsible for checking a bundle's files, for running each variant on a short answer that is known from its
conversion, and for a report in words. Not responsible for repairs: it changes nothing.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common.cli import option, run_options
from edge_runtime.bundle.bundle import Bundle, Manifest, bundle_folder, read_manifest
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.decode.forced import FillOptions, FillStats, Source, fill
from edge_runtime.engine.base import Engine, common_prefix
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import EdgeError
from edge_runtime.system import Processor, available_memory
from payload import AnchorSet, Contract

_EPILOG = """\
examples:
  python -m edge_runtime.doctor bundles/qwen2.5-0.5b
  python -m edge_runtime.doctor bundles/qwen2.5-0.5b --json

exit codes: 0 a variant can be used, 2 wrong usage, 4 none can, 130 interrupted
"""

_BASE_MEMORY = 150 << 20  # Python with its libraries, and the runtime's working space
_LOADED = 2.0  # memory of a loaded variant over its files' size: kernels keep reordered weights
_CLOSE = 1.25  # variants this close to the fastest are told apart by accuracy


@dataclass
class Finding:
    """The findings about one variant.

    size, needs:  bytes of its files, and estimated bytes of memory.
    problems:     reasons why it cannot be used; empty where it can.
    notes:        other remarks.
    milliseconds: per token of a short answer; None where it did not run.
    divergence:   mean KL divergence from the original model, stated by its conversion; None where not stated.
    failed:       figures out of the variant's bounds, which its conversion was told to take.
    """

    variant: str
    size: int
    needs: int
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    milliseconds: float | None = None
    divergence: float | None = None
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DoctorReport:
    """The findings about all variants. memory: available bytes; None where the system does not tell."""

    bundle: str
    processor: Processor
    memory: int | None
    findings: tuple[Finding, ...]
    recommended: str | None
    reason: str

    def lines(self) -> list[str]:
        """The report in words."""
        memory = "unknown" if self.memory is None else f"{self.memory >> 20} MB available"
        result = [
            f"bundle     {self.bundle}",
            f"processor  {self.processor.name} ({self.processor.machine})",
            f"memory     {memory}",
        ]
        for found in self.findings:
            speed = "did not run" if found.milliseconds is None else f"{found.milliseconds:.1f} ms a token"
            result.append(
                f"{found.variant:10} {found.size / 1e6:.0f} MB, needs about {found.needs >> 20} MB: "
                f"{'PROBLEM' if found.problems else 'ok'}, {speed}"
            )
            result += [f"           problem: {text}" for text in found.problems]
            result += [f"           note: {text}" for text in found.notes]
            result += [f"           failed its verification: {text}" for text in found.failed]
        result.append(f"use        {self.recommended or 'none of them'}: {self.reason}")
        return result


def examine(path: Path, *, threads: int | None = None, memory: int | None = None) -> DoctorReport:
    """Checks every variant of a bundle on this machine.

    memory: bytes that may be used; None for all that are available. Raises BundleError where the folder is no
    bundle at all; faults of a part of it are in the report.
    """
    path = bundle_folder(path)
    manifest = read_manifest(path)
    available = available_memory() if memory is None else memory
    findings = tuple(_examine_variant(path, manifest, name, available, threads) for name in manifest.variants)
    recommended, reason = recommend(findings)
    return DoctorReport(str(path), Processor.detect(), available, findings, recommended, reason)


def recommend(findings: Sequence[Finding]) -> tuple[str | None, str]:
    """The most accurate of the variants that are about as fast as the fastest, and the reason in words."""
    usable = [f for f in findings if not (f.problems or f.failed) and f.milliseconds is not None]
    if not usable:
        return None, "see what is said of each above"
    fastest = min(f.milliseconds or 0.0 for f in usable)
    close = [f for f in usable if (f.milliseconds or 0.0) <= fastest * _CLOSE]
    best = min(close, key=lambda f: (float("inf") if f.divergence is None else f.divergence, f.needs))
    names = ", ".join(f.variant for f in close)
    return best.variant, f"of those about as fast as the fastest ({names}) the closest to the original model"


def _examine_variant(
    path: Path, manifest: Manifest, name: str, available: int | None, threads: int | None
) -> Finding:
    variant, shape = manifest.variants[name], manifest.model
    cache = 8 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * manifest.context
    needs = int(variant.size * _LOADED) + cache + _BASE_MEMORY
    divergence = variant.verification.get("mean_kl")
    found = Finding(name, variant.size, needs)
    found.divergence = divergence if isinstance(divergence, int | float) else None
    failed = variant.verification.get("failed")
    found.failed = list(map(str, failed)) if isinstance(failed, list) else []
    if available is not None and needs > available:
        found.problems.append(
            f"it needs about {needs >> 20} MB of memory and {available >> 20} MB are available. "
            "Close other programs, use a smaller variant, or convert with a shorter context."
        )
        return found
    try:
        bundle = Bundle.open(path, name)
        bundle.verify_contract()
        found.milliseconds = _probe(OrtEngine.open(bundle, threads=threads), bundle, found)
    except EdgeError as error:
        found.problems.append(str(error))
    return found


def _probe(engine: Engine, bundle: Bundle, found: Finding) -> float:
    """Runs the known answer and adds its differences to the finding.

    Returns milliseconds per token after the first pass.
    """
    probe = bundle.variant.verification.get("probe")
    if not isinstance(probe, dict) or not probe.get("answer"):
        found.notes.append("its conversion left no known answer to compare with")
        probe = {"prompt": bundle.form.ids("Hello"), "answer": []}
    expected = list(probe["answer"])
    engine.append(probe["prompt"])  # the weights are read from disk in this pass
    engine.rewind(0)
    stats = FillStats()
    tokens = greedy_answer(engine, bundle.contract, probe["prompt"], len(expected) or 8, stats)
    agreed = common_prefix(tokens, expected)
    if expected and tokens != expected:
        difference = f"expected the known answer {expected}, found {tokens}"
        if agreed == 0:
            found.problems.append(
                f"{difference}. It differs from the first token on: this processor, or the emulator it runs "
                "in, computes it wrongly. Use another variant, or another processor model in the emulator."
            )
        else:
            found.notes.append(
                f"{difference}, the same up to token {agreed}: sums in another order can turn a near tie on "
                "another processor"
            )
    return 1e3 * stats.fill / max(1, stats.passes - 1)


def greedy_answer(
    engine: Engine, contract: Contract, prompt: Sequence[int], tokens: int, stats: FillStats | None = None
) -> list[int]:
    """Up to `tokens` ids of the greedy answer to a prompt, without anchors."""
    none = AnchorSet.empty(tokens, contract)
    options = FillOptions(score_anchors=False)
    return [token.id for token in fill(engine, prompt, none, options, stats) if token.source is Source.FILL]


@dataclass(frozen=True)
class _DoctorArguments:
    """Check a model bundle on this device and say which of its variants to use."""

    bundle: str | None = option(None, "default: installed, or the shipped", flags=("bundle",), nargs="?")
    threads: int | None = option(None, "default: one for each fast core")
    json: bool = option(False, "print one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    return run_options("edge_runtime.doctor", _run, _DoctorArguments, argv, _EPILOG)


def _run(args: _DoctorArguments) -> int:
    report = examine(find_bundles("", args.bundle)[0], threads=args.threads)
    if args.json:
        print(json.dumps(dataclasses.asdict(report), indent=1))
    else:
        print("\n".join(report.lines()))
    return 0 if report.recommended else EdgeError.exit_code


if __name__ == "__main__":
    sys.exit(main())
