"""The two ways from a checkpoint to a variant's graph: this project's builder, and optimum.

Responsible for what differs between them in a conversion: checkpoints accepted, variants offered, files
written. Not responsible for the graphs (see `decoder`, `optimum_export`).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from common.progress import Progress
from convert.errors import OptionError
from convert.graph.calibrated import by_gptq
from convert.graph.decoder import write_graph
from convert.graph.genai import GRAPH, write_genai_config, write_genai_graph
from convert.graph.moments import InputMoments
from convert.graph.optimum_export import EXPORTED, export_by_optimum, write_exported
from convert.graph.weights import Blockwise, Floating
from convert.source.architectures import ARCHITECTURES, foreign_architecture
from convert.source.checkpoint import Checkpoint, CheckpointFolder, architecture_of, read_config
from convert.source.exportable import ExportableCheckpoint
from convert.source.tokenizer import Identity
from convert.stages import FORMAT, Workspace
from convert.variants import RECIPES, VariantRecipe
from edge_runtime.bundle.manifest import FIXED, GROWING, ModelShape

Texts = Sequence[Sequence[int]]

_TOOLS = ("torch", "transformers", "tokenizers", "onnx", "onnxruntime", "numpy")
"""Packages that every conversion uses."""


class Exporter:
    """A way to write graphs of one opened checkpoint.

    cache:   form of the graphs' KV cache.
    tools:   packages, besides those of every conversion, whose versions belong in the manifest.
    copies:  of the weights in float32, held in memory and written to disk on the way to a graph (estimates).
    """

    cache: str
    tools: tuple[str, ...] = ()
    copies = (0, 0)
    checkpoint: CheckpointFolder

    def versions(self) -> dict[str, str]:
        """Versions of the packages that make the bundle."""
        found = {"bundle-format": str(FORMAT)}
        for name in ("inverse-speculation", *_TOOLS, *self.tools):
            try:
                found[name] = version(name)
            except PackageNotFoundError:  # a checkout that is run in place
                continue
        return found

    def write(
        self, name: str, path: Path, context: int, texts: Texts, workspace: Workspace, progress: Progress
    ) -> None:
        """Write a variant's graph to `path`, and its weights and what else belongs to it beside it.

        texts: token ids, for a variant that is calibrated.
        """
        raise NotImplementedError

    def finish(self, bundle: Path, default: str, shape: ModelShape, identity: Identity, context: int) -> None:
        """Write the bundle's files that belong to no variant; default: name of the default variant."""


class BuilderExporter(Exporter):
    """Graphs of `decoder`, for the architectures that it knows, in every storage format."""

    cache = FIXED
    checkpoint: Checkpoint

    def __init__(self, folder: Path) -> None:
        architecture = architecture_of(read_config(folder))
        if architecture not in ARCHITECTURES:
            raise foreign_architecture(folder, architecture)
        self.checkpoint = Checkpoint(folder)

    def write(
        self, name: str, path: Path, context: int, texts: Texts, workspace: Workspace, progress: Progress
    ) -> None:
        recipe = RECIPES[name]
        weights = recipe.weights
        if recipe.calibrated and isinstance(weights, Blockwise):
            weights = dataclasses.replace(weights, layers=by_gptq(InputMoments(self.checkpoint, texts)))
        with progress.stage(f"{name}: weights", self.checkpoint.shape.parameters) as step:
            write_graph(self.checkpoint, path, weights, recipe.dialect, context, step)
        write_genai_graph(path)

    def finish(self, bundle: Path, default: str, shape: ModelShape, identity: Identity, context: int) -> None:
        graph = f"{default}/{GRAPH}"
        write_genai_config(bundle, graph, shape, identity, context, self.checkpoint.folder)


class OptimumExporter(Exporter):
    """Graphs that optimum traces, for every decoder that it exports with a cache, in floating point."""

    cache = GROWING  # which onnxruntime-genai does not open
    tools = ("optimum", "optimum-onnx")
    copies = (4, 2)
    checkpoint: ExportableCheckpoint

    def __init__(self, folder: Path) -> None:
        self.checkpoint = ExportableCheckpoint(folder)

    def write(
        self, name: str, path: Path, context: int, texts: Texts, workspace: Workspace, progress: Progress
    ) -> None:
        folder = workspace.folder / "exported"

        def export() -> None:
            shutil.rmtree(folder, ignore_errors=True)
            with progress.stage("optimum: export", 1):
                export_by_optimum(self.checkpoint, folder)

        depends = [self.checkpoint.digest, self.versions()]
        workspace.stage("exported", depends, export, lambda _: (folder / EXPORTED).is_file())
        shape, half = self.checkpoint.shape, RECIPES[name].weights == Floating(half=True)
        with progress.stage(f"{name}: weights", shape.parameters) as step:
            write_exported(folder / EXPORTED, path, shape, half=half, context=context, progress=step)


EXPORTERS: dict[str, type[BuilderExporter] | type[OptimumExporter]] = {
    "builder": BuilderExporter,
    "optimum": OptimumExporter,
}
BUILDER, OPTIMUM = EXPORTERS


def offered(exporter: str) -> dict[str, VariantRecipe]:
    """The variants of an exporter; raises OptionError for an unknown one."""
    if exporter not in EXPORTERS:
        raise OptionError(f"exporter: expected {' or '.join(EXPORTERS)}, found {exporter!r}.")
    if exporter == BUILDER:
        return RECIPES
    return {name: recipe for name, recipe in RECIPES.items() if isinstance(recipe.weights, Floating)}
