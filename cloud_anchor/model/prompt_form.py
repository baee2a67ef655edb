"""The prompt form of a diffusion model: chat template and tokenizer, and the contract of its payloads.

Responsible for reading a checkpoint's own tokenizer and template, or using an edge bundle's in their place.
Not responsible for models, except that their ids fit the vocabulary.

Dream's template has another default system message than Qwen2.5's. Both models must read the same prompt, so
with an edge bundle of the same vocabulary its template is used. A bundle of another vocabulary has templates
of its own special tokens: there each model reads the prompt in its own form (see `selection.translate`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cloud_anchor.errors import CheckpointError
from cloud_anchor.model.checkpoint import read_json
from cloud_anchor.sampling.protocol import DiffusionModel
from edge_runtime.bundle.bundle import TOKENIZER, Bundle
from edge_runtime.errors import BundleSchemaError, JinjaTemplateError
from edge_runtime.text.chat import ChatTemplate
from edge_runtime.text.chat_compiler import compile_template
from edge_runtime.text.gguf import PLAIN, SUFFIX, bpe, read_metadata, tokenizer_files
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.splits import SPLITS, byte_level, pre_tokenizer
from edge_runtime.text.tokenizer import Tokenizer
from payload import Contract
from payload.errors import ContractMismatchError

MOST_SHARED = 0.9
"""Share of a bundle's ordinary tokens that a vocabulary of the same content has at least."""


def checkpoint_form(folder: Path) -> PromptForm:
    """A checkpoint's own form.

    Raises CheckpointError or, for another vocabulary family, ContractMismatchError.
    """
    data = tokenizer_data(folder)
    template = _own_template(folder)
    return PromptForm(Tokenizer.from_json(json.dumps(data)), template, Contract.of(data, template.to_json()))


def prompt_form(model: DiffusionModel, folder: Path, bundle: Bundle | None = None) -> PromptForm:
    """The form of the diffusion model's prompts: the bundle's where there is one and the vocabularies match,
    else the checkpoint's own.

    Sets the tokens that the model's answers may have. Raises CheckpointError where tokenizer and weights do
    not belong together, and what `checkpoint_form` raises.
    """
    apart = None if bundle is None else ids_apart(folder, bundle)
    form = checkpoint_form(folder) if bundle is None or apart is None else bundle.form
    highest = max(*form.contract.eos_ids, form.contract.vocab_size - 1)
    if highest >= model.vocab_rows:
        raise CheckpointError(
            f"{folder}: the tokenizer has ids up to {highest}, but the model has {model.vocab_rows} rows of "
            "logits. The files do not belong together."
        )
    # What only one of them has as text is no token of an answer.
    others = {f"token {id_} of one side": id_ for id_ in sorted(apart or ())}
    model.adopt(replace(form.contract, special={**form.contract.special, **others}))
    return form


def ids_apart(folder: Path, bundle: Bundle) -> frozenset[int] | None:
    """Ids of the bundle's ordinary tokens that a checkpoint does not have as text; None where the
    vocabularies are not the same.

    They are the same by name and merges, or by content: where every id that is text on both sides is the
    same bytes, nearly all of the bundle's are, and what its template puts around a message is no text in the
    checkpoint. DiffusionGemma and Gemma 3 are so: their special and unused tokens have other names.
    """
    try:
        own = Contract.of(tokenizer_data(folder), bundle.template.to_json())
        if own.same_vocabulary(bundle.contract):
            return frozenset()
    except ContractMismatchError:  # it lacks the special tokens of the bundle's template
        pass
    try:
        theirs = _texts(tokenizer_data(folder))
    except BundleSchemaError:  # of another kind
        return None
    form, contract = bundle.form, bundle.contract
    ours = [id_ for id_ in range(contract.vocab_size) if contract.is_ordinary(id_)]
    both = [id_ for id_ in ours if id_ in theirs]
    marks = {id_ for id_ in form.ids("?") if not contract.is_ordinary(id_)} | contract.eos_ids
    same = (
        len(both) >= MOST_SHARED * len(ours)
        and all(theirs[id_] == form.tokenizer.token_bytes(id_) for id_ in both)
        and theirs.keys().isdisjoint(marks)
    )
    return frozenset(ours) - set(both) if same else None


def _texts(data: Mapping[str, Any]) -> dict[int, bytes]:
    """The bytes of each token of a tokenizer.json that is not a special one."""
    tokenizer = Tokenizer.from_json(json.dumps(data))
    special = {int(token["id"]) for token in data["added_tokens"] if token.get("special", True)}
    return {id_: tokenizer.token_bytes(id_) for id_ in data["model"]["vocab"].values() if id_ not in special}


def tokenizer_data(folder: Path) -> dict[str, Any]:
    """A checkpoint's or a GGUF file's tokenizer.json, or the same content from vocab.json and merges.txt."""
    if folder.suffix == SUFFIX:
        return tokenizer_files(read_metadata(folder), str(folder))[TOKENIZER]
    if (folder / TOKENIZER).is_file():
        return read_json(folder / TOKENIZER)
    if not (folder / "vocab.json").is_file() or not (folder / "merges.txt").is_file():
        raise CheckpointError(f"{folder}: expected {TOKENIZER}, or vocab.json and merges.txt, found neither")
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    settings = read_json(folder / "tokenizer_config.json")
    added = [
        {"id": int(id_), "content": token["content"], **{flag: bool(token.get(flag)) for flag in _FLAGS}}
        for id_, token in sorted(settings.get("added_tokens_decoder", {}).items(), key=lambda kv: int(kv[0]))
    ]
    # A first line "#version: ..." is a comment; a merge may begin with # too, but has no colon there.
    merges = [line for line in lines if line and not line.startswith("#version")]
    return qwen2_tokenizer(read_json(folder / "vocab.json"), merges, added)


def qwen2_tokenizer(
    vocab: Mapping[str, int], merges: Sequence[str], added: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The content of tokenizer.json for a vocabulary of the Qwen2 kind; added: its special tokens."""
    return {
        **PLAIN,
        "added_tokens": list(added),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": pre_tokenizer([SPLITS["qwen2"]]),
        "decoder": byte_level(),
        "model": bpe(vocab, merges),
    }


_FLAGS = ("special", "single_word", "lstrip", "rstrip", "normalized")


def _own_template(folder: Path) -> ChatTemplate:
    """The compiled chat template, or the checkpoint's Jinja text compiled."""
    if folder.suffix == SUFFIX:
        jinja: object = read_metadata(folder).get("tokenizer.chat_template")
    elif (folder / "chat_template.json").is_file():
        return ChatTemplate.from_json(read_json(folder / "chat_template.json"))
    elif (folder / "chat_template.jinja").is_file():
        jinja = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    elif (folder / "tokenizer_config.json").is_file():
        jinja = read_json(folder / "tokenizer_config.json").get("chat_template")
    else:
        jinja = None
    if not isinstance(jinja, str):
        raise CheckpointError(
            f"{folder}: expected a chat template in tokenizer_config.json, chat_template.jinja or the "
            "GGUF file, found none. Give an edge bundle of the same vocabulary, whose template is then used."
        )
    try:
        return compile_template(partial(_render, jinja))
    except JinjaTemplateError as error:
        raise CheckpointError(f"{folder}: {error}") from error


def _render(jinja: str, messages: Sequence[dict[str, str]], generation: bool) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered = render_jinja_template([list(messages)], chat_template=jinja, add_generation_prompt=generation)
    return str(rendered[0][0])
