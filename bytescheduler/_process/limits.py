"""Limits of the system in errors: which one was met, and how to raise it."""

import errno
import resource

__all__ = ["is_met", "reason"]

_USUAL_FILES = 4096


def is_met(error: OSError) -> bool:
    """Return whether the system has no descriptor for us."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def reason(error: OSError) -> str:
    """Return the system's words, and the limit where it is one of open files."""
    text = error.strerror or str(error)
    if error.errno == errno.ENFILE:
        return f"{text}: the limit of this host, the sysctl fs.file-max"
    if error.errno != errno.EMFILE:
        return text
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(_USUAL_FILES, 2 * soft)
    text += f": this process may have {soft} (ulimit -n); raise it with ulimit -n {wanted}"
    if 0 <= hard < wanted:
        text += f", which the hard limit of {hard} forbids: raise that first (limits.conf)"
    return text
