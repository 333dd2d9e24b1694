"""How a pod comes to a GPU: the names by which it may ask, and the doors that need no asking. Tables, and nothing else.

A name may end in `*`, and then stands for all that begin so. Sources are given as repository and file.
"""

import posixpath
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Names:
    """Names, some of them by how they begin."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self.names = frozenset(p for p in self.patterns if not p.endswith("*"))
        self.prefixes = tuple(p[:-1] for p in self.patterns if p.endswith("*"))

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.patterns)

    def any_begins(self, start: str) -> bool:
        """Tell whether something that begins so can be one of them."""
        return start.startswith(self.prefixes) or any(p.rstrip("*").startswith(start) for p in self.patterns)


# Asking

NVIDIA_RESOURCES = "nvidia.com/*"
"""The names of NVIDIA's own device plugins, of which all are GPUs but those below.

NVIDIA/k8s-device-plugin internal/rm/rm.go names whole and renamed GPUs and MIG profiles,
NVIDIA/kubevirt-gpu-device-plugin and NVIDIA/sandbox-device-plugin (pkg/device_plugin) a card by its product, as
`nvidia.com/GA102GL_A10`, and HAMi, vgpu-manager and nos parts of one.
"""

OTHER_RESOURCES = (
    # Network cards: Mellanox/network-operator example/crs, sriov-network-device-plugin with its prefix
    "nvidia.com/hostdev*",
    "nvidia.com/mlnx*",
    "nvidia.com/rdma*",
    "nvidia.com/sriov*",
    "nvidia.com/ib*",
    # Functions of a BlueField: NVIDIA/doca-platform api/dpuservice/v1alpha1
    "nvidia.com/bf_sf*",
    "nvidia.com/bf_vf*",
)
"""Names under `nvidia.com/` that are no GPUs; an administrator chooses those of network cards, and may name more."""

RESOURCES = (
    # ROCm/k8s-device-plugin: whole cards, and partitions by their compute and memory mode
    "amd.com/gpu*",
    "amd.com/cpx_*",
    "amd.com/dpx_*",
    "amd.com/qpx_*",
    "amd.com/spx_*",
    # intel/intel-device-plugins-for-kubernetes cmd/gpu_plugin
    "gpu.intel.com/*",
    "aliyun.com/gpu*",
    "nvshare.com/gpu",
    "tencent.com/vcuda-*",
    "volcano.sh/gpu*",
    "volcano.sh/vgpu*",
    "koordinator.sh/gpu*",
    # awslabs/aws-virtual-gpu-device-plugin, Tencent's qGPU, Volcengine's mGPU
    "k8s.amazonaws.com/vgpu*",
    "tke.cloud.tencent.com/qgpu-*",
    "vke.volcengine.com/mgpu-*",
    "tensor-fusion.ai/index*",  # NexusGPU/tensor-fusion pkg/constants
)
"""Extended resources that are GPUs or parts of them to other vendors and schedulers."""

ANNOTATIONS = Names(
    (
        # KAI-Scheduler pkg/binder/plugins/gpusharing/gpu-request, and run:ai, whence it came
        "gpu-fraction",
        "gpu-fraction-num-devices",
        "gpu-fraction-container-name",
        "gpu-memory",
        "runai/gpu-fraction",
        "runai/gpu-memory",
        # NexusGPU/tensor-fusion pkg/constants, internal/webhook/v1/tf_parser.go: some forty keys, all of a GPU
        "tensor-fusion.ai/*",
    )
)
"""Pod annotations by which other schedulers are asked for a GPU."""

LABELS = Names(("tensor-fusion.ai/enabled", "tensor-fusion.ai/component"))
"""Pod labels by which they are (NexusGPU/tensor-fusion internal/utils/reconcile.go, which reads no annotation there).

With the value `false` a label asks for nothing.
"""

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""What the class of a device is asked for by as if it were an extended resource (KEP-5004)."""

DEVICE_CLASSES = Names(("*",))
"""All classes, until a policy says which are GPUs: an administrator may call one as they like."""

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
"""The label of namespaces in which the API server allows `adminAccess` (kubernetes pkg/registry/resource/utils.go)."""

RUNTIME_CLASSES = Names(("nvidia*", "kata-qemu-nvidia*"))
"""Runtime classes whose containers are given GPUs by their environment (gpu-operator assets/pre-requisites)."""


