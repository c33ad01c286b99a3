"""Benchmarks of the engine's parts in C++, and what runs them."""
