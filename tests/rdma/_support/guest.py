"""Runs a command inside a fresh guest, which has this host's files and throws its changes away.

By hand, from anywhere, with two soft-RoCE devices and two NUMA nodes:

    python tests/rdma/_support/guest.py --rdma --nodes 2 -- ibv_devinfo
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Dict, List, NamedTuple, Optional, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from guest_image import HERE, Image, NoGuest, image

__all__ = ["ADDRESSES", "Ended", "Guest", "NoGuest"]

# The addresses of the guest's two cards; rxe0 and rxe1 stand on them.
ADDRESSES = ("10.77.0.1", "10.77.0.2")
# Variables of this process that a command finds in the guest too.
KEPT = ("PATH", "HOME", "LANG", "PYTHONPATH")
# A boot takes 6 s on a quiet machine with two processors.
LIMIT_S = 300.0
CONSOLE = (
    "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off tsc=reliable "
    "random.trust_cpu=on numa_balancing=disable"
)


class Ended(NamedTuple):
    """How a command ended.

    Attributes
    ----------
    code : int
        Its exit code.
    output : str
        What it wrote to stdout and stderr.
    console : str
        What the guest's kernel said meanwhile.
    """

    code: int
    output: str
    console: str


class Guest:
    """Guests of one kind; each `run` boots one.

    Parameters
    ----------
    processors, memory_mib : int
        Of the whole guest.
    nodes : int
        NUMA nodes; processors and memory are shared out evenly.
    rdma : bool
        Two soft-RoCE devices, rxe0 and rxe1, at `ADDRESSES`; without them the addresses are there
        all the same.
    """

    def __init__(
        self,
        *,
        processors: int = 2,
        memory_mib: int = 2048,
        nodes: int = 1,
        rdma: bool = False,
    ) -> None:
        self._image: Image = image()
        self._processors = processors
        self._memory_mib = memory_mib
        self._nodes = nodes
        self._rdma = rdma

    @property
    def kernel(self) -> str:
        """The version of the guest's kernel."""
        return self._image.version

    def run(
        self,
        command: Sequence[str],
        *,
        folder: Optional[pathlib.Path] = None,
        env: Optional[Dict[str, str]] = None,
        limit_s: float = LIMIT_S,
        keep: Optional[pathlib.Path] = None,
    ) -> Ended:
        """Run a command in a fresh guest, in `folder` (by default where this process is).

        What it writes to ``/run/guest/kept`` is copied to `keep`.

        Raises
        ------
        TimeoutError
            It took longer than `limit_s`; the text has what was written until then.
        RuntimeError
            The guest ended without a result; the text has what its kernel said.
        """
        with tempfile.TemporaryDirectory(prefix="guest-") as name:
            shared = pathlib.Path(name)
            (shared / "kept").mkdir()
            self._write(shared, command, folder or pathlib.Path.cwd(), env or {})
            in_time = self._boot(shared, limit_s)
            console, output = _text(shared / "console"), _text(shared / "output")
            if keep is not None:
                shutil.copytree(shared / "kept", keep, dirs_exist_ok=True)
            if not in_time:
                raise TimeoutError(
                    f"the guest still ran after {limit_s:g} s:\n{output[-4000:]}\n"
                    f"--- its console\n{console[-2000:]}"
                )
            code = _text(shared / "code").strip()
            if not code:
                raise RuntimeError(f"the guest ended without a result: {console[-2000:]}")
            return Ended(int(code), output, console)

    def _write(
        self,
        shared: pathlib.Path,
        command: Sequence[str],
        folder: pathlib.Path,
        env: Dict[str, str],
    ) -> None:
        settings = {
            "FOLDER": str(folder),
            "MODULES": str(self._image.modules),
            "NETWORK": "1",
            "RDMA": str(int(self._rdma)),
        }
        lines = [f"{key}={shlex.quote(value)}" for key, value in settings.items()]
        (shared / "settings").write_text("\n".join(lines) + "\n")
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        exports = [f"export {key}={shlex.quote(value)}" for key, value in {**kept, **env}.items()]
        (shared / "command").write_text("\n".join([*exports, shlex.join(command), ""]))
        shutil.copy(HERE / "guest_stage.sh", shared / "stage.sh")

    def _boot(self, shared: pathlib.Path, limit_s: float) -> bool:
        """Return whether the guest ended within `limit_s`; afterwards it is gone in any case."""
        with (shared / "console").open("wb") as console:
            machine = subprocess.Popen(
                self._qemu(shared),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
            try:
                machine.wait(limit_s)
            except subprocess.TimeoutExpired:
                return False
            finally:
                machine.kill()
                machine.wait()
        return True

    def _qemu(self, shared: pathlib.Path) -> List[str]:
        cores = self._processors // self._nodes
        smp = f"{self._processors},sockets={self._nodes},cores={cores},threads=1"
        command = [
            *("qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"),
            *("-smp", smp, "-m", str(self._memory_mib)),
            *("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"),
            *("-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd)),
            *("-append", CONSOLE, "-device", "virtio-rng-pci"),
            *_files("hostroot", pathlib.Path("/"), ",readonly=on,multidevs=remap"),
            *_files("guestrun", shared, ""),
        ]
        if self._nodes > 1:
            command += self._numa(cores)
        return command

    def _numa(self, cores: int) -> List[str]:
        words: List[str] = []
        for node in range(self._nodes):
            memory = f"memory-backend-ram,id=m{node},size={self._memory_mib // self._nodes}M"
            owned = f"{node * cores}-{(node + 1) * cores - 1}"
            words += ["-object", memory]
            words += ["-numa", f"node,nodeid={node},memdev=m{node},cpus={owned}"]
        for node in range(self._nodes):
            for other in range(self._nodes):
                if node != other:
                    words += ["-numa", f"dist,src={node},dst={other},val=21"]
        return words


def _files(tag: str, folder: pathlib.Path, more: str) -> List[str]:
    """Return the options that lend a folder to the guest under a tag."""
    return [
        *("-fsdev", f"local,id={tag},path={folder},security_model=none{more}"),
        *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    ]


def _text(path: pathlib.Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def main() -> int:
    """Run the command of the command line, and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rdma", action="store_true", help="two soft-RoCE devices")
    parser.add_argument("--nodes", type=int, default=1, help="NUMA nodes")
    parser.add_argument("--processors", type=int, default=2)
    parser.add_argument("--memory", type=int, default=2048, help="MiB")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    try:
        guest = Guest(
            processors=given.processors,
            memory_mib=given.memory,
            nodes=given.nodes,
            rdma=given.rdma,
        )
        ended = guest.run(given.command, limit_s=given.limit)
    except (NoGuest, RuntimeError, TimeoutError) as error:
        print(f"guest: {error}", file=sys.stderr)
        return 125
    sys.stdout.write(ended.output)
    return ended.code


if __name__ == "__main__":
    sys.exit(main())
