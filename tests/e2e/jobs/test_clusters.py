"""Commands of `example/kubernetes` and `example/slurm`, run as processes of this host."""

import base64
import os
import pathlib
import re
import stat
import subprocess
import sys
from typing import Any, Callable, Dict, Iterator, List

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML comes with a checker that needs Python 3.10")

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "example"
LONG_S = 180.0
Manifest = Dict[str, Any]


def manifests() -> List[Manifest]:
    return list(yaml.safe_load_all((EXAMPLE / "kubernetes" / "job.yaml").read_text()))


def of_kind(kind: str) -> List[Manifest]:
    return [manifest for manifest in manifests() if manifest["kind"] == kind]


def environment(secret: pathlib.Path, port: int) -> Dict[str, str]:
    """Return what the ConfigMap gives every pod, with the names of this host."""
    (config,), (service,) = of_kind("ConfigMap"), of_kind("Service")
    data = dict(config["data"])
    assert data["DMLC_PS_ROOT_URI"] == service["metadata"]["name"]
    assert [place["port"] for place in service["spec"]["ports"]] == [int(data["DMLC_PS_ROOT_PORT"])]
    data.update(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(port))
    data.update(BYTESCHEDULER_SECRET_FILE=str(secret), BYTESCHEDULER_METRICS="0")
    others = {k: v for k, v in os.environ.items() if not k.startswith(("DMLC_", "BYTESCHEDULER_"))}
    others["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    return {**others, "OMP_NUM_THREADS": "1", **data}


def pods() -> Iterator["tuple[str, List[str], Dict[str, str]]"]:
    """Yield name, command and own variables of each pod, as the controller of Jobs makes them."""
    for job in of_kind("Job"):
        spec = job["spec"]
        assert spec.get("completions", 1) == spec.get("parallelism", 1)
        (container,) = spec["template"]["spec"]["containers"]
        for index in range(spec.get("completions", 1)):
            own = {}
            for row in container["env"]:
                if "valueFrom" in row:
                    path = row["valueFrom"]["fieldRef"]["fieldPath"]
                    assert path.endswith("['batch.kubernetes.io/job-completion-index']")
                    assert spec["completionMode"] == "Indexed"
                own[row["name"]] = row.get("value", str(index))
            yield f"{job['metadata']['name']}-{index}", container["command"], own


def write_secret(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text)
    path.chmod(0o440)
    return path


def test_the_pods_of_the_job_train(tmp_path: pathlib.Path, free_port: Callable[[], int]) -> None:
    secret = write_secret(tmp_path / "secret", base64.b64encode(os.urandom(32)).decode())
    env = environment(secret, free_port())
    started = {}
    for name, command, own in pods():
        with (tmp_path / f"{name}.log").open("wb") as log:
            started[name] = subprocess.Popen(
                command,
                cwd=EXAMPLE,
                env={**env, **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
    try:
        codes = {name: process.wait(LONG_S) for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    said = {name: (tmp_path / f"{name}.log").read_text() for name in started}
    assert len(started) == 1 + int(env["DMLC_NUM_SERVER"]) + int(env["DMLC_NUM_WORKER"])
    assert set(codes.values()) == {0}, said
    assert "weights sha256" in said["mnist-worker-0"]
    assert "weights sha256" in said["mnist-worker-1"]


def test_nodes_refuse_the_secret_that_the_manifest_has(
    tmp_path: pathlib.Path, free_port: Callable[[], int]
) -> None:
    (placeholder,) = of_kind("Secret")
    (text,) = placeholder["stringData"].values()
    secret = write_secret(tmp_path / "secret", text)
    env = {**environment(secret, free_port()), "DMLC_ROLE": "scheduler"}
    done = subprocess.run(
        ["bslaunch"], env=env, stderr=subprocess.PIPE, text=True, check=False, timeout=LONG_S
    )
    assert done.returncode != 0
    assert "a secret of 9 bytes, want at least 16" in done.stderr


def test_pods_see_the_secret_and_the_metrics_where_the_settings_say() -> None:
    (config,), (secret,) = of_kind("ConfigMap"), of_kind("Secret")
    port = int(config["data"]["BYTESCHEDULER_METRICS"].rpartition(":")[2])
    file = pathlib.PurePath(config["data"]["BYTESCHEDULER_SECRET_FILE"])
    assert secret["stringData"].keys() == {file.name}
    for job in of_kind("Job"):
        pod = job["spec"]["template"]["spec"]
        (container,), (volume,) = pod["containers"], pod["volumes"]
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        assert not volume["secret"]["defaultMode"] & stat.S_IRWXO
        (mount,) = container["volumeMounts"]
        assert (mount["name"], mount["mountPath"]) == (volume["name"], str(file.parent))
        probes = [container[name] for name in container if name.endswith("Probe")]
        assert probes
        assert {probe["httpGet"]["port"] for probe in probes} == {port}
        assert {probe["httpGet"]["path"] for probe in probes} == {"/metrics"}


def test_the_image_is_built_with_the_packages_that_a_build_needs() -> None:
    lines = (EXAMPLE / "docker" / "Dockerfile").read_text()
    first, second = (
        set(re.findall(r"[\w+.-]+", part))
        for part in re.findall(r"--no-install-recommends((?: *\\\n.*?)+) *\\\n    &&", lines)
    )
    makefile = (EXAMPLE.parent / "Makefile").read_text()
    packages = re.search(r"^PACKAGES := ((?:.*\\\n)*.*)$", makefile, re.M)
    assert packages is not None
    needed = set(packages.group(1).replace("\\", "").split())
    assert first == needed - {"libgomp1"}
    assert "g++" not in second
    assert {"python3", "libgomp1"} <= second
    project = (EXAMPLE.parent / "pyproject.toml").read_text()
    tools = re.findall(r'"((?:setuptools|cython)[^"]+)"', lines)
    assert len(tools) == 2
    assert all(f'"{tool}"' in project for tool in tools)


def test_the_slurm_script_starts_one_command_with_a_secret_of_its_own(
    tmp_path: pathlib.Path,
) -> None:
    srun = tmp_path / "srun"
    srun.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@"\nstat -c %a,%s "$BYTESCHEDULER_SECRET_FILE"\nexit 7\n'
    )
    srun.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12"}
    script = str(EXAMPLE / "slurm" / "train.sbatch")
    done = subprocess.run(
        ["bash", script, "train.py", "two words"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    assert done.returncode == 7
    *words, secret = done.stdout.splitlines()
    assert words[-6:] == ["bslaunch", "--servers", "2", "python3", "train.py", "two words"]
    assert secret == "600,45"
    assert not list(tmp_path.glob(".bytescheduler-*"))
    assert subprocess.run(["bash", script], stderr=subprocess.PIPE, check=False).returncode == 2
