"""A cluster of the real programs on loopback: etcd, API server, controllers, scheduler, and KWOK for the nodes."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import certs
from tests.e2e import pki

START_TIMEOUT = 300
"""Seconds any component has to come up."""
KUBECTL_TIMEOUT = 330
"""Seconds a kubectl may take."""
PATIENCE = 300
"""Seconds after which a test gives up; nothing takes them, however busy the machine is."""
TAIL = 25
"""Lines of a log that are shown when its component fails."""
LAUNCHER = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes the program in its arguments, and has it sent a signal when its parent ends, in whatever way."""
HERE = Path(__file__).resolve().parent


class Failed(Exception):
    """A component that did not come up, with the end of its log; or a kubectl that failed, with its message."""


class User(NamedTuple):
    """Somebody the API server knows by a client certificate."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", ("system:masters",))


@dataclass(frozen=True)
class Component:
    """A program that runs in a process group of its own."""

    name: str
    command: tuple[str | Path, ...]
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        """Kill its process group: nothing in a test cluster is worth a farewell."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze its process group until the block ends."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-TAIL:])


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs; without an authority it is somebody's own, of which only the kubeconfig is known."""

    folder: Path
    binaries: Path
    url: str
    authority: certs.Pair | None = field(repr=False)
    components: list[Component] = field(default_factory=list, repr=False)

    def kubeconfig(self, user: User = ADMIN) -> Path:
        """A file by which `user` reaches the API server; written the first time."""
        file = self.kubeconfig_file(user)
        if not file.exists():
            if self.authority is None:
                raise ValueError(f"nothing here can vouch for {user.name}")
            pair = pki.client_pair(self.authority, user.name, user.groups)
            secrets = {
                "client-certificate-data": _base64(pair.certificate_pem),
                "client-key-data": _base64(pair.key_pem),
            }
            trusted = {"certificate-authority-data": _base64(self.authority.certificate_pem)}
            _write(file, _kubeconfig({"server": self.url, **trusted}, secrets))
        return file

    def kubeconfig_file(self, user: User) -> Path:
        """Where the kubeconfig of a user lies, written or not."""
        return self.folder / f"{'+'.join((user.name, *user.groups)).translate(str.maketrans('/:', '--'))}.kubeconfig"

    def kubeconfig_of_account(self, name: str, namespace: str) -> Path:
        """A file by which a service account reaches the API server, with a token for two hours."""
        file = self.folder / f"{namespace}+{name}.kubeconfig"
        token = self.do("create", "token", name, f"--namespace={namespace}", "--duration=2h").strip()
        shown = json.loads(self.do("config", "view", "--raw", "--minify", "--flatten", "--output=json"))
        _write(file, _kubeconfig(shown["clusters"][0]["cluster"], {"token": token}))
        return file

    def kubectl(
        self, *arguments: str | Path, stdin: str | None = None, user: User | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as an administrator, who may act for `user`; whether it failed is for the caller to see."""
        acting = [f"--as={user.name}", *(f"--as-group={group}" for group in user.groups)] if user else []
        command = [self.binaries / "kubectl", f"--kubeconfig={self.kubeconfig()}", *acting, *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=_environment(self.folder),
            input=stdin or "",  # never our own: kubectl is not to wait for anyone
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT,
            check=False,
        )

    def do(self, *arguments: str | Path, stdin: str | None = None, user: User | None = None) -> str:
        """Run kubectl and return what it prints; raise Failed when it fails."""
        result = self.kubectl(*arguments, stdin=stdin, user=user)
        if result.returncode:
            raise Failed(f"kubectl {' '.join(map(str, arguments))}: {result.stderr.strip()}")
        return result.stdout

    def get(self, *arguments: str) -> Any:
        """Return objects as the API server shows them."""
        return json.loads(self.do("get", *arguments, "--output=json"))

    def apply(self, *objects: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        """Run `kubectl apply` on objects."""
        return self.kubectl("apply", "--filename=-", stdin=_list(objects))

    def start(self, name: str, *command: str | Path, orphaned: signal.Signals = signal.SIGKILL) -> Component:
        """Start a program that lives no longer than the cluster; `orphaned` is what tells it of our sudden end."""
        return self._launch(name, (sys.executable, "-ISc", LAUNCHER, str(int(orphaned)), *command))

    def stop(self, name: str) -> Component:
        """End a program, so that its absence is no failure; return what it was."""
        (component,) = [each for each in self.components if each.name == name]
        self.components.remove(component)
        component.stop()
        return component

    def restart(self, name: str) -> None:
        """End a program and start it again as it was."""
        self.resume(self.stop(name))

    def resume(self, stopped: Component) -> Component:
        """Start a program again that was stopped."""
        return self._launch(stopped.name, stopped.command)

    def _launch(self, name: str, command: tuple[str | Path, ...]) -> Component:
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=_environment(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        component = Component(name, command, process, log)
        self.components.append(component)
        return component

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for something to hold; raise Failed when a program ends meanwhile, or it takes too long."""
        patience = time.monotonic() + START_TIMEOUT
        while True:
            for component in self.components:
                if (status := component.process.poll()) is not None:
                    raise Failed(f"{component.name} ended with status {status}; its last lines:\n{component.tail()}")
            if holds():
                return
            if time.monotonic() > patience:
                tails = "\n".join(f"{each.name}:\n{each.tail()}" for each in self.components)
                raise Failed(f"{what}: not after {START_TIMEOUT} s; the last lines of\n{tails}")
            time.sleep(0.1)

    def add_nodes(self, file: Path = HERE / "nodes.yaml") -> None:
        """Create the nodes of a file, say through the status subresource what they hold, and wait for them."""
        nodes = list(yaml.safe_load_all(file.read_text("utf-8")))
        bare = [{key: value for key, value in node.items() if key != "status"} for node in nodes]
        # Some may be there still, of a run that was cut off.
        self.do("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=_list(bare))
        for node in nodes:
            status = json.dumps({"status": node["status"]})
            self.do(
                "patch", "node", node["metadata"]["name"], "--subresource=status", "--type=merge", f"--patch={status}"
            )
        names = [f"node/{node['metadata']['name']}" for node in nodes]
        self.do("wait", "--for=condition=Ready", "--timeout=300s", *names)
        # The controllers take their taints of new nodes away after that.
        self.wait_until("the nodes are open to pods", lambda: not self._closed(names))

    def _closed(self, nodes: Sequence[str]) -> list[str]:
        """The nodes that have a taint of Kubernetes' own."""
        taints = {node["metadata"]["name"]: node["spec"].get("taints", ()) for node in self.get(*nodes)["items"]}
        return [name for name, some in taints.items() if any("node.kubernetes.io/" in each["key"] for each in some)]

    def add_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Create a namespace and wait until pods can be made in it."""
        metadata = {"name": name, "labels": labels or {}}
        self.do(
            "create", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        )
        self.do("wait", "--for=create", "--timeout=300s", "serviceaccount/default", f"--namespace={name}")

    def node_of(self, pod: str, namespace: str) -> str:
        """Wait until a pod, which a controller may have yet to create, runs; return its node."""
        self.do("wait", "--for=create", "--timeout=300s", f"pod/{pod}", f"--namespace={namespace}")
        self.do(
            "wait", "--for=jsonpath={.status.phase}=Running", "--timeout=300s", f"pod/{pod}", f"--namespace={namespace}"
        )
        return str(self.get("pod", pod, f"--namespace={namespace}")["spec"]["nodeName"])


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE, pause: float = 0.1) -> bool:
    """Ask until the answer is yes, or for so many seconds."""
    patience = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > patience:
            return False
        time.sleep(pause)
    return True


@contextmanager
def running(
    folder: Path, binaries: Path, admission: Sequence[str] = (), flags: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Run a cluster until the block ends; `admission` names plugins to enable beside the default ones.

    `flags` are more of the API server's own.

    Its files lie in a new folder under `folder`, whatever else is there; the logs stay behind.
    The programs also end with the thread that enters this.
    """
    with serving(folder, binaries, admission, flags) as cluster:
        # Nobody renews the leases of nodes that only seem to run.
        start_controllers(cluster, "--node-monitor-grace-period=1h")
        kubeconfig = cluster.kubeconfig(User("kwok", ("system:masters",)))
        cluster.start("kwok", cluster.binaries / "kwok", *_kwok_flags(kubeconfig))
        controllers_at_work(cluster)
        yield cluster


def start_controllers(cluster: Cluster, *flags: str) -> None:
    """Start the controllers, with more flags, and the scheduler."""
    programs = cluster.binaries
    cluster.start("kube-controller-manager", programs / "kube-controller-manager", *_controller_flags(cluster), *flags)
    cluster.start("kube-scheduler", programs / "kube-scheduler", *_scheduler_flags(cluster))


def controllers_at_work(cluster: Cluster) -> None:
    """Wait until pods can be made in the namespace `default`."""
    has_account = partial(_succeeds, cluster, "get", "serviceaccount", "default")
    cluster.wait_until("the controllers are at work", has_account)


@contextmanager
def serving(
    folder: Path, binaries: Path, admission: Sequence[str] = (), flags: Sequence[str] = ()
) -> Iterator[Cluster]:
    """Run etcd and the API server alone, as `running` does: objects are stored, and nothing comes of them.

    `flags` are more of the API server's own, of which the last one counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="cluster-", dir=folder)).resolve()
    authority = certs.issue_ca("test cluster", datetime.now(UTC), days=2)
    with _interrupted_by_sigterm(), ExitStack() as stack:
        port = stack.enter_context(_reserved_port())
        cluster = Cluster(home, binaries.resolve(), f"https://127.0.0.1:{port}", authority)
        stack.callback(shutil.rmtree, home / "etcd", ignore_errors=True)
        stack.callback(_stop, cluster)
        _write_server_files(cluster.folder, authority)
        programs = cluster.binaries
        cluster.start("etcd", programs / "etcd", *_etcd_flags())
        cluster.start("kube-apiserver", programs / "kube-apiserver", *_api_server_flags(port, admission), *flags)
        cluster.wait_until("the API server is ready", partial(answers, cluster))
        yield cluster


@contextmanager
def another_server(cluster: Cluster, flags: Sequence[str] = ()) -> Iterator[str]:
    """Run a second API server on the same etcd, as `kube-apiserver-2`, until the block ends. Yields its URL.

    `flags` are more of its own.
    """
    with _reserved_port() as port:
        program = cluster.binaries / "kube-apiserver"
        component = cluster.start("kube-apiserver-2", program, *_api_server_flags(port, ()), *flags)
        url = f"https://127.0.0.1:{port}"
        try:
            cluster.wait_until(
                "the second API server is ready",
                lambda: _succeeds(cluster, "get", "--raw=/readyz", f"--server={url}"),
            )
            yield url
        finally:
            if component in cluster.components:
                cluster.stop(component.name)


@contextmanager
def given(folder: Path, binaries: Path, kubeconfig: Path) -> Iterator[Cluster]:
    """Use a cluster that somebody else runs, by an administrator's kubeconfig; KWOK plays its GPU nodes meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="given-", dir=folder)).resolve()
    view = ["config", "view", "--raw", "--minify", "--flatten", "--output=json"]
    command = [str(binaries.resolve() / "kubectl"), f"--kubeconfig={kubeconfig.resolve()}", *view]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    if shown.returncode:
        raise Failed(f"{kubeconfig}: {shown.stderr.strip()}")
    url = json.loads(shown.stdout)["clusters"][0]["cluster"]["server"]
    cluster = Cluster(home, binaries.resolve(), url, None)
    _write(cluster.kubeconfig_file(ADMIN), shown.stdout.encode())
    with _interrupted_by_sigterm(), ExitStack() as stack:
        stack.callback(_stop, cluster)
        if not answers(cluster):
            raise Failed(f"{kubeconfig}: no API server answers at {url}")
        cluster.start("kwok", cluster.binaries / "kwok", *_kwok_flags(cluster.kubeconfig()))
        yield cluster
        cluster.do("delete", f"--filename={HERE / 'nodes.yaml'}", "--ignore-not-found", "--wait=false")


def answers(cluster: Cluster) -> bool:
    """Tell whether the API server says that it is ready."""
    return _succeeds(cluster, "get", "--raw=/readyz")


def _etcd_flags() -> list[str]:
    # Sockets in the folder: no port to fight for, and no way in for others.
    client, peer = "unix://client.sock", "unix://peer.sock"
    return [
        "--data-dir=etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def _api_server_flags(port: int, admission: Sequence[str]) -> list[str]:
    return [
        "--etcd-servers=unix://client.sock",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--secure-port={port}",
        "--permit-port-sharing",
        "--tls-cert-file=server.crt",
        "--tls-private-key-file=server.key",
        "--client-ca-file=ca.crt",
        "--kubelet-client-certificate=kubelet-client.crt",
        "--kubelet-client-key=kubelet-client.key",
        "--authorization-mode=RBAC",
        "--allow-privileged",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-signing-key-file=accounts.key",
        "--service-account-key-file=accounts.pub",
        *([f"--enable-admission-plugins={','.join(admission)}"] if admission else []),
    ]


def _controller_flags(cluster: Cluster) -> list[str]:
    return [
        f"--kubeconfig={cluster.kubeconfig(User('system:kube-controller-manager'))}",
        "--use-service-account-credentials",  # so that webhooks see each controller under its own name
        "--service-account-private-key-file=accounts.key",
        "--root-ca-file=ca.crt",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def _scheduler_flags(cluster: Cluster) -> list[str]:
    user = User("system:kube-scheduler")
    return [f"--kubeconfig={cluster.kubeconfig(user)}", "--leader-elect=false", "--secure-port=0"]


def _kwok_flags(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--config={HERE / 'stages.yaml'}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
    ]


def _write_server_files(folder: Path, authority: certs.Pair) -> None:
    serving = certs.issue_serving(
        authority, ["localhost", "kubernetes.default.svc"], ["127.0.0.1", "10.0.0.1"], datetime.now(UTC), days=1
    )
    private, public = pki.signing_keys()
    kubelets_client = pki.client_pair(authority, "kube-apiserver-kubelet-client", ("system:masters",))
    for name, data in {
        "ca.crt": authority.certificate_pem,
        "server.crt": serving.certificate_pem,
        "server.key": serving.key_pem,
        "kubelet-client.crt": kubelets_client.certificate_pem,
        "kubelet-client.key": kubelets_client.key_pem,
        "accounts.key": private,
        "accounts.pub": public,
    }.items():
        _write(folder / name, data)


def _succeeds(cluster: Cluster, *arguments: str) -> bool:
    return cluster.kubectl(*arguments, "--request-timeout=5s").returncode == 0


def _stop(cluster: Cluster) -> None:
    for component in reversed(cluster.components):
        component.stop()


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A free port that nobody else is given: bound here, and bound again by the API server, which agrees to share."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that the block is left in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _environment(home: Path) -> dict[str, str]:
    """Nothing of the caller's: no kubeconfig, no proxy. Python code is this tree's, whatever is installed."""
    return {"HOME": str(home), "PATH": os.defpath, "PYTHONPATH": str(HERE.parents[1])}


def _write(file: Path, data: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(data)


def _list(objects: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def _kubeconfig(cluster: dict[str, str], user: dict[str, str]) -> bytes:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    return json.dumps(content).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
