"""Forced decoding: gaps, endings, speculation, lookahead, refinement, stream adapters."""
