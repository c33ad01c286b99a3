"""Benchmarks that train with TensorFlow and Keras."""
