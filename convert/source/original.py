"""A checkpoint as transformers' own model, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from convert.errors import SourceError
from convert.source.checkpoint import Checkpoint


def load_original(checkpoint: Checkpoint) -> Any:
    """transformers' model of a checkpoint, in float32; raises SourceError."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # the conversion has its own
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(checkpoint.folder),
            dtype=torch.float32,
            trust_remote_code=False,
            low_cpu_mem_usage=True,
            **_rope_options(checkpoint.config),
        )
    except Exception as error:  # transformers raises anything here
        raise SourceError(
            f"{checkpoint.folder}: transformers cannot load this checkpoint: {str(error)[:300]}"
        ) from error
    finally:
        if shown:
            logging.enable_progress_bar()
    return model.eval()


def _rope_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by which transformers 4 learns what a configuration in the form of transformers 5 says.

    That version would read the default base of the rotary angles without a word.
    """
    rope = config.get("rope_parameters")
    if not rope or int(version("transformers").split(".")[0]) >= 5:
        return {}
    if any(isinstance(value, dict) for value in rope.values()):
        return {}  # one for each kind of layer: no form of transformers 4
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    plain = scaling.get("rope_type", "default") == "default"
    options = {"rope_scaling": None if plain else scaling, "rope_theta": rope.get("rope_theta")}
    return {name: value for name, value in options.items() if value is not None}
