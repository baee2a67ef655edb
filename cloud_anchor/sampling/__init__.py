"""Sampling: the denoising loop and its parts (scores, schedules, commits, filters, stop rules)."""
