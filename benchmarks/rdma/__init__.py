"""Measures RDMA on machines with InfiniBand or RoCE devices, beside TCP of the same machines."""
