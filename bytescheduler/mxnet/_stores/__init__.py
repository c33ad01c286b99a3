"""The back ends of the store, and the parts that they alone use."""
