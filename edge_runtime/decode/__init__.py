"""Forced decoding: gaps, endings, speculation, refinement, stream adapters."""
