"""Tables of the paths on a node that lead to its GPUs, and of those that lead to none.

Sources are given as repository and file.
"""

import posixpath
from collections.abc import Iterable
from enum import IntEnum
from string import ascii_letters

LIMIT_MOUNTS = ("/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.cache")
"""Files that name libraries to the dynamic linker. A mount over `/etc` replaces them all."""

PLUGIN_MOUNTS = (
    # MPS: k8s-device-plugin cmd/mps-control-daemon/mps/root.go, PipeDir; k8s-dra-driver-gpu cmd/*/sharing.go
    "/mps",
    "/tmp/nvidia-mps",  # noqa: S108 - a path in containers
    # HAMi-core: HAMi pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go; volcano-vgpu-device-plugin
    # pkg/plugin/vgpu/plugin.go
    "/usr/local/vgpu",
    "/tmp/vgpu",  # noqa: S108 - a path in containers
    "/tmp/vgpulock",  # noqa: S108 - a path in containers
    # The file from which HAMi-core takes variables in place of the container's, its limits too: HAMi-core
    # src/multiprocess/multiprocess_memory_limit.h, ENV_OVERRIDE_FILE
    "/overrideEnv",
    # vgpu-manager pkg/deviceplugin/vgpu/vnum_plugin.go
    "/etc/vgpu-manager",
    "/tmp/.vgpu_lock",  # noqa: S108 - a path in containers
    "/tmp/.vmem_node",  # noqa: S108 - a path in containers
    "/tmp/.sm_node",  # noqa: S108 - a path in containers
    "/etc/vcuda",  # gpu-manager: tkestack/vcuda-controller include/hijack.h, VCUDA_CONFIG_PATH
    # grgalex/nvshare kubernetes/device-plugin/server.go: its library, and the socket of its scheduler
    "/usr/lib/nvshare",
    "/run/nvshare",
)
"""Paths in a container where device plugins mount a daemon's socket, or a library with its limits.

The kubelet adds the pod's own mounts after these (kubernetes pkg/kubelet/kubelet_pods.go, GenerateRunContainerOptions),
and a runtime keeps the order of mounts that lie equally deep (containerd internal/cri/opts orderedMounts). So a pod's
mount at the same path hides the plugin's. A mount over a folder above, such as `/usr/local`, comes first and hides
nothing.
"""

LIMIT_PARTS = ("ld.so", "mps", "vgpu", "vcuda", "vmem", "sm_node", "overrideEnv", "nvshare")
"""Each path of LIMIT_MOUNTS and PLUGIN_MOUNTS has one of these texts in it, however it is written."""


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
    "/run/shm",  # Debian's link to /dev/shm: systemd debian/extra/tmpfiles.d/debian.conf
    "/tmp/nvidia-mps",  # noqa: S108 - a path on nodes
    "/tmp/nv-hostengine",  # noqa: S108 - a path on nodes, where DCGM's host engine may listen
    "/tmp/vgpu",  # noqa: S108 - a path on nodes, where Volcano's plugin keeps the limits of every container
    "/tmp/vgpulock",  # noqa: S108 - a path on nodes
)
"""Paths on a node to its devices, and to the sockets of the programs that hand them out."""