# Variables

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
VOID = "void"
NONE = "none"
"""Of these two the second gives a container the driver, and so what comes beside it, though no GPU."""


class Variable(NamedTuple):
    """A variable that a vendor's container toolkit reads.

    `harmless` are its values that open nothing; None where none does in a container whose VISIBLE is void.
    `asking` tells whether a container that asks for a GPU may have any value.
    """

    name: str
    opens: str
    harmless: frozenset[str] | None
    asking: bool = False


_OFF = frozenset(("", "disabled"))
_EMPTY = frozenset(("",))

# nvidia-container-toolkit internal/config/image/cuda_image.go, internal/modifier/cdi.go
DEVICE_VARIABLES = {
    each.name: each
    for each in (
        Variable(VISIBLE, "GPUs", frozenset(("", VOID, NONE))),
        Variable("NVIDIA_MIG_CONFIG_DEVICES", "the partitioning of GPUs", _EMPTY),
        Variable("NVIDIA_MIG_MONITOR_DEVICES", "the partitions of GPUs", _EMPTY),
        Variable("NVIDIA_IMEX_CHANNELS", "the memory of other nodes' GPUs", _EMPTY),
        Variable("NVIDIA_NVSWITCH", "the switches between GPUs", _OFF),
        Variable("NVIDIA_GDS", "GPUDirect Storage", _OFF, asking=True),
        Variable("NVIDIA_GDRCOPY", "GPUDirect RDMA copies", _OFF, asking=True),
        Variable("NVIDIA_MOFED", "InfiniBand devices", _OFF, asking=True),
        # ROCm/container-toolkit, for containers of its own runtime
        Variable("AMD_VISIBLE_DEVICES", "AMD's GPUs", frozenset(("", "none"))),
        # With it and without NVIDIA_REQUIRE_CUDA an image counts as one of old, which sees all GPUs.
        Variable("CUDA_VERSION", "GPUs, as for an image of old", None),
    )
}

CLOSED = {"NVIDIA_NVSWITCH": "", "NVIDIA_IMEX_CHANNELS": ""}
"""What is written over the image's own environment where a container is given a GPU, and what then opens nothing.

The device plugin sets neither, but for the channels that it hands out itself (k8s-device-plugin
internal/plugin/server.go), and so the image's value would count. Of nothing the toolkit makes no switch
(nvidia-container-toolkit internal/modifier/cdi.go) and no channel (internal/config/image/cuda_image.go); of `none` it
makes a channel without a number, which stands for all.
"""

IMEX = "NVIDIA_IMEX_CHANNELS"

LINKER = ("LD_PRELOAD", "LD_AUDIT")
"""The dynamic linker's, by which every limit is lifted that a library keeps."""

LIMIT_VARIABLES = Names(
    (
        *LINKER,
        # Where the MPS daemon is (k8s-device-plugin internal/plugin/mps.go). Percentage and memory limit only narrow.
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_LOG_DIRECTORY",
        "CUDA_MPS_CLIENT_PRIORITY",
        "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
        # HAMi-core, vgpu-manager, gpu-manager, cGPU
        "CUDA_DISABLE_CONTROL",
        "DISABLE_VGPU_CONTROL",
        "CUDA_DEVICE_MEMORY_LIMIT*",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE",
        "CUDA_DEVICE_SM_LIMIT*",
        "CUDA_OVERSUBSCRIBE",
        "CUDA_MEM_LIMIT*",
        "CUDA_TASK_PRIORITY",
        "GPU_CORE_UTILIZATION_POLICY",
        "ACTIVE_OOM_KILLER",
        "CGPU_DISABLE",
        "NVSHARE_*",
    )
)
"""Variables by which a container on a shared GPU lifts what a library or a daemon holds it to."""

LIBRARY_PATH = "LD_LIBRARY_PATH"
"""May put another driver library before the real one; too common to refuse."""

LIMIT_MOUNTS = ("/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.cache")
"""Files by which the dynamic linker is told of libraries; a mount over `/etc` replaces them all."""


NAMED_VARIABLES = frozenset((*DEVICE_VARIABLES, LIBRARY_PATH, *LIMIT_VARIABLES.names))
NAMED_PREFIXES = LIMIT_VARIABLES.prefixes
"""All variables that a table names, for one look at each of a pod's."""


