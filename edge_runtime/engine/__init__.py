"""Engines: the interface that decoding uses, ONNX Runtime and onnxruntime-genai behind it."""
