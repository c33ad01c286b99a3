"""Data parallel modules: gradients are means as soon as backward returns."""
