"""Gradient compression: the dictionaries of users."""
