"""The operations of TensorFlow: compiled, loaded, connected to the engine."""
