"""Strategies of TensorFlow for the devices of a process, with means over all workers."""
