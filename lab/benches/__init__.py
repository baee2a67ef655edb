"""Benchmarks of time, memory and size."""
