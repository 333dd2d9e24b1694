"""Containers as the kernel knows them: real cgroups with real processes, and an API server that knows their pods."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from tests import ROOT
from tests.support.listening import Asked, listening
from tests.support.waiting import LONG, until
from webhook.agent.observe.cgroups import mount

SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
COMMAND = (sys.executable, "-c", "import sys; from webhook.cli.main import main; sys.exit(main())")
GPU = "nvidia.com/gpu.shared"
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A10-SHARED",
    "nvidia.com/gpu.memory": "23028",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}


class Container(NamedTuple):
    """A container's cgroup, with the process in it that was started first."""

    uid: str
    id: str
    folder: Path
    process: "subprocess.Popen[bytes]"

    @property
    def path(self) -> str:
        return f"/{self.folder.relative_to(writable())}"

    @property
    def frozen(self) -> bool:
        return "frozen 1" in (self.folder / "cgroup.events").read_text()

    def run(self, *command: str, **more: Any) -> "subprocess.Popen[bytes]":
        """Start one more process in it."""
        return _started(self.folder, command, **more)


def writable() -> Path:
    """The mount of a whole cgroup v2 in which this process may make a cgroup; skips without one."""
    root = mount()
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no whole cgroup v2 that this user may write to")
    return root


def _started(folder: Path, command: Sequence[str], **more: Any) -> "subprocess.Popen[bytes]":
    enter = f'echo $$ > {folder}/cgroup.procs && exec "$@"'
    return subprocess.Popen(["sh", "-c", enter, "sh", *command], **more)


@contextmanager
def containers(count: int, command: Sequence[str] = SLEEP) -> Iterator[list[Container]]:
    """Make containers, and at the end thaw, kill and remove them."""
    top = writable() / f"kubepods-slicewarden-{os.getpid()}-{threading.get_ident()}"
    made: list[Container] = []
    try:
        for number in range(count):
            uid, key = f"11111111-2222-3333-4444-{number:012x}", f"{number + 1:064x}"
            folder = top / f"pod{uid}" / key
            folder.mkdir(parents=True)
            made.append(Container(uid, key, folder, _started(folder, command)))
        for each in made:
            until(lambda each=each: str(each.process.pid) in (each.folder / "cgroup.procs").read_text(), "it is in")  # type: ignore[misc]
        yield made
    finally:
        for each in made:
            (each.folder / "cgroup.freeze").write_text("0")
            (each.folder / "cgroup.kill").write_text("1")
            each.process.wait()
        for folder in (*(each.folder for each in made), *(each.folder.parent for each in made), top):
            for inner in sorted(folder.rglob("*/"), reverse=True) if folder.is_dir() else ():
                until(lambda inner=inner: _gone(inner), f"{inner} is removed")  # type: ignore[misc]
            until(lambda folder=folder: _gone(folder), f"{folder} is removed")  # type: ignore[misc]


def _gone(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


def pod(container: Container, **spec: Any) -> dict[str, Any]:
    """The pod of a container, which may be paused."""
    name = f"job-{int(container.id, 16)}"
    own = {"name": "main", "resources": {"limits": {GPU: "1"}}}
    return {
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": container.uid,
            "resourceVersion": "7",
            "annotations": {"slicewarden.dev/pausable": "true"},
        },
        "spec": {"nodeName": "n", "containers": [{**own, **spec}]},
        "status": {"containerStatuses": [{"name": "main", "containerID": f"containerd://{container.id}"}]},
    }


def policy(folder: Path, **words: Any) -> str:
    """The sample policy, whose shared pool lets containers take turns. Returns the file."""
    value = yaml.safe_load((ROOT / "policies" / "sample.yaml").read_text("utf-8"))
    pool = next(each for each in value["spec"]["pools"] if each["sharing"] == "time-slicing")
    pool["node"] = {"contention": {"mode": "FirstCome", "settleMilliseconds": 100, **words}}
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump(value))
    return str(file)


@contextmanager
def api_server(folder: Path, pods: Sequence[dict[str, Any]]) -> Iterator[str]:
    """An API server that lists these pods, a node and a namespace; watches stay silent. Yields a kubeconfig's path."""
    node = {"metadata": {"name": "n", "resourceVersion": "1", "labels": LABELS}}
    space = {"metadata": {"name": "team", "resourceVersion": "1"}}
    items = {"/api/v1/pods": [*pods], "/api/v1/nodes": [node], "/api/v1/namespaces": [space]}
    ended = threading.Event()

    def answer(asked: Asked) -> None:
        url = urlsplit(asked.path)
        if asked.command != "GET":
            asked.give(201, asked.body, Content_Type="application/json")
            return
        asked.begin(200, Content_Type="application/json", Connection="close")
        if "watch=" in url.query:
            ended.wait(60)
            return
        asked.wfile.write(json.dumps({"metadata": {"resourceVersion": "10"}, "items": items[url.path]}).encode())

    with listening(answer) as url:
        file = folder / "kubeconfig"
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "c",
                }
            )
        )
        try:
            yield str(file)
        finally:
            ended.set()


class Node:
    """A node whose containers want all of one card, with the commands that run on it."""

    def __init__(self, folder: Path, card: Any, here: list[Container], kubeconfig: str, words: dict[str, Any]) -> None:
        self.folder, self.card, self.here, self.kubeconfig = folder, card, here, kubeconfig
        self.run, self.policy = folder / "run", policy(folder, **words)
        self.slots = [card.hold(each.process.pid, 1000, sm=30) for each in here]
        card.set(busy=100)

    @contextmanager
    def command(self, *words: str, **environment: str) -> "Iterator[subprocess.Popen[str]]":
        line, variables = [*COMMAND, *words, "--ledger", str(self.run)], {**self.card.environment, **environment}
        with (self.folder / f"{words[0]}.log").open("a") as log:
            process = subprocess.Popen(line, env=variables, stdout=log, text=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def agent(self, *more: str) -> "Any":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        listen = ("--listen", f"127.0.0.1:{port}")
        return self.command(
            "agent", "--node", "n", "--kubeconfig", self.kubeconfig, "--policy", self.policy, *listen, *more
        )

    def thawer(self, silence: str = "3") -> "Any":
        return self.command("thaw", "--watch", "--silence", silence)

    @property
    def frozen(self) -> int:
        return sum(each.frozen for each in self.here)

    def waits(self, count: int) -> None:
        until(lambda: self.frozen == count, f"{count} are frozen")

    def log(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / f"{name}.log").read_text().splitlines()]


@contextmanager
def node(tmp_path: Path, card: Any, count: int = 3, **words: Any) -> Iterator[Node]:
    with containers(count) as here, api_server(tmp_path, [pod(each) for each in here]) as kubeconfig:
        yield Node(tmp_path, card, here, kubeconfig, words)


@contextmanager
def running(environment: dict[str, str], *more: str) -> "Iterator[tuple[subprocess.Popen[str], int]]":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [*COMMAND, "agent", "--listen", f"127.0.0.1:{port}", *more], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()
