"""Metrics of workers, servers and the scheduler node, in the format of Prometheus."""
