"""The engine in PyTorch's words: dtypes, a session, and the operations that it waits for."""
