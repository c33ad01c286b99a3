"""The choice of a back end for a store, also for a store that scripts create by name."""
