"""Pages for users, followed as they are written."""

import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time
from typing import Callable, Dict, List

import pytest
from job import Job
from written import ROOT, blocks

from bytescheduler._started.environments import place_in_job

MIGRATE = sorted(path.name for path in (ROOT / "docs" / "migrate").glob("*.md"))
LONG_S = 120.0
# In place of Docker: a container is a process of this host.
DOCKER = """#!/bin/sh
[ "$1" = run ] || exit 0
shift
while [ "$1" != bytescheduler ]; do
  case "$1" in
    -e) export "$2"; shift 2;;
    --name) name=$2; shift 2;;
    --network) [ "$2" = job ] || exit 2; shift 2;;
    -d) shift;;
    *) echo "docker: unknown option $1" >&2; exit 2;;
  esac
done
shift
[ "$DMLC_PS_ROOT_URI" = scheduler ] || exit 2
export DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=$TEST_PORT
cd "$TEST_EXAMPLES" || exit 2
("$@" >"$TEST_LOGS/$name.log" 2>&1; echo $? >"$TEST_LOGS/$name.code") &
"""


def clean() -> Dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "BYTESCHEDULER_"))}
    kept["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return {**kept, "OMP_NUM_THREADS": "1"}


def test_the_code_of_the_migration_pages_trains(make_job: Callable[..., Job]) -> None:
    for rank, output in enumerate(sorted(make_job().run("pages/migrate.py", *MIGRATE))):
        trained = re.findall(r"^(\S+): rank (\d) of 2 trained$", output, re.M)
        assert trained == [(page, str(rank)) for page in MIGRATE]


def test_the_containers_of_the_page_train(
    tmp_path: pathlib.Path, free_port: Callable[[], int]
) -> None:
    (script,) = (text for text in blocks("user/docker.md", "sh") if "network create" in text)
    commands = script.partition("docker logs")[0]
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    env = {
        **clean(),
        "TEST_PORT": str(free_port()),
        "TEST_EXAMPLES": str(ROOT / "example"),
        "TEST_LOGS": str(tmp_path),
    }
    env["PATH"] = os.pathsep.join([str(tmp_path), env["PATH"]])
    names = {"scheduler", "server", "worker0", "worker1"}
    shell = subprocess.Popen(["sh", "-ec", commands + "\nwait"], env=env, start_new_session=True)
    try:
        assert shell.wait(LONG_S) == 0
        end = time.monotonic() + LONG_S
        while len(list(tmp_path.glob("*.code"))) < len(names) and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        if len(list(tmp_path.glob("*.code"))) < len(names):
            os.killpg(shell.pid, signal.SIGKILL)
    logs = {path.stem: path.read_text() for path in tmp_path.glob("*.log")}
    codes = {path.stem: path.read_text().strip() for path in tmp_path.glob("*.code")}
    assert codes == dict.fromkeys(names, "0"), logs
    assert "weights sha256" in logs["worker0"]


def test_the_pytorch_job_of_the_page_has_one_first_pod_and_one_command() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with a checker for Python 3.10")
    job = yaml.safe_load(blocks("user/kubernetes.md", "yaml")[0])
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert list(replicas) == ["Master", "Worker"]
    assert replicas["Master"]["replicas"] == 1
    containers = [row["template"]["spec"]["containers"] for row in replicas.values()]
    assert containers[0][0]["name"] == "pytorch"
    (script,) = {container["command"][1] for (container,) in containers}
    assert (ROOT / "example" / script).is_file()


def test_the_indexed_job_of_the_page_has_a_process_for_each_role() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with a checker for Python 3.10")
    checker = pytest.importorskip("kubernetes_validate")
    service, job = yaml.safe_load_all(blocks("user/kubernetes.md", "yaml")[1])
    for manifest in (service, job):
        checker.validate(manifest, checker.latest_version(), strict=True)
    spec = job["spec"]
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    (container,) = spec["template"]["spec"]["containers"]
    command: List[str] = container["command"]
    options = dict(zip(command[1:5:2], command[2:5:2]))
    servers, workers = int(options["--servers"]), int(options["--workers"])
    roles = [
        place_in_job(
            {"JOB_COMPLETION_INDEX": str(index), "DMLC_PS_ROOT_URI": "train-0.train"},
            servers,
            workers,
        )["DMLC_ROLE"]
        for index in range(spec["completions"])
    ]
    assert roles == ["scheduler", *["server"] * servers, *["worker"] * workers]
    assert spec["parallelism"] == spec["completions"]