def may_open(prefix: str) -> bool:
    """Tell whether a variable whose name begins so, and goes on in any way, can open a door or lift a limit."""
    names = (*DEVICE_VARIABLES, LIBRARY_PATH)
    return any(name.startswith(prefix) for name in names) or LIMIT_VARIABLES.any_begins(prefix)


# Annotations

DEVICE_ANNOTATIONS = (
    # cdi.k8s.io/* for the runtimes; nvidia.cdi.k8s.io/* for the toolkit's NRI plugin
    # (nvidia-container-toolkit cmd/nvidia-ctk-installer/container/runtime/nri/plugin.go)
    "cdi.k8s.io",
    "*.cdi.k8s.io",
    # containerd/nri plugins/device-injector, containers/nri-plugins
    "devices.nri.io",
    "devices.gke.io",  # GoogleCloudPlatform/container-engine-accelerators nri_device_injector, on GKE's GPU nodes
    "cdi-devices.nri.io",
    "mounts.nri.io",
    "devices.noderesource.dev",
    "cdi-devices.noderesource.dev",
    "mounts.noderesource.dev",
    # cri-o pkg/annotations
    "devices.crio.io",
    "io.kubernetes.cri-o.Devices",
)
"""Annotations, by what stands before the slash, that have a container runtime add devices. `*.` is any subdomain."""


def adds_devices(key: str) -> bool:
    """Tell whether an annotation has a container runtime add devices."""
    domain = key.partition("/")[0]
    if domain in _DOMAINS or domain.endswith(_SUBDOMAINS):
        return True
    return domain.startswith(_DOTTED)


DEVICE_LISTS = frozenset(("devices.crio.io", "io.kubernetes.cri-o.Devices"))
"""Those that list paths under /dev, of which some are harmless."""

_DOMAINS = frozenset(DEVICE_ANNOTATIONS)
_SUBDOMAINS = tuple(each[1:] for each in DEVICE_ANNOTATIONS if each.startswith("*."))
_DOTTED = tuple(f"{each}." for each in sorted(DEVICE_LISTS))  # CRI-O also takes a container's name after a dot


def harmless_devices(key: str, value: object) -> bool:
    """Tell whether an annotation adds nothing but devices that lead to no GPU, as `/dev/fuse:/dev/fuse:rw`.

    A list of more than MAX_DEVICES is not gone through, and counts as one that leads to a GPU.
    """
    domain = key.partition("/")[0]
    if not isinstance(value, str) or not (domain in DEVICE_LISTS or domain.startswith(_DOTTED)):
        return False
    if value.count(",") >= MAX_DEVICES:
        return False
    return not any(leads_to_gpu(device.partition(":")[0].strip()) for device in value.split(","))


MAX_DEVICES = 64
"""How many devices of an annotation are looked at: far more than any container needs."""

PLACEMENT_ANNOTATIONS = Names(
    (
        "hami.io/*",  # HAMi pkg/util/types.go; before 2.4 with the prefix of 4paradigm's scheduler
        "4pd.io/*",
        "ALIYUN_COM_GPU_*",  # gpushare-scheduler-extender pkg/utils/const.go
        "scheduler.framework.gpushare.allocation",
        "nvidia.com/pre-allocated",  # vgpu-manager pkg/util/consts.go
        "nvidia.com/real-allocated",
        "nvidia.com/predicate-*",
        "nvidia.com/vgpu-assigned*",
        "tencent.com/gpu-assigned",  # gpu-manager pkg/types
        "tencent.com/predicate-*",
        "volcano.sh/vgpu-*",  # volcano pkg/scheduler/api/devices
        "volcano.sh/devices-to-allocate",
        "volcano.sh/gpu-index",
        "volcano.sh/gpu-assigned",
        "volcano.sh/predicate-time",
        "scheduling.koordinator.sh/device-allocated",  # koordinator apis/extension/device_share.go
        "runai-gpu-group",  # KAI-Scheduler pkg/common/constants
        "runai-gpu",
        "runai/shared-gpu-configmap",
        "received-resource-type",
        "tensor-fusion.ai/gpu-ids",  # tensor-fusion pkg/constants
        "tensor-fusion.ai/container-gpus",
        "tensor-fusion.ai/effective-hard-sm-percent",
        "tensor-fusion.ai/index",
        "tensor-fusion.ai/partition-*",
    )
)
"""What other schedulers write when they have chosen a GPU, and their node agents believe."""

