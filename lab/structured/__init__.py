"""Structured output: answers that are sentences of a grammar, measured on random and on real schemas."""
