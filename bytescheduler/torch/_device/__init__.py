"""Tensors in the memory of a device: their way to the engine and back, in streams of our own."""
