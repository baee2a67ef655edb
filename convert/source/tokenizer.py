"""The tokenizer and chat template of a checkpoint in the form the device reads, and their contract.

Responsible for reading them and for checking that the device's tokenizer gives the ids that transformers
gives. Not responsible for weights or graphs.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from convert.errors import SourceError, TemplateError
from convert.source.checkpoint import Checkpoint
from edge_runtime.errors import EdgeError, JinjaTemplateError
from edge_runtime.text.chat_compiler import Render, compile_template
from edge_runtime.text.prompt_form import PromptForm
from edge_runtime.text.splits import SPLITS, pre_tokenizer, require_known
from edge_runtime.text.tokenizer import Tokenizer
from payload import Contract, PayloadError

_TEXTS = (
    "Each of the 24 loaves costs $3.75.\n\n  def f(x):\n\treturn x**2  # naïve – 日本語 🎈\r\n",
    "<|im_start|>user\nIt's 10 o'clock<|im_end|>\n",
)
"""Texts on which both tokenizers must agree besides the prompts: digits, spaces, accents, specials."""


MAX_SECONDS = 3.0
"""For the rendering of a chat template, a program of a stranger."""

_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")


@dataclass(frozen=True)
class Identity(PromptForm):
    """The text side of a model.

    tokenizer_json: content of tokenizer.json.
    jinja:          the chat template as published.
    """

    tokenizer_json: str
    jinja: str


def read_identity(
    checkpoint: Checkpoint, prompts: tuple[str, ...], chat_template: str | None = None, *, gguf: bool = False
) -> Identity:
    """Read and check a checkpoint's tokenizer and chat template.

    chat_template: in Jinja, in place of the checkpoint's own. gguf: of a GGUF file, read without
    transformers.

    Raises SourceError where the tokenizer is missing, does not fit the model or is read differently on
    the device, and TemplateError where the chat template is missing or cannot be expressed without Jinja.
    """
    original: Any = _GgufTokenizer(checkpoint.folder) if gguf else _transformers_tokenizer(checkpoint.folder)
    path = checkpoint.folder / "tokenizer.json"
    text = path.read_text(encoding="utf-8") if path.is_file() else str(original.backend_tokenizer.to_str())
    try:
        text = with_plain_splits(text)
    except (ValueError, AttributeError) as error:
        raise SourceError(f"{path}: expected a tokenizer file, found: {error}") from error
    if chat_template is not None:
        original.chat_template = chat_template
    if not isinstance(original.chat_template, str):
        raise TemplateError(
            f"{checkpoint.folder}: expected one chat_template in tokenizer_config.json, found "
            f"{type(original.chat_template).__name__}. Use an instruction-tuned checkpoint (-Instruct), or "
            "give one with --chat-template FILE."
        )
    try:
        with time_limit(MAX_SECONDS, f"{checkpoint.folder}: the chat template"):
            template = compile_template(_renderer(original))
    except JinjaTemplateError as error:
        raise TemplateError(str(error)) from error
    try:
        data = json.loads(text)
        contract = Contract.of(data, template.to_json(), _end_names(checkpoint, data))
        require_known(data)
        tokenizer = Tokenizer.from_json(text)
    except (PayloadError, EdgeError, KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{path}: {error}") from error
    _check_ids(checkpoint, tokenizer, contract)
    identity = Identity(tokenizer, template, contract, text, original.chat_template)
    if not gguf:
        _check_parity(identity, original, prompts)
    return identity


def with_plain_splits(text: str) -> str:
    """A tokenizer.json whose shorthands of how to split text, single digits and GPT-2's own, are written as
    the expressions that every device reads; else unchanged.
    """
    data = json.loads(text)
    given = data.get("pre_tokenizer") or {}
    steps = given.get("pretokenizers", []) if given.get("type") == "Sequence" else [given]
    expressions: list[str] = []
    for step in steps[:-1]:
        if step.get("type") != "Digits" or not step.get("individual_digits"):
            return text
        expressions.append(SPLITS["digits"])
    last = steps[-1] if steps else {}
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space") or not last.get("use_regex", True):
        return text
    data["pre_tokenizer"] = pre_tokenizer([*expressions, SPLITS["gpt2"]])
    return json.dumps(data, ensure_ascii=False)


@contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raises TemplateError in what takes longer; in the main thread alone, and where there are alarms."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TemplateError(f"{what}: expected an end within {seconds:g} s, found none.")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _GgufTokenizer:
    """A GGUF file's chat template, rendered as transformers does it, but for the date of the day: the same
    file must give the same contract tomorrow. tokenizer.json was made from the file: nothing else reads it.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        beside = folder / "chat_template.jinja"
        own = settings.get("chat_template")
        self.chat_template: Any = beside.read_text(encoding="utf-8") if beside.is_file() else own
        named = {name: settings.get(f"{name}_token") for name in ("bos", "eos", "pad", "unk")}
        self._names = {
            f"{name}_token": token["content"] if isinstance(token, dict) else token
            for name, token in named.items()
            if token
        }

    def apply_chat_template(self, messages: Sequence[dict[str, str]], **options: bool) -> str:
        from jinja2 import TemplateError as Refusal
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise Refusal(message)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = refuse
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
        template = environment.from_string(self.chat_template)
        generation = options["add_generation_prompt"]
        return template.render(
            messages=messages, add_generation_prompt=generation, tools=None, documents=None, **self._names
        )


