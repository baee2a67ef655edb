"""Published runs of other people's models, by themselves and filled by a real edge model."""
