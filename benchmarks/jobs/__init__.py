"""Benchmarks that run whole jobs, one module each, and what draws their results."""
