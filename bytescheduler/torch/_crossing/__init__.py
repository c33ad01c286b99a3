"""Crossing the barrier: each module waits for its own weights, and updates them then."""
