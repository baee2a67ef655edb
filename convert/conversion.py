"""The conversion from a checkpoint to a bundle, stage by stage.

    identity    tokenizer and chat template, checked against transformers      -> contract
    reference   the original model's greedy answers and logits, by PyTorch; of a GGUF file, which needs
                neither that nor transformers, those of its own weights in a float32 graph
    VARIANT     graph and weights; where it is calibrated, the original runs layer by layer meanwhile
    VARIANT ... run through the device's engine and compared with the reference
    bundle      genai_config.json and bundle.json, read back and verified, moved into place in one rename

Responsible for the order, the inputs that each stage depends on, and the content of the bundle. Not
responsible for the work of a stage (see the modules it imports), nor for keeping the results of interrupted
runs (`stages`). A variant that differs too much from the original model ends the conversion before anything
is in place.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnxruntime

from common.installed import remedy
from common.progress import Progress, Silent
from convert.check.prompts import DEFAULT_PROMPTS
from convert.check.reference import ByEngine, ByPyTorch, Original, Reference, make_reference
from convert.check.verify import Figures, Thresholds, compare
from convert.errors import ConvertError, OptionError, ResourceError
from convert.graph.calibrated import by_gptq
from convert.graph.calibration_texts import conversation_ids
from convert.graph.decoder import write_graph
from convert.graph.genai import write_genai_config, write_genai_graph
from convert.graph.moments import InputMoments
from convert.graph.portable import PORTABLE, write_portable_graph
from convert.graph.weights import Blockwise
from convert.preflight import estimate
from convert.source.checkpoint import Checkpoint, DecoderShape
from convert.source.gguf import GgufFile, gguf_digest, unpack_gguf
from convert.source.hub import HubSource, locate
from convert.source.tokenizer import Identity, read_identity
from convert.stages import FORMAT, Workspace, check_target
from convert.variants import RECIPES, checked_names, default_variant
from edge_runtime.bundle.bundle import (
    MANIFEST,
    TEMPLATE,
    TOKENIZER,
    Bundle,
    FileRecord,
    Manifest,
    ModelShape,
    Variant,
    file_record,
)
from edge_runtime.bundle.manifest import Sizes
from edge_runtime.doctor import greedy_answer
from edge_runtime.engine.genai_engine import GRAPH
from edge_runtime.engine.ort_engine import OrtEngine
from edge_runtime.errors import EdgeError
from edge_runtime.text.gguf import SUFFIX

DEFAULT_CONTEXT = 2048
DEFAULT_VARIANTS = ("fp32", "int8")
_TOOLS = ("inverse-speculation", "torch", "transformers", "tokenizers", "onnx", "onnxruntime", "numpy")
JINJA = "chat_template.jinja"
ANSWER_TOKENS = 64
MIN_POSITIONS = 256
PROBE_TOKENS = 16


def convert(
    model: str | Path,
    out: Path,
    *,
    variants: Sequence[str] = DEFAULT_VARIANTS,
    context: int | None = None,
    revision: str | None = None,
    prompts: Sequence[str] | None = None,
    thresholds: Mapping[str, Thresholds] | None = None,
    threads: int | None = None,
    tokenizer: Path | None = None,
    chat_template: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Convert a checkpoint (folder, hub name or .gguf file) to the bundle folder `out`; return its manifest.

    variants:   names of `convert.variants.RECIPES`.
    context:    most tokens the bundle serves, prompt and answer together; None for 2048 or the model's own
                context, whichever is less.
    revision:   branch, tag or commit of a hub model.
    prompts:    questions for verification; None for the built-in ones.
    thresholds: bounds of the figures by variant, instead of the variant's own.
    threads:    for PyTorch and ONNX Runtime; None for their defaults.
    tokenizer:  folder whose tokenizer and chat template replace those of a .gguf file.
    chat_template: in Jinja, in place of the checkpoint's own.
    force:      replace a bundle that is already at `out`.

    Interrupted, it leaves `out` untouched and OUT.partial beside it, from which the same call continues.
    Raises a subclass of ConvertError; VerificationError where a variant's figure is out of bounds.
    """
    names = checked_names(tuple(variants))
    questions = tuple(prompts) if prompts else DEFAULT_PROMPTS
    out = out.resolve()
    check_target(out, force)
    report = progress or Silent()
    try:
        source = _located(model, revision, tokenizer, out, report)
        return _Conversion(source, out, names, context, questions, thresholds or {}, threads, report).run(
            chat_template
        )
    except OSError as error:
        raise ResourceError(
            f"{error.filename or out}: expected to read and write here, found: {error.strerror or error}. "
            "Free some space or mend the access, and run the same command again to continue."
        ) from error
    except EdgeError as error:
        raise ConvertError(f"the converted model cannot be run: {error}") from error