HOST_PATHS = (
    *DEVICE_PATHS,
    # Files and sockets of the kubelet and of container runtimes. A process with access to one controls the node.
    "/var/lib/kubelet",
    "/run/containerd*",  # and its snapshotters' sockets, which mount folders as root: containerd-stargz-grpc, -nydus
    "/run/nix-snapshotter",  # pdtpartners/nix-snapshotter
    "/run/nydus*",  # dragonflyoss/nydus: the API of nydusd
    "/run/overlaybd-snapshotter",  # containerd/accelerated-container-image docs/QUICKSTART.md
    "/run/soci-snapshotter*",
    "/run/teleportd",  # AKS's snapshotter (Azure/AgentBaker, the template of containerd's configuration)
    "/run/firecracker-containerd*",
    "/var/lib/containerd",
    "/run/crio",
    "/var/lib/containers",
    "/run/podman",
    "/run/buildkit",
    "/run/containers",
    "/run/docker*",
    "/run/cri-*",  # cri-dockerd, and intel/cri-resource-manager (cri-resmgr), a proxy for the runtime
    "/run/koord-runtimeproxy",  # another one: koordinator-sh/koordinator cmd/koord-runtime-proxy/options
    "/run/system-docker*",  # RancherOS's
    "/run/balena*",  # balena-os/balena-engine, a fork of Docker
    "/run/isula*",  # openEuler's runtime: openeuler-mirror/iSulad src/daemon/config, isulad.sock
    "/run/pouch*",  # AliyunContainerService/pouch main.go
    "/run/finch*",  # runfinch/finch-daemon cmd/finch-daemon: Docker's API for containerd
    "/run/kuasar*",  # kuasar-io/kuasar README.md, and its sandboxers, which start containers for containerd
    "/run/quark-sandboxer.sock",
    "/run/runc-sandboxer.sock",
    "/run/vmm-sandboxer.sock",
    "/run/wasm-sandboxer.sock",
    "/run/sysbox*",  # nestybox/sysbox-ipc sysboxMgrGrpc: a manager that mounts folders for containers as root
    "/run/salt",  # what a Salt minion is told by these sockets it runs as root
    "/var/lib/docker",
    "/run/runc",
    "/run/runsc",
    "/run/crun",
    "/run/youki",
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
    # Other paths to a node's /home, /var, keys, kubelet and runtime. Sockets take connections on read-only mounts too.
    "/mnt/stateful_partition",  # Container-Optimized OS's /home and /var (cloud.google.com, disks-and-filesystem)
    "/mnt/k8s-disks/0",  # the kubelet's and containerd's folders (awslabs/amazon-eks-ami setup-local-disks, raid0)
    "/mnt/aks",  # the same on AKS with a temporary disk
    "/mnt/.ephemeral",  # the same on Bottlerocket with disks of its own (bottlerocket-core-kit sources/api/apiclient)
    "/local/mnt/.ephemeral",
    "/mnt/paas",  # the same on Huawei Cloud's CCE (its user manual, data disk space allocation)
    "/mnt/vda1",  # the same on minikube's machines, and their keys (kubernetes/minikube deploy/iso, minikube-automount)
    "/mnt/sda1",
    "/var/data/kubelet",  # the same on IBM Cloud (IBM/ibm-vpc-block-csi-driver deploy/kubernetes)
    "/var/data/cripersistentstorage",
    "/var/data/criorootstorage",
    "/var/lib/container",  # the same on Alibaba Cloud's ACK
    "/var/vcap",  # the same on Tanzu's nodes by BOSH, and its jobs
    "/srv/kubernetes",  # kops: the kubelet's key (kubernetes/kops nodeup/pkg/model/context.go, PathSrvKubernetes)
    "/srv/pillar",  # Salt: secrets of nodes (docs.saltproject.io, pillar_roots)
    "/srv/magnum",  # OpenStack's Magnum: its agent's key for root (openstack/magnum start-container-agent.sh)
    "/mnt/containerd",
    "/mnt/docker",
    "/mnt/kubelet",
    "/media/root-ro",  # both halves of a root that is kept in memory (Debian overlayroot, scripts/init-bottom)
    "/media/root-rw",
    "/.snapshots",  # whole former roots, with their keys: snapper(8), on openSUSE and SLE Micro
    "/mnt/boot",  # balenaOS's halves of its root (balena-os/meta-balena, mount points)
    "/mnt/state",
    "/mnt/sysroot",
    "/writable",  # Ubuntu Core's, and where it mounts the same (snapcore/snapd boot/boot.go)
    "/run/mnt",
    "/system",  # Talos' keys, and the sockets of its own containerd (siderolabs/talos pkg/machinery/constants)
    "/run/slicewarden",  # the ledger of the agent (webhook/agent/turns/ledger.py), which the next agent reads as root
    "/var/lib/slicewarden",  # its record of who used what (webhook/usage/store.py)
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
    "/oem",  # Flatcar's
    "/tmp/tmux-*",  # noqa: S108 - sockets of shells, on nodes
    # Bottlerocket's: what it mounts at /opt and /var, and what its own containers on the host keep
    # (bottlerocket-os/bottlerocket packages/release, sources/host-ctr)
    "/local/bootstrap-containers",
    "/local/host-containers",
    "/local/opt",
    "/local/var",
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
    "/run/binfmt.d",  # read as /etc is: modprobe.d(5), tmpfiles.d(5), sysctl.d(5), binfmt.d(5)
    "/run/modprobe.d",
    "/run/modules-load.d",
    "/run/sysctl.d",
    "/run/tmpfiles.d",
    "/run/initramfs",  # systemd-shutdown(8) starts what lies there
    "/run/NetworkManager",
    "/run/dbus",
    "/run/lxd*",
    "/run/multus",
    "/run/reboot-required*",  # kured restarts a node that has this file, and `type: FileOrCreate` makes one
    "/run/api.sock",  # Bottlerocket's API, which starts containers on the host (bottlerocket-os README, API)
    "/run/incus*",
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
    "/var/lib/incus",  # a process that can write to its unix.socket becomes root, as with LXD's
    "/var/lib/libvirt",
    "/var/lib/lxd",
    "/var/lib/rpm",
    "/var/lib/snapd",
    "/var/lib/systemd",
    "/var/spool/at",
    "/var/spool/cron",
)
"""Paths on a node that lead to a GPU. Every folder above one leads there too, and everything below it."""

