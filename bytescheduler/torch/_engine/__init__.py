"""The engine in PyTorch's words: dtypes, and a session of tensors."""