def _located(
    model: str | Path, revision: str | None, tokenizer: Path | None, out: Path, progress: Progress
) -> HubSource:
    """The checkpoint's folder; that of a .gguf file is made in the working folder of the conversion."""
    path = Path(model)
    if path.suffix.lower() != SUFFIX:
        if tokenizer is not None:
            raise OptionError(f"--tokenizer {tokenizer}: it is for {SUFFIX} files; {model} has its own.")
        return locate(model, revision)
    if revision is not None:
        raise OptionError(f"--revision {revision}: {path} is a local file, which has no revisions.")
    file = GgufFile(path)
    with Workspace(out) as workspace:
        folder = workspace.folder / "checkpoint"

        def work() -> None:
            with progress.stage("dequantising", file.shape.parameters) as step:
                unpack_gguf(file, folder, tokenizer, step)

        workspace.stage(
            "gguf", gguf_digest(path, tokenizer), work, lambda _: (folder / "config.json").is_file()
        )
    return HubSource(folder, file.id, None, gguf=True)


@dataclass
class _Conversion:
    """The arguments of `convert`; context: None for the default."""

    source: HubSource
    out: Path
    variants: tuple[str, ...]
    wanted_context: int | None
    prompts: tuple[str, ...]
    thresholds: Mapping[str, Thresholds]
    threads: int | None
    progress: Progress

    def __post_init__(self) -> None:
        self.checkpoint = Checkpoint(self.source.folder)
        most, wanted = self.checkpoint.shape.max_position_embeddings, self.wanted_context
        if wanted is not None and not 0 < wanted <= most:
            raise OptionError(f"context: expected 1 to {most} tokens, the model's own, found {wanted}.")
        self.context = min(DEFAULT_CONTEXT, most) if wanted is None else wanted
        if unknown := set(self.thresholds) - set(self.variants):
            raise OptionError(f"threshold for {min(unknown)!r}, which is not among the variants to convert.")

    def run(self, chat_template: str | None) -> Manifest:
        variants = self.variants
        positions = len(self.prompts) * (ANSWER_TOKENS + 128)
        graphs = (*variants, "fp32") if self.source.gguf else variants
        needs = estimate(self.checkpoint, graphs, self.context, positions, self.out.parent)
        self.progress.say(f"Needs {needs}.")
        needs.check(self.out.parent)
        calibrated = next((name for name in variants if RECIPES[name].calibrated), None)
        if calibrated and find_spec("torch") is None:
            raise OptionError(
                f"variants: expected PyTorch for {calibrated}, which is calibrated, found none: "
                f"{remedy('convert')}, or leave it out."
            )
        if self.threads is not None and (calibrated or not self.source.gguf):
            import torch

            torch.set_num_threads(self.threads)
        with Workspace(self.out) as workspace:
            identity = read_identity(self.checkpoint, self.prompts, chat_template, gguf=self.source.gguf)
            self._write_identity(identity, workspace.bundle)
            reference = self._reference(identity, workspace)
            made = {name: self._variant(name, reference, identity, workspace) for name in variants}
            for extra in workspace.bundle.iterdir():  # of an interrupted run with more variants
                if extra.is_dir() and extra.name not in variants:
                    shutil.rmtree(extra)
            manifest = self._manifest(identity, made, workspace.bundle)
            del reference  # it maps a file that is about to go
            workspace.publish()
        return manifest

    def _write_identity(self, identity: Identity, bundle: Path) -> None:
        (bundle / TOKENIZER).write_text(identity.tokenizer_json, encoding="utf-8")
        template = json.dumps(identity.template.to_json(), indent=1, ensure_ascii=False)
        (bundle / TEMPLATE).write_text(template + "\n", encoding="utf-8")
        (bundle / JINJA).write_text(identity.jinja, encoding="utf-8")
        for path in self.source.folder.glob("LICENSE*"):
            shutil.copyfile(path, bundle / path.name)

    def _reference(self, identity: Identity, workspace: Workspace) -> Reference:
        prompts = [identity.ids(text) for text in self.prompts]
        longest = max(len(ids) for ids in prompts)
        room = min(ANSWER_TOKENS, self.context - longest)
        if room < 1:
            raise OptionError(
                f"context: expected more than the {longest} tokens of the longest verification prompt, found "
                f"{self.context}. Convert with a longer context, or give shorter prompts."
            )

        def work() -> None:
            with self.progress.stage("original model", room * len(prompts)) as step:
                ends = identity.contract.eos_ids
                with self._original(workspace.folder / "original") as original:
                    columns = self.checkpoint.shape.vocab_size
                    make_reference(original, columns, prompts, room, ends, workspace.folder, step)

        depends = [self.checkpoint.digest, prompts, room, self.source.gguf]
        workspace.stage("reference", depends, work, lambda _: Reference.complete(workspace.folder))
        reference = Reference.load(workspace.folder)
        if len(reference.logits) < MIN_POSITIONS:
            raise OptionError(
                f"verification: expected at least {MIN_POSITIONS} positions, found {len(reference.logits)}. "
                "Give more or longer prompts."
            )
        return reference

    @contextmanager
    def _original(self, folder: Path) -> Iterator[Original]:
        """The original model; of a GGUF file, its float32 graph in a folder that goes afterwards."""
        if not self.source.gguf:
            yield ByPyTorch(self.checkpoint)
            return
        recipe, path = RECIPES["fp32"], folder / "model.onnx"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_graph(self.checkpoint, path, recipe.weights, recipe.dialect, self.context)
        yield ByEngine(OrtEngine(path, self._shape(), context=self.context, threads=self.threads))
        shutil.rmtree(folder)

    def _variant(self, name: str, reference: Reference, identity: Identity, workspace: Workspace) -> Variant:
        recipe = RECIPES[name]
        texts = conversation_ids(identity) if recipe.calibrated else []
        graph = f"{name}/model.onnx"
        path = workspace.bundle / graph

        def write() -> dict[str, Any]:
            shutil.rmtree(path.parent, ignore_errors=True)
            path.parent.mkdir()
            weights = recipe.weights
            if recipe.calibrated and isinstance(weights, Blockwise):
                weights = dataclasses.replace(weights, layers=by_gptq(InputMoments(self.checkpoint, texts)))
            with self.progress.stage(f"{name}: weights", self.checkpoint.shape.parameters) as step:
                write_graph(self.checkpoint, path, weights, recipe.dialect, self.context, step)
            write_genai_graph(path)
            write_portable_graph(path)
            files = sorted(item.relative_to(workspace.bundle).as_posix() for item in path.parent.iterdir())
            return {item: file_record(workspace.bundle / item).to_json() for item in files}

        def intact(records: dict[str, Any]) -> bool:
            return all(
                (workspace.bundle / item).is_file()
                and file_record(workspace.bundle / item).to_json() == record
                for item, record in records.items()
            )

        depends = [self.checkpoint.digest, repr(recipe.weights), recipe.dialect, self.context, *texts]
        records = workspace.stage(f"{name}: weights", depends, write, intact)

        def verify() -> dict[str, Any]:
            total = sum(len(text.ids) + len(text.answer) for text in reference.texts)
            graphs, shape = (
                [each for each in (path.with_name(PORTABLE), path) if each.is_file()],
                self._shape(),
            )
            settings: Any = {"context": self.context, "threads": self.threads}
            with self.progress.stage(f"{name}: verification", total * len(graphs)) as step:
                first = compare(OrtEngine(graphs[0], shape, **settings), reference, step)
                engine = OrtEngine(path, shape, **settings)
                found = compare(engine, reference, step) if graphs[1:] else first
            # Two greedy answers part at the first difference, which with activations of 8 bits depends
            # on the engine's version and the processor, so there the portable graph counts.
            figures = dataclasses.asdict(found) | {
                name: getattr(first, name) for name in ("greedy", "greedy_tokens")
            }
            # A short answer of this very variant: `edge_runtime.doctor` compares the device's with it.
            longest = max(reference.texts, key=lambda text: len(text.answer))
            prompt = longest.ids[: longest.prompt]
            engine.rewind(0)
            sound = math.isfinite(figures["mean_kl"])  # else no threshold holds either
            answer = greedy_answer(engine, identity.contract, prompt, PROBE_TOKENS) if sound else []
            return {"figures": figures, "probe": {"prompt": prompt, "answer": answer}}

        depends = [records, [text.ids for text in reference.texts], onnxruntime.__version__, PORTABLE]
        found = workspace.stage(f"{name}: verification", depends, verify, lambda _: True)
        thresholds = self.thresholds.get(name, recipe.thresholds)
        figures = Figures(**found["figures"])
        thresholds.check(name, figures)
        failed = list(recipe.thresholds.failures(figures).values())  # accepted by the caller's thresholds
        return Variant(
            graph,
            {item: FileRecord(**record) for item, record in records.items()},
            {
                **found["figures"],
                "thresholds": thresholds.to_json(),
                "failed": failed,
                "probe": found["probe"],
            },
            portable if (portable := f"{name}/{PORTABLE}") in records else graph,
        )

    def _shape(self) -> ModelShape:
        # A local folder has no revision: the hash of its content stands for one.
        revision = self.source.revision or f"sha256:{self.checkpoint.digest}"
        return bundle_shape(self.checkpoint.shape, self.source.id, revision)

    def _manifest(self, identity: Identity, variants: dict[str, Variant], bundle: Path) -> Manifest:
        """Write bundle.json and open the result as the device will."""
        default = default_variant(tuple(variants))
        graph = f"{default}/{GRAPH}"
        write_genai_config(bundle, graph, self._shape(), identity, self.context, self.source.folder)
        own = sorted(path for path in bundle.iterdir() if path.is_file() and path.name != MANIFEST)
        manifest = Manifest(
            model=self._shape(),
            context=self.context,
            contract=identity.contract,
            default_variant=default,
            variants=variants,
            files={path.name: file_record(path) for path in own},
            tools=_versions(),
        )
        text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=False)
        (bundle / MANIFEST).write_text(text + "\n", encoding="utf-8")
        for name in variants:
            Bundle.open(bundle, name)
        Bundle.open(bundle, verify=False).verify_contract()
        return manifest


def _versions() -> dict[str, str]:
    """Versions of the packages that make the bundle."""
    found = {"bundle-format": str(FORMAT)}
    for name in _TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a checkout that is run in place
            continue
    return found


def bundle_shape(shape: DecoderShape, id: str, revision: str) -> ModelShape:
    """The shape of a checkpoint as bundle.json has it."""
    sizes = {field.name: getattr(shape, field.name) for field in fields(Sizes)}
    return ModelShape(**sizes, id=id, revision=revision)