def _transformers_tokenizer(folder: Path) -> Any:
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):  # transformers 5 makes an empty one
        raise SourceError(
            f"{folder}: expected a tokenizer (tokenizer.json and tokenizer_config.json), found none of "
            f"{', '.join(_TOKENIZER_FILES)}. Fetch these files again."
        )
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    from transformers.utils import logging

    # transformers 5 gives a model type its own splits, whatever tokenizer.json says: Qwen2's to every qwen2.
    whole = (folder / "tokenizer.json").is_file()
    kind = PreTrainedTokenizerFast if whole else AutoTokenizer

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns of possible faults; `_check_parity` finds real ones
    try:
        tokenizer = kind.from_pretrained(str(folder), use_fast=True, trust_remote_code=False)
    except Exception as error:  # transformers raises anything here, from KeyError to ImportError
        raise SourceError(
            f"{folder}: expected a tokenizer (tokenizer.json and tokenizer_config.json), found: "
            f"{str(error).splitlines()[0] if str(error) else error!r}. Fetch these files again."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    if not tokenizer.is_fast:
        raise SourceError(f"{folder}: expected a fast tokenizer, found {type(tokenizer).__name__}.")
    return tokenizer


def _renderer(tokenizer: Any) -> Render:
    """Renders with a transformers tokenizer's own template."""

    def render(messages: Sequence[dict[str, str]], generation: bool) -> str:
        options = {"tokenize": False, "add_generation_prompt": generation}
        return str(tokenizer.apply_chat_template(list(messages), **options))

    return render


def _end_names(checkpoint: Checkpoint, tokenizer: dict[str, Any]) -> list[str]:
    """Texts of the special tokens that the checkpoint's configurations declare to end an answer."""
    names = {int(token["id"]): str(token["content"]) for token in tokenizer["added_tokens"]}
    return [names[id_] for id_ in checkpoint.declared_ends if id_ in names]


def _check_ids(checkpoint: Checkpoint, tokenizer: Tokenizer, contract: Contract) -> None:
    """Raises SourceError where a token has no row in the embedding, or an end token is not the contract's."""
    rows = checkpoint.shape.vocab_size
    highest = max(tokenizer.size - 1, *contract.special.values())
    if highest >= rows:
        raise SourceError(
            f"{checkpoint.folder}: expected token ids below the embedding's {rows} rows, found id {highest}. "
            "The tokenizer and the weights do not belong together: fetch both from one revision."
        )
    ends = set(checkpoint.declared_ends)
    if not ends <= contract.eos_ids:
        raise SourceError(
            f"{checkpoint.folder}: expected eos_token_id of its configuration in {sorted(contract.eos_ids)}, "
            f"the tokenizer's end tokens, found {sorted(ends)}. The tokenizer and the weights do not belong "
            "together."
        )


def _check_parity(identity: Identity, original: Any, prompts: tuple[str, ...]) -> None:
    for text in (*_TEXTS, *prompts):
        for form in (text, identity.template.render(text)):
            expected = list(original(form, add_special_tokens=False)["input_ids"])
            found = identity.tokenizer.encode(form)
            if expected != found:
                raise SourceError(
                    f"tokenizer.json and transformers read {form!r} differently: expected ids {expected}, "
                    f"found {found}. The tokenizer's files do not belong together: fetch them again."
                )
