"""Compute of the pipeline by equation 1 (section 3.2): T_partial C_DLM + L C_AR.

Responsible for the equation and for FLOPs of a pass. Not responsible for time, which depends on the machine
(see `phases.timing`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Compute of one answer, in one unit: of the cloud and the device, and of the full diffusion run."""

    cloud: float
    device: float
    full: float

    @property
    def share(self) -> float:
        """Both sides' compute as a share of the full run's; the paper has 0.10 to 0.15."""
        return (self.cloud + self.device) / self.full

    @property
    def cloud_share(self) -> float:
        return self.cloud / self.full


def equation_1(steps: int, total_steps: int, length: int, c_dlm: float, c_ar: float) -> Cost:
    """The pipeline's cost: `steps` of `total_steps` diffusion passes at c_dlm, and `length` passes at c_ar.

    Raises ValueError where the steps are not 1 to total_steps.
    """
    if not 1 <= steps <= total_steps:
        raise ValueError(f"expected 1 to {total_steps} steps, found {steps}")
    return Cost(steps * c_dlm, length * c_ar, total_steps * c_dlm)


def pass_flops(parameters: int, tokens: int) -> float:
    """FLOPs of one forward pass: 2 a parameter and token. Attention over the context is left out."""
    return 2.0 * parameters * tokens


def pipeline_flops(
    steps: int,
    total_steps: int,
    *,
    prompt: int,
    canvas: int,
    length: int,
    parameters: int,
    edge_parameters: int,
) -> Cost:
    """Equation 1 in FLOPs: a diffusion pass runs prompt and canvas, an edge pass one token.

    prompt, length: tokens of the prompt and of the answer. The device reads the prompt once as well, which
    the equation leaves out, so L is both.
    """
    c_dlm = pass_flops(parameters, prompt + canvas)
    return equation_1(steps, total_steps, prompt + length, c_dlm, pass_flops(edge_parameters, 1))
