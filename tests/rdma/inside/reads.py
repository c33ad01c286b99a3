"""Run inside the guest: the doctor of one card measures READs from the doctor of the other."""

import os
import re
import subprocess
import sys

import guest  # of the folder _support, which the host's test puts on the path

LIMIT_S = 120.0


def listen() -> "subprocess.Popen[str]":
    """Start the listening side, with the address of card 1."""
    command = [sys.executable, "-m", "bytescheduler", "doctor", "--listen", "--wait", f"{LIMIT_S}"]
    env = {**os.environ, "DMLC_NODE_HOST": guest.ADDRESSES[1]}
    return subprocess.Popen(command, env=env, text=True, stderr=subprocess.PIPE)


def main() -> int:
    """Print a line for each size, or the reason for none."""
    listener = listen()
    try:
        assert listener.stderr is not None
        said = listener.stderr.readline()
        found = re.search(r"listening on port (\d+)", said)
        assert found is not None, said
        os.environ["DMLC_NODE_HOST"] = guest.ADDRESSES[0]
        # The whole command would import frameworks first, which takes a while in the guest.
        from bytescheduler.commands.doctor import _ask_rdma  # needs the environment

        findings, _ = _ask_rdma((guest.ADDRESSES[1], int(found.group(1))), "card 1")
    finally:
        listener.kill()
        listener.wait(LIMIT_S)
    for finding in findings:
        sys.stdout.write(f"{finding.level} {finding.text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
