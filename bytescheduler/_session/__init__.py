"""The place of a process in a job, for every framework: it knows none of them.

A process joins a job once, at a `Place`.  A `Session` is its worker there: it names keys, watches
sums, shows metrics, tunes, and ends.  A `Framework` is what a session asks of the framework whose
tensors travel.
"""
