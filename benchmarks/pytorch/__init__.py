"""Benchmarks with PyTorch, such as `benchmarks.replay --framework torch`."""