RUNTIMES = (
    ".kube",
    ".ssh",
    "buildkit",
    "containerd",
    "cri-o",
    "crio",
    "docker",
    "etcd",
    "k0s",
    "k3s",
    "kubelet",
    "microk8s",
    "rancher",
    "rke2",
)
"""Names of folders that lead to a GPU wherever they are: administrators move those of the kubelet to larger disks."""

LOGS = "/var/log"
"""Where programs of these names have only logs."""

DATA_PATHS = (
    # Where file-hierarchy(7) and hier(7) put data that belongs to no program of the system
    "/media",
    "/mnt",
    "/srv",
    "/tmp",  # noqa: S108 - a path on nodes, where every user may write
    "/var/log",  # folders of applications; what lies above or beside is in HOST_PATHS and KEPT_PATHS
    # Folders at the root that sites make, and that no distribution has
    "/cache*",
    "/ceph*",
    "/checkpoints*",
    "/data*",
    "/disk*",
    "/efs*",
    "/ephemeral*",
    "/export*",
    "/fsx*",
    "/gpfs*",
    "/local-*",
    "/local_*",
    "/lustre*",
    "/models*",
    "/nfs*",
    "/nvme*",
    "/pool*",
    "/project*",
    "/raid*",
    "/scratch*",
    "/share*",
    "/ssd*",
    "/storage*",
    "/tank*",
    "/vol*",
    "/weka*",
    "/work*",
    "/beegfs*",
    "/local/mnt",  # Bottlerocket's data partition
    "/local/scratch",
    "/opt/data",
    "/opt/datasets",
    "/opt/local-path-provisioner",  # rancher/local-path-provisioner deploy/local-path-storage.yaml
    "/opt/models",
    "/var/data",
    "/var/opt/data",
    "/var/opt/datasets",
    "/var/opt/models",
)
"""Folders of data, which containers may write. Files in any other folder of a node might be started by some program.

A list of forbidden paths can never be complete: systemd merges /var/lib/extensions into /usr (systemd-sysext(8)),
and runtimes, agents and units start programs from /opt, /run and /var/lib. So a path counts as one of the node's own
unless it is here, or the policy names it (`gpus.hostPaths`). The home folders hold keys, and are in HOST_PATHS.
"""

KEPT_PATHS = (
    "/srv/salt",  # states that Salt applies as root (docs.saltproject.io, file_roots)
    "/srv/spm",
    "/tmp/dracut*",  # noqa: S108 - the files from which an initial RAM disk is made
    "/tmp/mkinitramfs*",  # noqa: S108 - the same
    "/tmp/snap-private-tmp",  # noqa: S108 - private files of the system's programs
    "/tmp/systemd-private*",  # noqa: S108 - the same: systemd.exec(5), PrivateTmp=
    "/var/log/amazon",
    "/var/log/audit",
    "/var/log/azure",
    "/var/log/journal",
)
"""Paths below DATA_PATHS that containers must not write: nodes keep files there that they start or trust."""

