"""Descriptors, files, children and numbers of a process, for every command."""
