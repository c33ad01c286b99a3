"""The guest's two cards as the hosts of a job: servers have one, all others the other."""

import json
import pathlib
import subprocess
from typing import Dict, List, Sequence

import guest  # of the folder _support, which the host's test puts on the path
from job import Job

__all__ = ["BESIDE", "BESIDE_ADDRESS", "HOSTS", "SUMS", "Cards", "job_of", "sums_of"]

SUMS = str(pathlib.Path(__file__).resolve().parent / "summing_worker.py")
# Two workers and two servers; the nodes of one host would share its memory.  They start slowly.
HOSTS = (0, 1, 1, 0, 0)
# The same with servers at an address that no device has.
BESIDE = (0, 2, 2, 0, 0)
BESIDE_ADDRESS = "10.78.0.1"
APART = {"BYTESCHEDULER_SHARED_MEMORY": "0", "BYTESCHEDULER_TIMEOUT": "10m"}


class Cards:
    """The hosts of a `Job`: the same system, with the address of another card."""

    @staticmethod
    def address(host: int) -> str:
        """Return the address of a card, or the one beside them."""
        return (*guest.ADDRESSES, BESIDE_ADDRESS)[host]

    @staticmethod
    def add_beside() -> None:
        """Give the guest the address of `BESIDE`."""
        subprocess.run(["ip", "addr", "add", f"{BESIDE_ADDRESS}/32", "dev", "lo"], check=True)

    @staticmethod
    def on(host: int, folder: pathlib.Path, command: List[str]) -> List[str]:
        """Return the command as it is: `Job` starts it in `folder` itself."""
        del host, folder
        return command

    @staticmethod
    def link(host: int, state: str) -> None:
        """Pull the cable of a card out of the switch ("down"), or put it in ("up")."""
        subprocess.run(["ip", "link", "set", f"p{host}", state], check=True)

    @staticmethod
    def lose(percent: int) -> None:
        """Lose some of the packets that leave either card."""
        for card in ("v0", "v1"):
            lossy = ["netem", "limit", "10000", "loss", f"{percent}%"]
            subprocess.run(["tc", "qdisc", "replace", "dev", card, "root", *lossy], check=True)

    @staticmethod
    def lost() -> int:
        """Return the packets that `lose` has lost."""
        asked = ["tc", "-s", "-j", "qdisc", "show"]
        said = subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout
        return sum(each["drops"] for each in json.loads(said) if each["kind"] == "netem")

    @staticmethod
    def sent() -> int:
        """Return the bytes that have left both cards; those of RDMA count too."""
        counters = [f"/sys/class/net/{card}/statistics/tx_bytes" for card in ("v0", "v1")]
        return sum(int(pathlib.Path(counter).read_text()) for counter in counters)

    @staticmethod
    def received() -> int:
        """Return the packets of RDMA that both devices have received."""
        devices = pathlib.Path("/sys/class/infiniband")
        counters = devices.glob("*/ports/1/hw_counters/rcvd_pkts")
        return sum(int(counter.read_text()) for counter in counters)


def job_of(folder: pathlib.Path, env: Dict[str, str], hosts: Sequence[int] = HOSTS) -> Job:
    """Return a job of two workers and two servers over the cards."""
    folder.mkdir(parents=True)
    cards: object = Cards()
    return Job(folder, servers=2, env={**APART, **env}, lab=cards, hosts=hosts)  # type: ignore[arg-type]


def sums_of(outputs: Sequence[str]) -> str:
    """Return the digest that all workers printed."""
    said = {line for output in outputs for line in output.splitlines() if line.startswith("sums ")}
    assert len(said) == 1, said
    return said.pop()
