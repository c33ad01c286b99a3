"""The barrier crossed: updates of a step are made in the next one, each when its mean is there."""