PLACEMENT_LABELS = Names(
    (
        "runai-gpu-group",  # KAI-Scheduler pkg/common/resources/gpu_sharing.go, and one more for each of several GPUs
        "runai-gpu-group/*",
        "nvidia.com/assigned-phase",  # vgpu-manager pkg/device/types.go
        "nvidia.com/metrics-node",
        "hami.io/vgpu-node",  # koordinator apis/extension/device_share.go
    )
)
"""The same where they write labels."""


# Mounts

MOUNT_PATHS = ("/var/run/nvidia-container-devices",)
"""How the place of a mount begins that is a request for a device.

What follows is the device, with a slash before it or without: nvidia-container-toolkit
internal/config/image/cuda_image.go, requestsFromMounts.
"""

HOST_PATHS = (
    "/dev",
    "/proc",
    "/sys",
    "/run/nvidia*",  # the driver, the device plugin's lists of devices, and the sockets of NVIDIA's daemons
    "/run/nvshare",
    "/run/cdi",
    "/tmp/nvidia-mps",  # noqa: S108 - as this is
    "/tmp/nv-hostengine",  # noqa: S108 - and this, where DCGM's host engine may listen
    "/tmp/vgpulock",  # noqa: S108 - and this
    # Whoever has one of these has the node: the kubelet's own files and sockets, and the runtimes'.
    "/var/lib/kubelet",
    "/run/containerd",
    "/var/lib/containerd",
    "/run/crio",
    "/var/lib/containers",
    "/run/podman",
    "/run/buildkit",
    "/run/containers",
    "/run/docker*",
    "/run/cri-dockerd.sock",
    "/var/lib/docker",
    "/run/runc",
    "/run/runsc",
    "/run/crun",
    "/run/kata*",
    "/run/vc",
    "/run/nri",
    "/var/lib/etcd",
    "/var/lib/kube-proxy",
    "/var/lib/kubernetes",
    "/var/lib/minikube",
    # The same where a distribution keeps kubelet and containerd elsewhere: k3s-io/k3s pkg/agent/config/config.go,
    # rancher/rke2 (k3s within), k0sproject/k0s pkg/constant/constant_posix.go, canonical/microk8s snap layout
    "/run/k3s",
    "/var/lib/rancher",
    "/run/k0s",
    "/var/lib/k0s",
    "/var/snap",
    # A container's log is what kubelet finds there, by a symbolic link too, and reads as root.
    "/var/log/pods",
    "/var/log/containers",
    # Whoever writes here is root on the node a moment later, and keys lie here: what the system starts, loads and
    # believes (file-hierarchy(7)), and where ostree keeps it.
    "/bin",
    "/boot",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt/bin",
    "/opt/cni",
    "/opt/containerd",
    "/opt/nri",
    "/nix",
    "/ostree",
    "/root",
    "/sbin",
    "/sysroot",
    "/usr",
    "/oem",  # Flatcar's; /local is Bottlerocket's, whose own containerd is beside the kubelet's
    "/local",
    "/run/host-containerd*",
    "/opt/azure",
    "/opt/rke2",
    "/var/home",  # where an ostree keeps /home, /root, /usr/local and /opt
    "/var/roothome",
    "/var/usrlocal",
    "/var/opt/bin",
    "/var/opt/cni",
    "/var/opt/containerd",
    "/var/opt/nri",
    "/var/lib/cni",  # OpenShift's plugins of the network, which the runtime starts
    "/var/lib/dkms",
    "/run/binfmt.d",  # what is read of /etc is read here too: modprobe.d(5), tmpfiles.d(5), sysctl.d(5), binfmt.d(5)
    "/run/modprobe.d",
    "/run/modules-load.d",
    "/run/sysctl.d",
    "/run/tmpfiles.d",
    "/run/initramfs",  # systemd-shutdown(8) starts what lies there
    "/run/NetworkManager",
    "/run/dbus",
    "/run/lxd*",
    "/run/multus",
    "/run/libvirt",
    "/run/snapd*",
    "/run/systemd",
    "/run/udev",
    "/run/user",
    "/var/lib/amazon",  # what a cloud's agents run as root, and cloud-init's user data
    "/var/lib/cloud",
    "/var/lib/google",
    "/var/lib/waagent",
    "/var/lib/dbus",
    "/var/lib/dpkg",
    "/var/lib/libvirt",
    "/var/lib/lxd",
    "/var/lib/rpm",
    "/var/lib/snapd",
    "/var/lib/systemd",
    "/var/spool/at",
    "/var/spool/cron",
)
"""Places of a node by which a GPU is reached; so is every folder above one, and all below it."""

