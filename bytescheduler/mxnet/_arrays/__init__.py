"""Arrays that a store exchanges: dense, row_sparse and compressed ones."""
