"""Decisions: questions with listed options, of which a model's probabilities are read, not written."""
