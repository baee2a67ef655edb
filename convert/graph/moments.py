"""Second moments of the inputs of the layers' matrices on texts, layer by layer, in PyTorch.

Responsible for running the original model one layer at a time, so that no more than one layer's moments are
held. Not responsible for the texts (see `calibration_texts`) or the use of the moments (see `calibrated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from convert.errors import SourceError
from convert.source.checkpoint import Checkpoint
from convert.source.original import load_original

_SAME_INPUT = {"self_attn.qkv_proj": "self_attn.q_proj", "mlp.up_proj": "mlp.gate_proj"}
"""Matrices as the graph's builder names them, and the module whose input is theirs."""
_READ = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")


class InputMoments:
    """Mean x x^T of the inputs x of the layers' matrices over texts of token ids.

    The original model is loaded with the first matrix that is asked for. Its layers run once over all texts:
    matrices must be asked for layer after layer, those of one layer in any order.
    """

    def __init__(self, checkpoint: Checkpoint, texts: Sequence[Sequence[int]]) -> None:
        self._checkpoint, self._texts = checkpoint, texts
        self._layers: list[Any] = []
        self._states: list[Any] = []  # what the next layer reads, text by text
        self._options: list[list[dict[str, Any]]] = []  # what each layer is called with, text by text
        self._layer = -1
        self._moments: dict[str, npt.NDArray[np.float64]] = {}

    def of(self, name: str) -> npt.NDArray[np.float64]:
        """The moments [K, K] of a matrix, as the graph's builder names it; raises ValueError out of order.

        Raises SourceError where transformers cannot load the checkpoint or its activations are not finite.
        """
        _, _, number, part = name.split(".", 3)
        if int(number) < self._layer:
            raise ValueError(f"{name}: expected layer {self._layer} or one after it; the layers run once")
        while self._layer < int(number):
            self._run_layer()
        return self._moments[_SAME_INPUT.get(part, part)]

    def _run_layer(self) -> None:
        """Run the next layer over all texts, keeping the moments of its matrices' inputs."""
        import torch

        self._moments = {}
        if not self._layers:
            self._start()
        self._layer += 1
        layer, self._layers[self._layer] = self._layers[self._layer], None  # not needed after this
        seen: dict[str, list[Any]] = {}
        hooks = []
        for name in _READ:

            def keep(_: Any, args: tuple[Any, ...], name: str = name) -> None:
                seen.setdefault(name, []).append(args[0].flatten(0, -2))

            hooks.append(layer.get_submodule(name).register_forward_pre_hook(keep))
        with torch.inference_mode():
            for index, states in enumerate(self._states):
                after = layer(states, **self._options[index][self._layer])
                self._states[index] = after if isinstance(after, torch.Tensor) else after[0]
            for hook in hooks:
                hook.remove()
            for name, inputs in seen.items():
                x = torch.cat(inputs)
                inputs.clear()
                self._moments[name] = ((x.T @ x).double() / len(x)).numpy()
                if not np.isfinite(self._moments[name]).all():
                    raise SourceError(
                        f"{self._checkpoint.folder}: expected finite inputs of {name} in layer "
                        f"{self._layer}, found NaN or infinity. The weights are damaged: fetch them again."
                    )

    def _start(self) -> None:
        """Load the model, and keep what its layers are called with for each text: masks and angles may differ
        from layer to layer.
        """
        import torch

        model = load_original(self._checkpoint).model
        self._layers = list(model.layers)

        def note(states: Any, *_: Any, **options: Any) -> Any:
            self._options[-1].append(options)
            return states

        for layer in self._layers:
            layer.forward = note
        with torch.inference_mode():
            for ids in self._texts:
                self._options.append([])
                embedded = model.get_input_embeddings()(torch.tensor([list(ids)]))
                self._states.append(embedded)
                model(inputs_embeds=embedded, use_cache=False)
        for layer in self._layers:
            del layer.forward
