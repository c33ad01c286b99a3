"""The checks of `bytescheduler doctor`: one module for each part of a host, and the link."""
