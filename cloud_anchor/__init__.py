"""Runs a masked diffusion language model and turns what it has committed into payloads."""
