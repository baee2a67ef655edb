"""Sampling: the denoising loop and its parts (scores, schedules, unmasking, filters, stop rules)."""
