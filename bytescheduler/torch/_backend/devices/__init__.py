"""Tensors of calls on devices: their way to exchanges and back, and their handle."""
