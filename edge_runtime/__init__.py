"""Turns a payload into text on the device, with numpy, onnxruntime, tokenizers and zstandard only."""
