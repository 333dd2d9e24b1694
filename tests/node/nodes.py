"""Real nodes beside the control plane of tests/e2e: a containerd and a kubelet each, and one kube-proxy. Inside bed.py.

The nodes share a network namespace, and so one kube-proxy. Each has a mount namespace, since the place of the device
plugins' sockets is a constant, and its own /run, /srv, /var/lib, addresses, bridge, port and control groups.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.e2e import control_plane
from tests.e2e.control_plane import Cluster, Failed, User
from tests.node.bed import HIERARCHIES, made
from tests.node.images import PAUSE, Image
from tests.support.go_programs import cache

ADDRESS = "10.99.0.1"
"""What inside.sh gives the machine: the API server's, and the first node's."""
GPU_NODE, WORKER = "gpu-node", "worker"
API_SERVER_FLAGS = (
    "--bind-address=0.0.0.0",  # pods call it, by the address that the Service `kubernetes` leads to
    f"--advertise-address={ADDRESS}",
    "--endpoint-reconciler-type=lease",
    "--authorization-mode=Node",  # beside RBAC
    "--kubelet-preferred-address-types=InternalIP",
)
MOUNTS = """
for folder in /var/lib /var/log /run /srv; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mkdir /run/etc /run/etc/upper /run/etc/work  # what lands in /etc stays the node's own
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work etc /etc
mkdir -p /var/lib/kubelet/device-plugins /var/log/pods /var/log/containers
mount --make-rshared /
touch "$0"
exec sleep infinity
"""
NO_EVICTION = {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"}


class Node:
    """A kubelet and its containerd."""

    def __init__(
        self, cluster: Cluster, programs: Mapping[str, Path], name: str, index: int, runtimes: Mapping[str, str]
    ) -> None:
        """Give it its mounts, addresses and control groups.

        `runtimes` are the programs that start its containers, by the handler that a RuntimeClass names; `runc` is the
        one where none is named.
        """
        self.cluster, self.programs, self.name, self.index, self.runtimes = cluster, programs, name, index, runtimes
        self.home = cluster.folder / name
        self.store = cache() / "node" / "containerd" / name
        self.store.mkdir(parents=True, exist_ok=True)
        (self.home / "cni").mkdir(parents=True)
        (self.home / "cni" / "10-pods.conflist").write_text(json.dumps(_network(index)))
        ready = self.home / "mounts-are-there"
        # Held by a process: binding a mount namespace to a file fails now and then, by the order of their numbers.
        self.mounts = cluster.start(
            f"mounts-{name}", "/usr/bin/unshare", "--mount", "--propagation=private", "/bin/sh", "-euc", MOUNTS, ready
        )
        if index:
            subprocess.run(["ip", "address", "add", f"10.99.0.{index + 1}/24", "dev", "node0"], check=True)
        for hierarchy in HIERARCHIES.iterdir():
            made(hierarchy / name)
        cluster.wait_until(f"the mounts of {name} are there", ready.exists)

    @property
    def inside(self) -> tuple[str | Path, ...]:
        """Return the beginning of a command that runs where this node's programs do."""
        path = f"{self.programs['containerd'].parent}:{os.defpath}:/usr/sbin:/sbin"
        enter = ("/usr/bin/nsenter", f"--target={self.mounts.process.pid}", "--mount", f"--wd={self.cluster.folder}")
        return (*enter, "/usr/bin/env", f"PATH={path}")

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command there; whether it failed is for the caller to see."""
        return subprocess.run([*self.inside, *command], capture_output=True, text=True, check=False)

    def ctr(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Ask its containerd."""
        return self.run(self.programs["ctr"], "--namespace=k8s.io", *arguments)

    def start_containerd(self) -> None:
        """Start its containerd, which keeps images from run to run."""
        config = self.home / "containerd.toml"
        config.write_text(self._containerd_config(), "utf-8")
        self.cluster.start(f"containerd-{self.name}", *self.inside, self.programs["containerd"], f"--config={config}")

    def import_images(self, images: Sequence[Image]) -> None:
        """Give it those images that it does not have."""
        self.cluster.wait_until(f"containerd of {self.name} answers", lambda: self.ctr("version").returncode == 0)
        for image in images:
            stamp = self.store / f"{image.archive.stem.rpartition('-')[0]}.imported"
            if stamp.exists() and stamp.read_text() == image.archive.name:
                continue
            done = self.ctr("images", "import", image.archive)
            if done.returncode:
                raise Failed(f"import of {image.archive}: {done.stderr}")
            stamp.write_text(image.archive.name)

    def start_kubelet(self) -> None:
        """Start its kubelet."""
        config = self.home / "kubelet.json"
        config.write_text(json.dumps(_kubelet_config(self.cluster, self.name, self.index)))
        identity = self.cluster.kubeconfig(User(f"system:node:{self.name}", ("system:nodes",)))
        self.cluster.start(
            f"kubelet-{self.name}", *self.inside, self.programs["kubelet"], f"--config={config}",
            f"--kubeconfig={identity}", "--root-dir=/var/lib/kubelet", f"--hostname-override={self.name}",
            f"--node-ip=10.99.0.{self.index + 1}",
        )  # fmt: skip

    def is_ready(self) -> bool:
        """Tell whether the API server says so."""
        path = '--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self.cluster.kubectl("get", "node", self.name, path).stdout == "True"

    def group_of(self, container: str, hierarchy: str) -> Path:
        """The control group of a container in a hierarchy, by its id as a pod's status has it."""
        (found,) = (HIERARCHIES / hierarchy / self.name).rglob(container.removeprefix("containerd://"))
        return found

    def _containerd_config(self) -> str:
        table = '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes'
        runtimes = "".join(
            f"""
{table}.{handler}]
runtime_type = "io.containerd.runc.v2"
pod_annotations = ["cdi.k8s.io/*"]  # passed on to the runtime, as administrators may have it
{table}.{handler}.options]
BinaryName = "{program}"
SystemdCgroup = false
"""
            for handler, program in self.runtimes.items()
        )
        return f"""
version = 3
root = "{self.store}"
state = "/run/containerd"
disabled_plugins = [
    "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp"
]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true  # to lower it takes CAP_SYS_RESOURCE
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{self.programs["bridge"].parent}"]
conf_dir = "{self.home}/cni"
{runtimes}"""