NODE_DISKS = (
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "fc",
    "gcePersistentDisk",
    "iscsi",
    "rbd",
    "vsphereVolume",
)
"""Sources of volumes in which a pod names a disk: it may be the node's own, or the node may run its contents.

The kubelet mounts what `fc` names under /dev/disk/by-id, partitions too, such as
`scsi-0Google_PersistentDisk_persistent-disk-0-part1` (kubernetes pkg/volume/fc/fc_util.go, findDiskWWIDs), and what
`iscsi` names under /dev/disk/by-path (pkg/volume/iscsi/iscsi_util.go). Every container can read such a name below
/sys/block. For a disk that the node already has, the clouds' drivers answer that it is attached, and then mount it: the
partitions of a root (kubernetes csi-translation-lib plugins/aws_ebs.go, gce_pd.go; aws-ebs-csi-driver
pkg/cloud/cloud.go; gcp-compute-persistent-disk-csi-driver pkg/gce-pd-csi-driver controller.go), or a disk for the
kubelet and the containers (azuredisk-csi-driver pkg/azuredisk/controllerserver.go; cloud-provider-openstack
pkg/csi/cinder/openstack/openstack_volumes.go).

Kubelets before Kubernetes 1.31 mount `rbd`. They run `rbd map POOL/IMAGE`, which takes every setting of Ceph as an
option, a folder of libraries too, and `mount -t FSTYPE` (pkg/volume/rbd/rbd_util.go): with the type `fuse.sh`, mount(8)
runs the contents of the disk as root.
"""

CLONES = ("gitRepo",)
"""Sources of volumes for which the kubelet runs a program of the node on what a pod names.

For `gitRepo` it runs `git clone` as root, outside of any container (kubernetes pkg/volume/git_repo/git_repo.go). Before
Kubernetes 1.30.3, a `directory` inside `.git` brings hooks, which git runs (CVE-2024-10220). Every release reads
repositories of the node's other pods (CVE-2025-1767). Since Kubernetes 1.33 a kubelet mounts none, unless its feature
gate GitRepoVolumeDriver is on.
"""

OPTION = "-"
"""The beginning of an option of a program, and of no server's name."""

MONITORS = "monitors"
"""The field of `cephfs` that lists servers."""

SERVERS = {"nfs": ("server",), "cephfs": (MONITORS,)}
"""Sources of volumes, each with the fields that a program of the node gets as words of its command line.

No API server checks them (kubernetes pkg/apis/core/validation/validation.go). Kubelets before Kubernetes 1.31 mount
`cephfs`. They run `mount -t ceph -o name=USER,secret=KEY MONITOR:PATH` (pkg/volume/cephfs/cephfs.go). A comma in the
user, or in the key of a Secret, which nobody sees here, adds the option `bind`. Then mount(8) mounts a folder of the
node that has this name, such as a link which a pod has left in its own emptyDir. So no monitor may have a slash.
"""


def misread(field: str, value: str) -> bool:
    """Return whether a program of the node reads a value in such a field as an option, or as a path of the node."""
    return value.startswith(OPTION) or (field == MONITORS and "/" in value)


SHARED_MEMORY = (
    "/dev/shm",  # noqa: S108 - a path of nodes
    "/run/shm",
)
"""The shared memory of a node. A pod in the node's IPC namespace has the same (containerd sandbox_run_linux.go)."""

HARMLESS_PATHS = (
    *SHARED_MEMORY,
    "/dev/mqueue",
    "/dev/hugepages",
    "/dev/log",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/dev/fuse",
    "/dev/kvm",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/etc/localtime",
    "/etc/timezone",
)
"""Paths below HOST_PATHS that lead to no GPU. What lies below them is not meant: a pod may make links there.

`/sys/devices/system` is none of them: `cpu/cpu0/firmware_node/subsystem` there leads to all devices of the node (kernel
drivers/acpi/glue.c), and a runtime follows the links of a hostPath.

Control groups are not harmless. Root in a container can write the `devices` controller of cgroup v1, which decides who
may open a GPU (kernel Documentation/admin-guide/cgroup-v1/devices.rst), and a read-only mount leaves the mounts below
it writable (KEP-3857).
"""

DEVICE_FOLDERS = (
    "/dev/bus/usb",  # devices of the USB, such as a Coral stick: kernel Documentation/admin-guide/devices.txt
    "/dev/infiniband",
    "/dev/net",
)
"""Folders of other devices than GPUs. A read-only mount leaves its devices usable (path_resolution(7), mount(2)).

Whoever may write there, and has CAP_MKNOD, can put the numbers of a GPU in place of a device that a plugin hands out.
"""

