"""Diffusion language models on stock Qwen2 modules: families, checkpoints, forward pass, prompts."""
