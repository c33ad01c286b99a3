"""Sums of single tensors and of bytes: named rounds, broadcasts, objects."""
