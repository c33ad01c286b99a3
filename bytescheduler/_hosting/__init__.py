"""The updates that a server's process makes for it: it loads optimizers and runs them."""
