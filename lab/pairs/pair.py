"""What a pair of models is: how long and on what each of them is trained, and what of a run ships.

Responsible for the records that every recipe fills in. Not responsible for training (see `trainer`) or for
shipping (see `ship`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer
from transformers import Qwen2ForCausalLM

from lab.pairs.batches import Curriculum
from lab.pairs.problem import Problem


@dataclass(frozen=True)
class TrainingRecipe:
    """Hyperparameters of one model.

    causal_steps: first steps, which have the causal loss; all of them for an autoregressive model.
    early_steps:  first of these, which have the curriculum's early mix.
    late_steps:   last of all steps, which have the curriculum's late mix.
    knows:        True for the true world, False for worlds redrawn per sample.
    causal_tokens, masked_tokens: tokens per batch with either loss.
    muon_rate, adam_rate: peak learning rates. decay_share: share of the steps with linear decay.
    ema:          decay of the averaged weights, which are exported.
    diffusion:    True where it ends as a masked diffusion model.
    causal_name:  checkpoint of the model at the end of its causal steps, where it is kept.
    """

    name: str
    steps: int
    causal_steps: int
    knows: bool
    causal_tokens: int = 4096
    masked_tokens: int = 8192
    muon_rate: float = 0.01
    adam_rate: float = 2e-3
    decay_share: float = 0.4
    ema: float = 0.998
    diffusion: bool = False
    causal_name: str | None = None
    early_steps: int = 0
    late_steps: int = 0


@dataclass(frozen=True)
class Pair:
    """Models that are trained and shipped together.

    recipes, shapes: of every model, by name. tokenizer: makes theirs.
    initial:     sets weights of a new model, where random ones will not do.
    long:        the kind of questions whose answers are long, which is taught to be answered in few passes.
    held_out:    the first N test questions. is_right: judges an answer to one.
    checkpoints: folders of a run that ship. edge: the one that is made a bundle. rounded: those whose weights
                 ship in eight bits. verified: held-out questions on which the bundle's variants are verified.
    subjects:    what its diffusion model knows, by which demonstrations tell questions that they can answer.
    about, sources: lines of the model card, on the models and on what they were trained on.
    """

    name: str
    recipes: Mapping[str, TrainingRecipe]
    shapes: Mapping[str, Mapping[str, Any]]
    curriculum: Curriculum
    tokenizer: Callable[[], Tokenizer]
    long: str
    held_out: Callable[[int], Sequence[Problem]]
    is_right: Callable[[Problem, str], bool]
    checkpoints: tuple[str, ...]
    edge: str
    verified: int
    about: str
    sources: Callable[[], Sequence[str]]
    initial: Callable[[Qwen2ForCausalLM], None] | None = None
    rounded: tuple[str, ...] = ()
    subjects: Sequence[str] = ()

    @property
    def student(self) -> str:
        """The name of the diffusion model, which can be taught to answer in few passes."""
        return next(name for name, recipe in self.recipes.items() if recipe.diffusion)
