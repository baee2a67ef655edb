"""The testbed: questions about countries, elements and words, and the models that are trained on them."""
