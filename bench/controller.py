"""Measures the resident memory and the CPU of the controller while nothing changes, in a cluster of 1,000 nodes.

It runs as a process of its own against an API server in memory, with a policy in force and two replicas. Its watches
stay open, and nothing comes by them. It lists no nodes and no pods, and renews its lease every five seconds.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.generator import Wrong
from bench.runs import Result, figure
from tests.support.api_in_memory import POLICIES, ApiInMemory, installed
from tests.support.kubeconfigs import kubeconfig
from tests.support.policies import POLICY

NODES = 1_000

PATIENCE = 120.0
"""Seconds until the policy has to be in force."""

TICKS = os.sysconf("SC_CLK_TCK")


def run(seconds: float = 60.0) -> Result:
    """Run a controller until its policy is in force, and then measure it for a number of seconds."""
    with tempfile.TemporaryDirectory() as folder, installed() as api:
        value = yaml.safe_load(POLICY.read_text("utf-8"))
        value["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        value["spec"]["mode"] = "Enforce"
        api.put(f"{POLICIES}/{value['metadata']['name']}", value)
        for number in range(NODES):
            api.put(f"/api/v1/nodes/gpu-{number}", {"kind": "Node", "metadata": {"name": f"gpu-{number}"}})
        with _running(api, Path(folder)) as pid:
            _settled(api, value["metadata"]["name"])
            began, cpu = time.monotonic(), _cpu(pid)
            time.sleep(seconds)
            share = (_cpu(pid) - cpu) / (time.monotonic() - began) * 1000
            memory = _resident(pid)
    takes = f"{memory:.0f} MiB, and {share:.1f} ms of CPU a second while nothing changes"
    text = f"In a cluster of {NODES:,} nodes the controller takes {takes}.\n"
    return Result(
        text, [figure("controller resident memory", "MiB", [memory]), figure("controller idle CPU", "ms/s", [share])]
    )


@contextmanager
def _running(api: ApiInMemory, folder: Path) -> Iterator[int]:
    address = api.url.removeprefix("http://")
    command = [sys.executable, "-m", "webhook", "controller", "--kubeconfig", str(kubeconfig(folder, api.url))]
    command += ["--drain", "1", "--listen", "127.0.0.1:0", "--api-server", api.url]
    command += [word for number in (0, 1) for word in ("--replica", f"{address}/replica{number}")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _settled(api: ApiInMemory, name: str) -> None:
    patience = time.monotonic() + PATIENCE
    while (api.objects[f"{POLICIES}/{name}"].get("status") or {}).get("phase") != "InForce":
        if time.monotonic() > patience:
            raise Wrong(f"the policy is not in force after {PATIENCE:.0f} s")
        time.sleep(0.1)


def _cpu(pid: int) -> float:
    """Return the seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
