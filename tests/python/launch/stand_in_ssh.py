"""An ssh that runs the command here, for tests of what `bslaunch -H` does on any machine.

Jobs over a real sshd are in tests/e2e/launchers.
"""

import pathlib

__all__ = ["make_ssh"]

# 127.0.0.7 is down, 127.0.0.9 has no package, 127.0.0.8 hangs up on its processes, 127.0.0.6 never
# responds and holds a FIFO of a test meanwhile, and logins on 127.0.0.5 print what is no UTF-8.
_SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
echo "$1" >>"{log}"
case $1 in
  127.0.0.7) echo "ssh: connect to host $1 port 22: Connection refused" >&2; exit 255 ;;
  127.0.0.6) exec 9>"{held}"; echo x >&9; sleep 1000 | cat; exit ;;
  127.0.0.5) printf 'Gr\\374ezi\\nok\\r\\n' ;;
  127.0.0.9) exec sh -c "exec /no/such/python" ;;
  127.0.0.8) [ "$(grep -c 127.0.0.8 "{log}")" -lt 2 ] || exit 255 ;;
esac
exec sh -c "$2"
"""


def make_ssh(folder: pathlib.Path) -> pathlib.Path:
    """Return the program; it writes the host of each call to ``ssh.log`` beside it."""
    path = folder / "ssh"
    path.write_text(_SSH.format(log=folder / "ssh.log", held=folder / "held"))
    path.chmod(0o755)
    return path
