"""Sums and copies of tensors, each under a key that all workers compute alike."""
