"""Tables of the ways to a GPU: the names by which a pod requests one, and the doors that need no request.

A trailing `*` in a name matches any suffix. Sources are given as repository and file.
"""

import posixpath
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple


class Names:
    """A set of names and prefixes (`NAME*`), less those of `other_than`."""

    def __init__(self, patterns: Iterable[str], *, other_than: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        self.names = frozenset(p for p in self.patterns if not p.endswith("*"))
        self.prefixes = tuple(p[:-1] for p in self.patterns if p.endswith("*"))
        self.other_than = Names(other_than) if other_than else None

    def __contains__(self, name: str) -> bool:
        if name not in self.names and not name.startswith(self.prefixes):
            return False
        return self.other_than is None or name not in self.other_than

    def __iter__(self) -> Iterator[str]:
        return iter(self.patterns)

    def any_begins(self, start: str) -> bool:
        """Tell whether a name with this prefix can be in the set."""
        return start.startswith(self.prefixes) or any(p.rstrip("*").startswith(start) for p in self.patterns)


# Requests

NVIDIA_RESOURCES = "nvidia.com/*"
"""The resource names of NVIDIA's device plugins. All are GPUs except OTHER_RESOURCES.

NVIDIA/k8s-device-plugin internal/rm/rm.go names whole and renamed GPUs and MIG profiles.
NVIDIA/kubevirt-gpu-device-plugin and NVIDIA/sandbox-device-plugin (pkg/device_plugin) name a card by its product, such
as `nvidia.com/GA102GL_A10`. HAMi, vgpu-manager and nos name parts of a GPU.
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
"""Names under `nvidia.com/` that are no GPUs. An administrator chooses the names of network cards and may add more."""

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
    # Project-HAMi/HAMi pkg/device and charts/hami values.yaml; whole cards by the vendors' own device plugins
    "birentech.com/*",
    "cambricon.com/*",
    "enflame.com/*",
    "huawei.com/Ascend*",
    "hygon.com/dcu*",
    "iluvatar.ai/*",
    "metax-tech.com/*",
    "mthreads.com/*",
)
"""Extended resources of other vendors and schedulers that are GPUs or parts of one."""

ANNOTATIONS = Names(
    (
        # KAI-Scheduler pkg/binder/plugins/gpusharing/gpu-request, and run:ai, its origin
        "gpu-fraction",
        "gpu-fraction-num-devices",
        "gpu-fraction-container-name",
        "gpu-memory",
        "runai/gpu-fraction",
        "runai/gpu-memory",
        # NexusGPU/tensor-fusion pkg/constants, internal/webhook/v1/tf_parser.go: about forty keys, all for GPUs
        "tensor-fusion.ai/*",
    )
)
"""Pod annotations that request a GPU from other schedulers."""

LABELS = Names(("tensor-fusion.ai/enabled", "tensor-fusion.ai/component"))
"""Pod labels that request a GPU from other schedulers (NexusGPU/tensor-fusion internal/utils/reconcile.go).

A label with the value `false` requests nothing.
"""

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""The prefix of the extended resource that requests a device of a class (KEP-5004)."""

GPU_CLASSES = Names(
    (
        "gpu.nvidia.com",  # dra-driver-nvidia-gpu deployments/helm
        "mig.nvidia.com",
        "vfio.gpu.nvidia.com",
        "gpu.amd.com",  # ROCm/k8s-gpu-dra-driver
        "gpu.intel.com",  # intel/intel-resource-drivers-for-kubernetes
        "gpu-vfio.intel.com",
    )
)
"""Device classes and drivers that are known to be for GPUs."""

OTHER_CLASSES = Names(
    (
        "compute-domain-daemon.nvidia.com",  # dra-driver-nvidia-gpu: channels between nodes, which hold no GPU
        "compute-domain-default-channel.nvidia.com",
        "compute-domain.nvidia.com",
        "imex.nvidia.com",
        "mrdma.google.com",  # google/dranet, GKE's network cards
        "netdev.google.com",
        "dra.net",
        "tpu.google.com",
        "efa.networking.k8s.aws",  # Amazon's network cards and accelerators
        "neuron.aws.com",
        "sriovnetwork.k8snetworkplumbingwg.io",
        "dra.cpu",  # kubernetes-sigs/dra-driver-cpu
    )
)
"""Device classes and drivers that are known to be for other devices."""

DEVICE_CLASSES = Names(("*",), other_than=OTHER_CLASSES.patterns)
"""The device classes that count as GPUs, until a policy names them: all but the known others.

An administrator may choose any name, so an unknown class may be one of GPUs.
"""

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
"""The label of namespaces that may use `adminAccess` (kubernetes pkg/registry/resource/utils.go)."""

RUNTIME_CLASSES = Names(("nvidia*", "kata-qemu-nvidia*"))
"""Runtime classes that give GPUs to containers by their environment (gpu-operator assets/pre-requisites)."""

GPU_TAINT = "nvidia.com/gpu"
"""The taint of GPU nodes that GKE sets, and that NVIDIA's components tolerate by default.

(gpu-operator assets/*, k8s-device-plugin deployments/static, GoogleCloudPlatform/container-engine-accelerators)
"""

GPU_NODE_LABELS = Names(
    (
        "nvidia.com/*",  # GPU Feature Discovery, and the GPU Operator's gpu.present and gpu.deploy.*
        "cloud.google.com/gke-accelerator",
        "cloud.google.com/gke-gpu*",
        "feature.node.kubernetes.io/pci-10de.present",  # Node Feature Discovery, by NVIDIA's number as a vendor
        "k8s.amazonaws.com/accelerator",
        "kubernetes.azure.com/accelerator",
    )
)
"""Labels that nodes with GPUs have, by which agents of these nodes select them."""


# Variables

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
VOID = "void"
NONE = "none"
"""Neither value gives a container a GPU. `none` still gives it the driver, with the devices that come with it."""


class DeviceVariable(NamedTuple):
    """A variable that a vendor's container toolkit reads.

    `harmless` are the values that open nothing; None if no value opens anything while VISIBLE is void. `asking` tells
    whether a container that requests a GPU may set any value.
    """

    name: str
    opens: str
    harmless: frozenset[str] | None
    asking: bool = False


_OFF = frozenset(("", "disabled"))
_EMPTY = frozenset(("",))

# nvidia-container-toolkit internal/config/image/cuda_image.go, internal/modifier/cdi.go
DEVICE_VARIABLES = {
    variable.name: variable
    for variable in (
        DeviceVariable(VISIBLE, "GPUs", frozenset(("", VOID, NONE))),
        DeviceVariable("NVIDIA_MIG_CONFIG_DEVICES", "the MIG configuration of GPUs", _EMPTY),
        DeviceVariable("NVIDIA_MIG_MONITOR_DEVICES", "the monitoring of MIG devices", _EMPTY),
        DeviceVariable("NVIDIA_IMEX_CHANNELS", "the memory of other nodes' GPUs", _EMPTY),
        DeviceVariable("NVIDIA_NVSWITCH", "the switches between GPUs", _OFF),
        DeviceVariable("NVIDIA_GDS", "GPUDirect Storage", _OFF, asking=True),
        DeviceVariable("NVIDIA_GDRCOPY", "GPUDirect RDMA copies", _OFF, asking=True),
        DeviceVariable("NVIDIA_MOFED", "InfiniBand devices", _OFF, asking=True),
        # ROCm/container-toolkit, for containers of AMD's own runtime
        DeviceVariable("AMD_VISIBLE_DEVICES", "AMD's GPUs", frozenset(("", "none"))),
        # An image with this and without NVIDIA_REQUIRE_CUDA counts as a legacy image, which sees all GPUs.
        DeviceVariable("CUDA_VERSION", "all GPUs, as an old image has", None),
    )
}

CLOSED = {"NVIDIA_NVSWITCH": "", "NVIDIA_IMEX_CHANNELS": ""}
"""The harmless values that override the image's environment in a container with a GPU.

The device plugin sets neither variable, except for channels that it allocates (k8s-device-plugin
internal/plugin/server.go), so the image's value would count. For an empty value the toolkit adds no switch
(nvidia-container-toolkit internal/modifier/cdi.go) and no channel (internal/config/image/cuda_image.go). For `none` it
adds a channel without a number, which means all channels.
"""

IMEX = "NVIDIA_IMEX_CHANNELS"

LINKER = ("LD_PRELOAD", "LD_AUDIT")
"""Variables of the dynamic linker. They can lift every limit that a library enforces."""

LIMIT_VARIABLES = Names(
    (
        *LINKER,
        # The address of the MPS daemon (k8s-device-plugin internal/plugin/mps.go). MPS's percentage and memory limit
        # are left out: a container can only lower them.
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
"""Variables by which a container on a shared GPU can lift the limits of a library or a daemon."""

LIBRARY_PATH = "LD_LIBRARY_PATH"
"""A variable that may put another driver library before the real one. It is too common to refuse."""

LIMIT_MOUNTS = ("/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.cache")
"""Files that name libraries to the dynamic linker. A mount over `/etc` replaces them all."""


NAMED_VARIABLES = frozenset((*DEVICE_VARIABLES, LIBRARY_PATH, *LIMIT_VARIABLES.names))
NAMED_PREFIXES = LIMIT_VARIABLES.prefixes
"""All variables of the tables, so that each variable of a pod needs one lookup."""


def may_open(prefix: str) -> bool:
    """Tell whether some variable with this prefix can open a door or lift a limit."""
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
"""The domains of annotations that make a container runtime add devices. `*.` matches any subdomain."""


def adds_devices(key: str) -> bool:
    """Tell whether an annotation makes a container runtime add devices."""
    domain = key.partition("/")[0]
    if domain in _DOMAINS or domain.endswith(_SUBDOMAINS):
        return True
    return domain.startswith(_DOTTED)


DEVICE_LISTS = frozenset(("devices.crio.io", "io.kubernetes.cri-o.Devices"))
"""Annotations that list paths under /dev, some of them harmless."""

_DOMAINS = frozenset(DEVICE_ANNOTATIONS)
_SUBDOMAINS = tuple(pattern[1:] for pattern in DEVICE_ANNOTATIONS if pattern.startswith("*."))
_DOTTED = tuple(f"{key}." for key in sorted(DEVICE_LISTS))  # CRI-O also takes a container's name after a dot


def harmless_devices(key: str, value: object) -> bool:
    """Tell whether an annotation adds only devices that lead to no GPU, such as `/dev/fuse:/dev/fuse:rw`.

    A list of more than MAX_DEVICES is not walked, and counts as one that leads to a GPU.
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
        "volcano.sh/vgpu-ids*",  # volcano pkg/scheduler/api/devices/nvidia
        "volcano.sh/vgpu-node",
        "volcano.sh/vgpu-time",
        "volcano.sh/bind-phase",
        "volcano.sh/bind-time",
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
    ),
    # What HAMi's users write: pkg/util/types.go, pkg/device/*/device.go and its documents
    other_than=(
        *(
            f"{domain}/{name}"
            for domain in ("hami.io", "4pd.io")
            for name in (
                "node-scheduler-policy",
                "gpu-scheduler-policy",
                "device-scoring-weights",
                "resource-pool",
                "gpu-use-uuid",
                "gpu-no-use-uuid",
                "use-*",
                "no-use-*",
            )
        ),
        # tensor-fusion docs: the user names a partition by its template
        "tensor-fusion.ai/partition-id",
    ),
)
"""Annotations in which other schedulers write their choice of a GPU, and which their node agents trust.

What their users are told to write is left out, such as `hami.io/gpu-scheduler-policy` (binpack or spread) and
`volcano.sh/vgpu-use-gpuuuid`. HAMi makes the names of its own from each vendor's, so all but those of its users count.
"""

PLACEMENT_LABELS = Names(
    (
        "runai-gpu-group",  # KAI-Scheduler pkg/common/resources/gpu_sharing.go, and one more for each of several GPUs
        "runai-gpu-group/*",
        "nvidia.com/assigned-phase",  # vgpu-manager pkg/device/types.go
        "nvidia.com/metrics-node",
        "hami.io/vgpu-node",  # koordinator apis/extension/device_share.go
    )
)
"""Labels in which other schedulers write their choice of a GPU."""


# Mounts

MOUNT_PATHS = ("/var/run/nvidia-container-devices",)
"""The prefix of a mount path that requests a device.

The device follows, with or without a slash (nvidia-container-toolkit internal/config/image/cuda_image.go,
requestsFromMounts).
"""

DEVICE_PATHS = (
    "/dev",
    "/proc",
    "/sys",
    "/run/nvidia*",  # the driver, the device plugin's lists of devices, and the sockets of NVIDIA's daemons
    "/run/nvshare",
    "/run/cdi",
    "/tmp/nvidia-mps",  # noqa: S108 - a path on nodes
    "/tmp/nv-hostengine",  # noqa: S108 - a path on nodes, where DCGM's host engine may listen
    "/tmp/vgpulock",  # noqa: S108 - a path on nodes
)
"""Paths on a node to its devices, and to the sockets of the programs that hand them out."""

HOST_PATHS = (
    *DEVICE_PATHS,
    # Files and sockets of the kubelet and of container runtimes. A process with access to one controls the node.
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
    # The same for distributions with other paths for the kubelet and containerd: k3s-io/k3s
    # pkg/agent/config/config.go, rancher/rke2 (contains k3s), k0sproject/k0s pkg/constant/constant_posix.go,
    # canonical/microk8s snap layout
    "/run/k3s",
    "/var/lib/rancher",
    "/run/k0s",
    "/var/lib/k0s",
    "/var/snap",
    # The kubelet reads container logs here as root, and follows symbolic links.
    "/var/log/pods",
    "/var/log/containers",
    # Files that the system starts, loads and trusts (file-hierarchy(7)), keys, and ostree's copies of both. A process
    # that can write here soon becomes root on the node.
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
    "/var/lib/amazon",  # files that a cloud's agents run as root, and cloud-init's user data
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
"""Paths on a node that lead to a GPU. Every folder above one leads there too, and everything below it."""

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
"""Paths below HOST_PATHS that lead to no GPU.

Control groups are not harmless. Root in a container can write the `devices` controller of cgroup v1, which decides who
may open a GPU (kernel Documentation/admin-guide/cgroup-v1/devices.rst), and a read-only mount leaves the mounts below
it writable (KEP-3857).
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
    # The driver's and NCCL's libraries on GKE, which GPUDirect's workloads mount: container-engine-accelerators
    # cmd/nvidia_gpu, gpudirect-tcpxo, gpudirect-rdma
    "/home/kubernetes/bin/gib",
    "/home/kubernetes/bin/nvidia",
    "/lib/modules",
    "/usr/lib/modules",
    "/usr/lib/os-release",
    "/usr/local/share/ca-certificates",
    "/usr/share",
    "/usr/src",
    "/var/log",
)
"""Paths that lead to no GPU unless a container can write them: every user on the node may read their files."""


MOUNTED_READ_ONLY_PATHS = ("/sys/block", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module")
"""Paths that lead to no GPU where all mounts of them are read-only.

Every container has the same files under its own `/sys`, read-only. Nothing else is mounted below these.
"""

RECURSIVE_READ_ONLY_PATHS = ("/sys", "/proc/sys")
"""Paths that lead to no GPU where all mounts of them have `recursiveReadOnly: Enabled`.

GPUDirect-TCPX mounts both (container-engine-accelerators gpudirect-tcpx). Below them control groups, debugfs and others
are mounted, which `readOnly` alone leaves writable (KEP-3857).
"""


class Access(IntEnum):
    """What the containers of a pod may do with a volume. `READ_ALL` includes what is mounted below it."""

    WRITE = 0
    NOTHING = 1
    READ = 2
    READ_ALL = 3


def normal(path: str) -> str:
    """Return a path in normal form: without `.`, `..` and extra slashes, and with `/run` for `/var/run`, its link."""
    plain = posixpath.normpath(f"/{path.lstrip('/')}").rstrip("/")
    return plain.removeprefix("/var") if within(plain, ("/var/run",)) else plain


def within(path: str, places: Iterable[str]) -> bool:
    """Tell whether a path in normal form is one of the places or below one."""
    return any(path == place or path.startswith(place + "/") for place in places)


DEVICE_MOUNTS = tuple(map(normal, MOUNT_PATHS))
"""MOUNT_PATHS in normal form."""


def asks_for_device(path: str) -> bool:
    """Tell whether a mount at a path in normal form is a request for a device, or is at the place of one."""
    return path.startswith(DEVICE_MOUNTS)


def leads_to_gpu(path: str, access: Access = Access.WRITE) -> bool:
    """Tell whether a path on a node leads to its GPUs, by what containers may do with it."""
    path = normal(path)
    if within(path, HARMLESS_PATHS) or (access > Access.WRITE and within(path, READ_ONLY_PATHS)):
        return False
    if access >= Access.READ and within(path, MOUNTED_READ_ONLY_PATHS):
        return False
    if access is Access.READ_ALL and within(path, RECURSIVE_READ_ONLY_PATHS):
        return False
    return path in _ABOVE or f"{path}/".startswith(_BELOW)


def names_devices(path: str) -> bool:
    """Tell whether a path that leads to a node's GPUs does so by their devices, and not by control of the node."""
    path = normal(path)
    return path != "" and (f"{path}/".startswith(_DEVICES) or any(each.startswith(f"{path}/") for each in _DEVICES))


_BELOW = tuple(place[:-1] if place.endswith("*") else f"{place}/" for place in HOST_PATHS)
_DEVICES = _BELOW[: len(DEVICE_PATHS)]
_ABOVE = frozenset(
    "/".join(steps[:depth]) for steps in (place.split("/") for place in HOST_PATHS) for depth in range(1, len(steps))
)


# Privilege

CAPABILITIES = frozenset(("ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_BOOT", "BPF", "DAC_READ_SEARCH"))
"""Capabilities by which a container can take devices that it was not given.

SYS_ADMIN makes the toolkit trust variables against its configuration (nvidia-container-toolkit
internal/config/image/privileged.go). BPF can replace the programs that keep devices from containers. SYS_BOOT loads
another kernel (kexec_load(2)). DAC_READ_SEARCH opens every file on the node by its handle (open_by_handle_at(2)), even
the kubelet's key.

Three groups are left out. Runtimes grant MKNOD by default (moby oci/caps/defaults.go), and the device cgroup makes it
harmless. SYS_PTRACE without `hostPID` reaches only the pod's own processes. RDMA needs NET_ADMIN, IPC_LOCK and
SYS_RESOURCE, which open no device.
"""


def capability(name: str) -> str:
    """Return a capability's name in the runtimes' form: upper case, without `CAP_`."""
    return name.upper().removeprefix("CAP_")
