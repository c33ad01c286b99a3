"""Optimizers: their text, their updates, and the copies that other workers take."""
