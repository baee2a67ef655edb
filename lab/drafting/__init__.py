"""Drafting: the diffusion model as a drafter for an autoregressive target (SpecDiff), and losses for one."""
