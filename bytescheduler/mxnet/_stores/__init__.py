"""The back ends of the store, and what only they use."""