def _network(index: int) -> dict[str, Any]:
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        "ranges": [[{"subnet": f"10.244.{index}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": f"pods{index}", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _kubelet_config(cluster: Cluster, name: str, index: int) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{name}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "x509": {"clientCAFile": str(cluster.folder / "ca.crt")},
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": ["10.0.0.10"],  # nobody answers there, and a kubelet without any complains of each pod
        "clusterDomain": "cluster.local",
        "evictionHard": NO_EVICTION,
        "imageGCHighThresholdPercent": 100,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "protectKernelDefaults": True,
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "readOnlyPort": 0,
        "port": 10250 + index,
        "healthzPort": 0,
        "podLogsDir": "/var/log/pods",
    }


def _proxy_config(kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": "10.244.0.0/16",
        "hostnameOverride": GPU_NODE,
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }


class Bed(dict[str, Node]):
    """The nodes by name, and their cluster."""

    def __init__(self, cluster: Cluster, programs: Mapping[str, Path]) -> None:
        super().__init__()
        self.cluster, self.programs = cluster, programs

    def begin(self, name: str, runtimes: Mapping[str, str] = MappingProxyType({})) -> None:
        """Begin a node, without its kubelet; `runtimes` are what starts its containers, if not runc alone."""
        self[name] = Node(
            self.cluster, self.programs, name, len(self), {"runc": str(self.programs["runc"]), **runtimes}
        )
        self[name].start_containerd()

    def add(self, name: str, images: Sequence[Image]) -> Node:
        """Add a node to the cluster, and wait until it is ready."""
        self.begin(name)
        self[name].import_images(images)
        self[name].start_kubelet()
        self.cluster.wait_until(f"{name} is ready", self[name].is_ready)
        return self[name]

    def remove(self, name: str) -> None:
        """Take a node away, as one that is switched off; its pods go with it."""
        self.cluster.stop(f"kubelet-{name}")
        self.cluster.do("delete", "node", name)
        # Its containers are nobody's now: their network and processes end with the bed.
        self.cluster.do(
            "delete",
            "pods",
            "--all-namespaces",
            f"--field-selector=spec.nodeName={name}",
            "--force",
            "--grace-period=0",
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Let one bed at a time use what containerd keeps; the lock goes with the process."""
    (cache() / "node").mkdir(parents=True, exist_ok=True)
    with (cache() / "node" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def running(
    folder: Path,
    binaries: Path,
    programs: Mapping[str, Path],
    images: Mapping[str, Sequence[Image]],
    runtimes: Mapping[str, Callable[[Path], Mapping[str, str]]],
) -> Iterator[Bed]:
    """Run a cluster of real nodes, each with its images, until the block ends.

    `binaries` holds the control plane's programs, `programs` says where the nodes' are. A node's containers are started
    by runc, unless `runtimes` makes other programs for it in the folder that it is given.
    """
    with (
        _alone(),
        control_plane.serving(folder, binaries, ("NodeRestriction",), API_SERVER_FLAGS) as cluster,
    ):
        control_plane.start_controllers(cluster, "--node-monitor-grace-period=40s")
        bed = Bed(cluster, programs)
        for name in images:
            bed.begin(name, runtimes[name](cluster.folder) if name in runtimes else {})
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.import_images(images[node.name]), bed.values()))
        for node in bed.values():
            node.start_kubelet()
        proxy = cluster.folder / "proxy.json"
        proxy.write_text(json.dumps(_proxy_config(cluster.kubeconfig(User("system:kube-proxy")))))
        nft = shutil.which("nft") or "nft"
        cluster.start(
            "kube-proxy", "/usr/bin/env", f"PATH={Path(nft).parent}:{os.defpath}", programs["kube-proxy"],
            f"--config={proxy}",
        )  # fmt: skip
        for node in bed.values():
            cluster.wait_until(f"{node.name} is ready", node.is_ready)
        control_plane.controllers_at_work(cluster)
        yield bed
