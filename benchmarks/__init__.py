"""Benchmarks: each is run as `python -m benchmarks.NAME` and prints JSON."""
