"""Formats by their bytes and their errors: codecs, number formats, the training of the token model."""
