"""What is converted: checkpoints, GGUF files, tokenizers, and where they come from."""