OPENED_PATHS = (*DEVICE_FOLDERS, "/usr/share/zoneinfo")
"""Paths that programs open and do not change: `/mutate` makes their mounts read-only.

Whoever may write there can leave a symbolic link, and a second pod whose hostPath names it mounts what it leads to.
"""

READ_ONLY_PATHS = (
    *DEVICE_FOLDERS,
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/krb5.conf",
    "/etc/libibverbs.d",  # the names of the drivers of InfiniBand: rdma-core libibverbs/config.c
    "/etc/machine-id",
    "/etc/nccl.conf",  # NCCL reads it at its start: NCCL docs/userguide env, NCCL_CONF_FILE
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
    "/usr/local/cuda",
    "/usr/local/share/ca-certificates",
    "/usr/share",
    "/usr/src",
    "/var/log/containers",
    "/var/log/pods",
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

RECURSIVE_IF_POSSIBLE_PATHS = ("/var/log",)
"""Folders that lead to no GPU where their read-only mounts have `recursiveReadOnly: IfPossible`, or `Enabled`.

On some nodes a folder below is a mount of its own, such as /var/log/pods (awslabs/amazon-eks-ami setup-local-disks,
raid0) or /var/log/audit. `/mutate` writes `IfPossible`, so collectors of logs start on nodes with older runtimes too.
"""


class Access(IntEnum):
    """The strongest access of a pod's containers to a volume. `READ_ALL` includes mounts below the volume.

    `READ_IF_POSSIBLE` includes them where the node's runtime can make them read-only.
    """

    WRITE = 0
    NOTHING = 1
    READ = 2
    READ_IF_POSSIBLE = 3
    READ_ALL = 4


FOLDER = "DirectoryOrCreate"

CREATING = frozenset(("FileOrCreate", FOLDER))
"""The types of hostPaths with which the kubelet makes an empty file or folder of root where there is none.

A program of the node may act on such a file: systemd(1) checks every file system if there is a /forcefsck.
"""

SOCKET_FOLDERS = ("/run/datadog",)
"""Folders in which an agent of a node has its sockets for pods: a kubelet may make one before the agent starts.

Datadog's webhook mounts its folder into pods, read-only and with the type DirectoryOrCreate (datadog-agent
pkg/clusteragent/admission/mutate/config/mutator.go). A file in its place, or a folder in place of a socket, would keep
the agent from making its sockets.
"""

LINKED = ("run", "mnt", "srv")
"""Names that lead to the same folder in /var and at the root: /run by file-hierarchy(7), the others by ostree."""


_LINKED = tuple(f"/var/{each}/" for each in LINKED)


def normal(path: str) -> str:
    """Return a path in normal form: without `.`, `..` and extra slashes, and without the /var before LINKED names."""
    plain = posixpath.normpath(f"/{path.lstrip('/')}").rstrip("/")
    return plain.removeprefix("/var") if f"{plain}/".startswith(_LINKED) else plain


def within(path: str, places: Iterable[str]) -> bool:
    """Return whether a path in normal form is one of the places or below one."""
    return f"{path}/".startswith(tuple([f"{place}/" for place in places]))


DEVICE_MOUNTS = tuple(map(normal, MOUNT_PATHS))
"""MOUNT_PATHS in normal form."""


def asks_for_device(path: str) -> bool:
    """Return whether a mount's path in normal form begins like a folder in which each mount requests a device."""
    return path.startswith(DEVICE_MOUNTS)


def over_plugin(path: str) -> bool:
    """Return whether a mount's path hides what a device plugin mounts to limit a container."""
    return within(normal(path), PLUGIN_MOUNTS)


def shares_memory(path: str) -> bool:
    """Return whether a path on a node is in the node's shared memory, such as /dev/shm."""
    return "shm" in path and within(normal(path), SHARED_MEMORY)


def spellings(path: str) -> tuple[str, ...]:
    """Return all names of a path in a node's shared memory, in normal form; only the path itself if it is elsewhere."""
    for place in SHARED_MEMORY:
        if within(path, (place,)):
            return tuple(each + path.removeprefix(place) for each in SHARED_MEMORY)
    return (path,)


def leads_to_gpu(path: str, access: Access = Access.WRITE) -> bool:
    """Return whether a path on a node leads to its GPUs, by what containers may do with it."""
    if of_windows(path):
        return True
    path = normal(path)
    below = f"{path}/"
    if path in HARMLESS_PATHS or (access > Access.WRITE and below.startswith(_READ_ONLY)):
        return False
    if path in RECURSIVE_IF_POSSIBLE_PATHS:
        return access in (Access.WRITE, Access.READ)
    if access >= Access.READ and below.startswith(_MOUNTED_READ_ONLY):
        return False
    if access is Access.READ_ALL and below.startswith(_RECURSIVE_READ_ONLY):
        return False
    if _of_host(path):
        return True
    return access is Access.WRITE and (_kept(path) or not below.startswith(_DATA))


WINDOWS = r"^/*[A-Za-z]:|^//+[.?]/|^//.*[$]|\\"
"""Matches paths of a Windows node, its pipes and its administrators' shares among them.

No table has its folders, and a pipe's reader may write.
"""

LONGEST = 4096
"""Bytes of the longest path of Linux (limits.h, PATH_MAX). No kubelet can mount a longer one."""


def of_windows(path: str) -> bool:
    """Return whether a hostPath, as written, has a backslash or names a drive or a pipe of Windows."""
    plain = path.lstrip("/")  # WINDOWS says the same, but a search looks at each character
    shared = path.startswith("//") and (plain.startswith(("./", "?/")) or "$" in path.partition("\n")[0])
    return "\\" in path or shared or (plain[1:2] == ":" and plain[0] in ascii_letters)


def unknown(path: str) -> bool:
    """Return whether a writable path counts as leading to GPUs only because no table lists it as a place of data."""
    plain = normal(path)
    return not _of_host(plain) and not _kept(plain) and not of_windows(path)


def may_be_made(path: str, kind: str) -> bool:
    """Return whether a kubelet may make what a type of CREATING makes at this path, if containers only read it."""
    return not unknown(path) or (kind == FOLDER and normal(path) in SOCKET_FOLDERS)


def _of_host(path: str) -> bool:
    return path in ABOVE or f"{path}/".startswith(_BELOW) or _of_runtime(path)


def _of_runtime(path: str) -> bool:
    return not _RUNTIMES.isdisjoint(path.split("/")) and not within(path, (LOGS,))


def _kept(path: str) -> bool:
    return path in ABOVE_KEPT or f"{path}/".startswith(_KEPT)


def names_devices(path: str) -> bool:
    """Return whether a path leads to a node's GPUs by their device files, and not by control over the node."""
    path = normal(path)
    return path != "" and (f"{path}/".startswith(_DEVICES) or any(each.startswith(f"{path}/") for each in _DEVICES))


def only_opened(path: str) -> bool:
    """Return whether a path is one of OPENED_PATHS, or is below one."""
    return within(normal(path), OPENED_PATHS)


def below(path: str) -> str:
    """Return a path below this one that leads to a node's GPUs; empty if there is none."""
    path = normal(path)
    places = (HOST_PATHS if path in ABOVE else ()) + (KEPT_PATHS if path in ABOVE_KEPT else ())
    return next((place for place in places if place.startswith(f"{path}/")), "")


def begins(places: Iterable[str]) -> tuple[str, ...]:
    """Return the beginning of all paths below each place: the place with a slash, or the text before its `*`."""
    return tuple(place[:-1] if place.endswith("*") else f"{place}/" for place in places)


def above(places: Iterable[str]) -> frozenset[str]:
    """Return all parent folders of some places, in normal form: the root folder is an empty text."""
    return frozenset("/".join(each[:depth]) for each in (p.split("/") for p in places) for depth in range(1, len(each)))


_BELOW, _DATA, _KEPT = map(begins, (HOST_PATHS, DATA_PATHS, KEPT_PATHS))
_RUNTIMES = frozenset(RUNTIMES)
_READ_ONLY = begins(READ_ONLY_PATHS)
_MOUNTED_READ_ONLY, _RECURSIVE_READ_ONLY = map(begins, (MOUNTED_READ_ONLY_PATHS, RECURSIVE_READ_ONLY_PATHS))
_DEVICES = _BELOW[: len(DEVICE_PATHS)]
ABOVE, ABOVE_KEPT, ABOVE_SHARED_MEMORY = map(above, (HOST_PATHS, KEPT_PATHS, SHARED_MEMORY))
"""The folders above HOST_PATHS, KEPT_PATHS and SHARED_MEMORY."""