HARMLESS_PATHS = (
    "/dev/shm",  # noqa: S108 - a path of pods
    "/dev/mqueue",
    "/dev/hugepages",
    "/dev/log",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/dev/fuse",
    "/dev/kvm",
    "/dev/net",
    "/dev/infiniband",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/devices/system",
    "/etc/localtime",
    "/etc/timezone",
    "/usr/share/zoneinfo",
)
"""Places below those that lead to no GPU.

The control groups are none: a container's root writes the first version's, whose `devices` says who may open a GPU
(kernel Documentation/admin-guide/cgroup-v1/devices.rst), and a mount that is read-only leaves the mounts below it
writable (KEP-3857).
"""

READ_ONLY_PATHS = (
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/machine-id",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/lib/modules",
    "/usr/lib/modules",
    "/usr/lib/os-release",
    "/usr/local/share/ca-certificates",
    "/usr/share",
    "/usr/src",
    "/var/log",
)
"""Places that lead to no GPU where no container can write them: everybody on the node may read what is in them."""


def normal(path: str) -> str:
    """Write a path one way: each step counts, none at its end, and `/run` for `/var/run`, which links to it."""
    plain = posixpath.normpath(f"/{path.lstrip('/')}").rstrip("/")
    return plain.removeprefix("/var") if within(plain, ("/var/run",)) else plain


def within(path: str, places: Iterable[str]) -> bool:
    """Tell whether a normal path is one of the places or below one."""
    return any(path == place or path.startswith(place + "/") for place in places)


DEVICE_MOUNTS = tuple(map(normal, MOUNT_PATHS))
"""The same, written as `normal` does."""


def asks_for_device(path: str) -> bool:
    """Tell whether a mount at a normal path is a request for a device, or stands where one would."""
    return path.startswith(DEVICE_MOUNTS)


def leads_to_gpu(path: str, *, written: bool = True) -> bool:
    """Tell whether a path of a node leads to its GPUs, where a container can write it or none can."""
    path = normal(path)
    if within(path, HARMLESS_PATHS) or (not written and within(path, READ_ONLY_PATHS)):
        return False
    return path in _ABOVE or f"{path}/".startswith(_BELOW)


def harmless_unwritten(path: str) -> bool:
    """Tell whether a path of a node leads to its GPUs only by being written."""
    return not leads_to_gpu(path, written=False)


_BELOW = tuple(place[:-1] if place.endswith("*") else f"{place}/" for place in HOST_PATHS)
_ABOVE = frozenset(
    "/".join(steps[:depth]) for steps in (place.split("/") for place in HOST_PATHS) for depth in range(1, len(steps))
)


# Privilege

CAPABILITIES = frozenset(("ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_BOOT", "BPF", "DAC_READ_SEARCH"))
"""Capabilities by which a container takes devices, whatever it was given.

With SYS_ADMIN the toolkit believes variables though told not to (nvidia-container-toolkit
internal/config/image/privileged.go); BPF loads the very programs that keep devices from containers; SYS_BOOT loads
another kernel (kexec_load(2)); DAC_READ_SEARCH opens every file of the node by its handle (open_by_handle_at(2)), the
kubelet's key too. Left out: MKNOD, which runtimes give anyway (moby oci/caps/defaults.go) and the device cgroup makes
harmless; SYS_PTRACE, which reaches no further than the pod's own processes without `hostPID`; NET_ADMIN, IPC_LOCK and
SYS_RESOURCE, which RDMA needs and by which no device is opened.
"""


def capability(name: str) -> str:
    """A capability as the runtimes understand it, in capitals and without its prefix."""
    return name.upper().removeprefix("CAP_")
