"""Loading of the models of a run, by name: the diffusion model, the edge models, the target of drafts.

Responsible for names, folders and compatible vocabularies. Not responsible for measurements (see `case`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import find_checkpoint
from cloud_anchor.model.prompt_form import tokenizer_data
from cloud_anchor.pipeline import Pipeline
from cloud_anchor.shipped import PAIRS
from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.lookup import find_bundles
from edge_runtime.runtime import EdgeRuntime
from lab.autoregressive import Autoregressive
from lab.case import Edge, Lab
from lab.options import Options
from lab.pairs.testbed.recipe import CAUSAL_NAME
from payload import Contract
from payload.errors import ContractMismatchError


def edge_of(options: Options) -> EdgeRuntime:
    """The main edge model in the named variant."""
    place = find_bundles("", model=options.edges[0])[0]
    return EdgeRuntime.open(place, options.variant, threads=options.threads)


def open_lab(options: Options, teachers: bool = True) -> Lab:
    """Loads the models.

    teachers: also the autoregressive model. Raises CloudError, EdgeError or ContractMismatchError.
    """
    places = [find_bundles("", model=name)[0] for name in options.edges]
    variant = options.variant or _common_variant(places)
    edges = [Edge(at.name, EdgeRuntime.open(at, variant, threads=options.threads)) for at in places]
    contract = edges[0].runtime.bundle.contract
    pipeline = Pipeline.open(options.model, edge=edges[0].runtime, device=options.device, dtype=options.dtype)
    others = [edge.runtime.bundle.contract for edge in edges if edge.runtime.bundle.contract != contract]
    if pipeline.translation or others:  # phases compare token ids of all models
        found = ", ".join(map(str, [contract, *others]))
        raise ContractMismatchError(
            "lab: expected edge bundles of the diffusion model's vocabulary and of one chat template "
            f"({pipeline.model_form.contract}), found {found}. Give others (--edge)."
        )
    plan = pipeline.plan()
    base = replace(
        plan,
        canvas=options.canvas or plan.canvas,
        total_steps=options.total_steps or plan.total_steps,
        seed=options.seed,
    )
    thinker = None
    if teachers and (folder := _thinker_folder(options, edges)):
        _same_vocabulary(folder, contract)
        thinker = Autoregressive.load(folder, device=options.device)
    return Lab(pipeline, base, edges, thinker)


PRECISIONS = ("fp32", "fp16", "int8", "int4")
"""Variants of a bundle, the most precise first."""


def _common_variant(places: Sequence[Path]) -> str | None:
    """The most precise variant that several bundles have, so that sizes are compared in one precision; for
    a single bundle its default. Raises CheckpointError where they have none in common.
    """
    if len(places) == 1:
        return None
    variants = [Bundle.open(place, verify=False).manifest.variants for place in places]
    common = next((name for name in PRECISIONS if all(name in own for own in variants)), None)
    if common is None:
        raise CheckpointError(
            f"--edge: expected one of {', '.join(PRECISIONS)} in every bundle, for sizes are compared in one "
            f"precision, found {'; '.join(', '.join(sorted(own)) for own in variants)}. Convert them alike."
        )
    return common


def _thinker_folder(options: Options, edges: Sequence[Edge]) -> Path | None:
    """The checkpoint that is named, else for a shipped pair its own, or that of its edge model, and for a
    folder the testbed's autoregressive model beside it.
    """
    if options.thinker:
        return find_checkpoint(options.thinker)
    if options.model not in PAIRS:
        beside = Path(options.model).parent / CAUSAL_NAME
        return beside if Path(options.model).is_dir() and (beside / "config.json").is_file() else None
    pair = PAIRS[options.model]
    folders = [pair.weights / name for name in (pair.thinker, *(edge.name for edge in edges))]
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def _same_vocabulary(folder: Path, contract: Contract) -> None:
    own = Contract.of(tokenizer_data(folder), {})
    if (own.vocab_hash, own.special) != (contract.vocab_hash, contract.special):
        raise ContractMismatchError(
            f"{folder}: expected the vocabulary of the edge model ({contract.vocab_hash[:12]}), found "
            f"{own.vocab_hash[:12]}. Drafts go from one to the other as ids: use one vocabulary "
            "family."
        )


def fingerprint(lab: Lab, options: Options) -> dict[str, str]:
    """What tells the weights of each model apart, so that a run does not go on with others."""
    digest = hashlib.sha256(lab.thinker.name.encode() if lab.thinker else b"")
    place = find_checkpoint(options.model)
    for file in [place] if place.is_file() else sorted(place.glob("*.safetensors")):
        with file.open("rb") as stream:
            digest.update(f"{file.name} {file.stat().st_size}".encode() + stream.read(1 << 20))
    bundles = {edge.name: edge.runtime.bundle for edge in lab.edges}
    edges = {name: of.manifest.fingerprint(of.variant_name).hex() for name, of in bundles.items()}
    return {"model": digest.hexdigest()[:16], **edges}
