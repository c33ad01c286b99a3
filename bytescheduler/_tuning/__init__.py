"""Finds partition and credit while a job trains."""
