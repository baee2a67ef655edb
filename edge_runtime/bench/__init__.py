"""The benchmark: timing of a bundle, and of other programs beside it (`python -m edge_runtime.bench`)."""
