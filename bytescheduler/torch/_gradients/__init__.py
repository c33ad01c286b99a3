"""Gradients on their way: what is sent when backward has made one, and what comes back."""
