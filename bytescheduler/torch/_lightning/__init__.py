"""The strategy of Lightning, which is found at run time."""
