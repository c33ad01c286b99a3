"""The sessions that carry MXNet's tensors: on our servers, or over a stock store."""
