"""Means of gradients, for a tape and for the optimizers of Keras."""
