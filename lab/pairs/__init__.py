"""The training of pairs of models: one trainer, one packer; a folder for the questions of each pair."""
