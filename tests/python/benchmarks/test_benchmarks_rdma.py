"""Benchmarks by RDMA: hosts, devices, perftest; nothing here needs a device."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Dict, List

import pytest
from inline_snapshot import snapshot

from benchmarks.rdma import device, goodput, hosts, on_host, perftest, reads, urgent
from bytescheduler._launch.launcher import Place
from bytescheduler._native import HostFact

NONE = "this host shows no RDMA device: load its driver"
# perftest's: a listener waits, and the other one prints a table.
FAKE = """#!/bin/sh
echo "$*" >>"$0.said"
case "$*" in *10.0.0.2) ;; *) exec sleep 20 ;; esac
echo " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
echo " 65536      1000             50.00              40.00                0.000640"
"""


@pytest.fixture
def _one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def about_host(settings: Dict[str, str]) -> List[HostFact]:
        gid = settings["DMLC_NODE_HOST"][-1]
        return [
            HostFact("rdma_port", "rxe0:1", ""),
            HostFact("rdma_choice", "rxe0:1", f"GID {gid}"),
        ]

    monkeypatch.setattr(device, "about_host", about_host)


@pytest.fixture
def fake(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    program = tmp_path / "ib_read_bw"
    program.write_text(FAKE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return program


@pytest.mark.parametrize("name", ["goodput", "latency", "reads", "replay", "urgent"])
def test_a_host_without_a_device_is_named_before_anything_starts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "about_host", lambda _: [HostFact("rdma_choice", "", NONE)])
    monkeypatch.setattr(sys, "argv", [name, "--hosts", "10.0.0.1,10.0.0.2"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.rdma.{name}").main()
    assert str(ended.value) == f"no RDMA at 10.0.0.1: {NONE}"


def test_another_machine_says_itself_why_it_has_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    root = pathlib.Path(__file__).resolve().parents[3]
    monkeypatch.setenv("PYTHONPATH", str(root))
    # The loopback is no address of a device, whatever devices this machine has.
    with pytest.raises(SystemExit, match="^no RDMA at 127.0.0.1: "):
        hosts.device_of(Place("127.0.0.1", ["env", "BYTESCHEDULER_RDMA_DEVICE=none0"]))


@pytest.mark.usefixtures("_one_device")
def test_a_device_is_that_of_the_address() -> None:
    assert device.device_at("10.0.0.3") == ("rxe0", "1", "3")


@pytest.mark.parametrize("wrong", ["10.0.0.1", "10.0.0.1,", "10.0.0.1,b="])
def test_fewer_than_two_addresses_are_refused(
    wrong: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["goodput", "--hosts", wrong])
    with pytest.raises(SystemExit):
        goodput.main()
    assert f"--hosts: '{wrong}': want two addresses or more" in capsys.readouterr().err


def test_a_command_by_ssh_has_its_folder_and_the_settings(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    code = "import json, os; print(json.dumps([os.getcwd(), os.environ['DMLC_ROLE']]))"
    env = {"DMLC_ROLE": "a 'worker'", "HOME": "/none"}
    words = on_host.ssh_command("b", [sys.executable, "-c", code], env, str(folder))
    assert words[:-1] == ["ssh", "-o", "BatchMode=yes", "b"]
    assert "HOME" not in words[-1]
    ran = subprocess.run(["sh", "-c", words[-1]], stdout=subprocess.PIPE, check=True)
    assert json.loads(ran.stdout) == [str(folder), "a 'worker'"]


@pytest.mark.usefixtures("_one_device")
@pytest.mark.parametrize(("both_ways", "rate"), [(False, 40.0), (True, 20.0)])
def test_perftest_measures_between_the_devices_of_two_addresses(
    fake: pathlib.Path, both_ways: bool, rate: float
) -> None:
    ends = (Place("10.0.0.1"), Place("10.0.0.2"))
    found = perftest.gbytes_per_s("ib_read_bw", ends, 65536, 1000, both_ways)
    assert found == pytest.approx(rate * (1 << 20) / 1e9)
    asked = next(
        line
        for line in fake.with_name("ib_read_bw.said").read_text().splitlines()
        if line.endswith(" 10.0.0.2")
    )
    assert " -d rxe0 -i 1 -x 1 -s 65536 -n 1000" in asked
    assert (" -b " in asked) == both_ways


@pytest.mark.usefixtures("_one_device")
def test_a_machine_without_perftest_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SystemExit, match="ib_read_bw") as raised:
        perftest.gbytes_per_s("ib_read_bw", (Place(), Place()), 65536, 1000)
    assert str(raised.value) == snapshot("ib_read_bw is not there: apt-get install perftest")


@pytest.mark.usefixtures("_one_device")
def test_an_error_of_perftest_without_a_table_is_shown(fake: pathlib.Path) -> None:
    fake.write_text("#!/bin/sh\necho 'Failed to modify QP to RTR' >&2; sleep 0.1; exit 1\n")
    with pytest.raises(SystemExit, match="Failed to modify QP to RTR"):
        perftest.gbytes_per_s("ib_read_bw", (Place(), Place()), 65536, 1000)


def test_shares_and_bounds_are_taken_from_medians() -> None:
    runs = {"tcp": [{"gbytes_per_s": 2.0}], "rdma": [{"gbytes_per_s": x} for x in (1.0, 3.0, 9.0)]}
    assert goodput.shares(runs) == {"rdma_of": {"tcp": 1.5}}
    assert goodput.shares({"tcp": runs["tcp"], "rdma": []}) == {}
    both = {"read": [{"65536": 1.0}], "write": [{"65536": 4.0}]}
    assert reads.shares(both) == {"read_of_write": {"65536": 0.25}}
    times = {"median_ms": 1.0, "p99_ms": 2.0}
    run = {"to_sum": times, "to_sum_idle": times, "bulk_mbytes_per_s": 2 * 131.072}
    assert urgent.summary([run])["bound_ms"] == pytest.approx(1.02)
