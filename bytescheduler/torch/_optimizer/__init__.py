"""An optimizer whose gradients are averaged over all workers."""
