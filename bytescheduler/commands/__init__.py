"""The bodies of commands that are not modules for users besides."""
