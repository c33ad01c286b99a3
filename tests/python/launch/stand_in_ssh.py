"""An ssh that runs the command here, for tests of what `bslaunch -H` does on any machine.

Jobs over a real sshd are in tests/e2e/launchers.
"""

import pathlib

__all__ = ["make_ssh"]

# 127.0.0.7 is down, 127.0.0.9 has no package, and 127.0.0.8 hangs up on its processes.
_SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
echo "$1" >>"{log}"
case $1 in
  127.0.0.7) echo "ssh: connect to host $1 port 22: Connection refused" >&2; exit 255 ;;
  127.0.0.9) exec sh -c "exec /no/such/python" ;;
  127.0.0.8) [ "$(grep -c 127.0.0.8 "{log}")" -lt 2 ] || exit 255 ;;
esac
exec sh -c "$2"
"""


def make_ssh(folder: pathlib.Path) -> pathlib.Path:
    """Return the program; it writes the host of each call to ``ssh.log`` beside it."""
    path = folder / "ssh"
    path.write_text(_SSH.format(log=folder / "ssh.log"))
    path.chmod(0o755)
    return path
