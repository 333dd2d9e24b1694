"""Tables of the annotations and labels that add devices to a container, or name a GPU that a scheduler chose.

Sources are given as repository and file.
"""

import re

from webhook.catalog.gpu_requests import ASSIGNED
from webhook.catalog.host_paths import DEVICE_FOLDERS, normal, within
from webhook.catalog.names import Names
from webhook.catalog.white_space import WHITE_SPACE

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
    # containerd/nri plugins/network-device-injector: move an interface of the node into the pod
    "network-devices.nri.io",
    "network-devices.noderesource.dev",
    "netdevice.noderesource.dev",
    "netdevices.nri.containerd.io",
    # cri-o pkg/annotations
    "devices.crio.io",
    "io.kubernetes.cri-o.Devices",
)
"""The domains of annotations that make a container runtime add devices. `*.` matches any subdomain."""


HARMLESS_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/dev/fuse",
    "/dev/kvm",
)
"""Devices that are no GPUs, next to those in DEVICE_FOLDERS. Nothing below these names is meant."""

DEVICE_LISTS = frozenset(("devices.crio.io", "io.kubernetes.cri-o.Devices"))
"""Annotations that list paths under /dev, some of them harmless."""

DOTTED = tuple(f"{key}." for key in sorted(DEVICE_LISTS))
"""The beginnings of the same annotations with a container's name after a dot, which CRI-O takes too."""

_WHOLE = "|".join(re.escape(domain).replace(r"\*", "[^/]*") for domain in DEVICE_ANNOTATIONS)

adds_devices = re.compile(rf"(?:{_WHOLE})(?:/|\Z)|{'|'.join(map(re.escape, DOTTED))}").match
"""Match an annotation that makes a container runtime add devices. It runs for every annotation of every pod."""


_FOR_USERS_OF_KATA = (
    "asset_hash_type",
    "config.agent.*",  # inside the virtual machine
    "container.resource.*",
    "enable_vcpus_pinning",
    *(
        f"config.hypervisor.{name}"
        for name in (
            "asset_hash_type",
            "blk_logical_sector_size",
            "blk_physical_sector_size",
            "block_device_aio",
            "block_device_cache_direct",
            "block_device_cache_noflush",
            "block_device_cache_set",
            "block_device_driver",
            "block_device_num_queues",
            "block_device_queue_size",
            "cc_init_data",
            "cold_plug_vfio",
            "cpu_features",
            "default_max_vcpus",
            "default_memory",
            "default_vcpus",
            "disable_block_device_use",
            "disable_image_nvdimm",
            "disable_vhost_net",
            "enable_guest_swap",
            "enable_hugepages",
            "enable_iommu",
            "enable_iommu_platform",
            "enable_iothreads",
            "enable_mem_prealloc",
            "enable_swap",
            "enable_virtio_mem",
            "firmware_hash",
            "firmware_volume_hash",
            "guest_hook_path",
            "hot_plug_vfio",
            "hotplug_vfio_on_root_bus",
            "hugepage_type",
            "hypervisor_hash",
            "hypervisorctl_hash",
            "image_hash",
            "indep_iothreads",
            "initrd_hash",
            "jailer_hash",
            "kernel_hash",
            "kernel_params",
            "kernel_verity_params",
            "machine_type",
            "memory_offset",
            "memory_slots",
            "msize_9p",
            "network_queues",
            "numa_mapping",
            "path_hash",
            "pcie_root_port",
            "pcie_switch_port",
            "reclaim_guest_freed_memory",
            "rootless",
            "rx_rate_limiter_max_rate",
            "shared_fs",
            "tx_rate_limiter_max_rate",
            "use_legacy_serial",
            "vhost_user_reconnect_timeout_sec",
            "virtio_fs_cache",
            "virtio_fs_cache_size",
        )
    ),
    *(
        f"config.runtime.{name}"
        for name in (
            "cc_init_data",
            "create_container_timeout",
            "disable_guest_empty_dir",
            "disable_guest_seccomp",
            "enable_vcpus_pinning",
            "experimental_force_guest_pull",
            "guest_selinux_label",
            "internetworking_model",
            "sandbox_cgroup_only",
            "vfio_mode",
        )
    ),
)
"""The names after `io.katacontainers.` that change only the virtual machine of a pod, and name no file of the node."""

_FOR_USERS_OF_CRI_O = (
    "DisableFIPS",
    "ShmSize",
    "TrySkipVolumeSELinuxLabel",
    "UnifiedCgroup",
    "cgroup2-mount-hierarchy-rw",
    "seccompNotifierAction",
    "umask",
    "userns-mode",
)
"""The names after `io.kubernetes.cri-o.` that CRI-O's guide lets users write, without those for devices and logs.

Each may be followed by a container's name (cri-o docs/crio.conf.5.md, pkg/annotations/v2).
"""

_FOR_USERS_OF_GVISOR = (
    "empty-dir.*",
    "flag.qdisc*",  # the bandwidth of a pod
    "internal.cpufeatures",
    "internal.nvproxy",
    "internal.seccomp.*",
    "internal.tpuproxy",
    "spec.mount.*",
    "spec.rootfs.overlay",
    "spec.rootfs.type",
)
"""The names after `dev.gvisor.` that name no file of the node, by runsc's source. GKE's own admission adds some."""

RUNTIME_ANNOTATIONS = Names(
    (
        # Kata Containers' own settings, among them files, programs and folders of the node, the node's network for the
        # virtual machine, and GPUs of a cloud's machine that nobody requested (`default_gpus`). Before 4.0 it takes the
        # path of its configuration from the pod (kata-containers src/runtime/pkg/containerd-shim-v2 create.go), and
        # before 3.31 `virtio_fs_extra_args`, by default: with `-o source=/` the pod has the node's files
        # (CVE-2026-44210). Before 4.0 its runtime in Rust puts the folders of the node that `sandbox_bind_mounts` names
        # into the virtual machine, whatever its configuration allows (src/libs/kata-types/src/annotations/mod.rs). Its
        # configuration has to allow the others (docs/how-to/how-to-set-sandbox-config-kata.md)
        "io.katacontainers.*",
        # Notes of the kubelet and of dockershim, which Kata reads as it reads containerd's (src/libs/kata-types)
        "io.kubernetes.container.*",
        "io.kubernetes.docker.*",
        "io.kubernetes.sandbox.*",
        # containerd's shim, which serves all pods of one group (cmd/containerd-shim-runc-v2/manager)
        "io.containerd.*",
        "microsoft.com/hostprocess-container",  # containerd's note that a container is a process of its Windows node
        "krun.gpu_flags",  # crun src/libcrun/handlers/krun.c: a GPU of the node for a virtual machine
        # crun.1.md, src/libcrun/container.c: `run.oci.hooks.stderr` is a file of the node, to which crun appends
        "run.oci.*",
        "org.criu.*",
        # runc libcontainer/specconv, crun src/libcrun/cgroup-systemd.c: properties of the container's unit of systemd,
        # such as its slice and its processes (CVE-2024-3154)
        "org.systemd.property.*",
        # runsc/specutils/specutils.go: with `--allow-flag-override` a flag may be a file of the node (`debug-log`).
        # Others are files of the node, a cgroup in place of the pod's (runsc/container/container.go), and folders of
        # the node in which runsc writes the container's memory or files (runsc/sandbox/sandbox.go, createSaveFiles)
        "dev.gvisor.*",
        # containerd's own notes about a pod. Runtimes read them under CRI-O too, where a pod may write them: Kata gives
        # it the GPUs of the pod that `sandbox-name` and `sandbox-namespace` name (kata-containers
        # src/runtime/pkg/containerd-shim-v2/device_cold_plug.go). `untrusted-workload` chooses the runtime `untrusted`,
        # whatever the pod's runtime class (containerd internal/cri/config)
        "io.kubernetes.cri.*",
        # oci-seccomp-bpf-hook: `of:FILE` is a file of the node, which the hook writes; CRI-O adds a container's name
        "io.containers.trace-syscall",
        "io.containers.trace-syscall/*",
        # CRI-O writes notes about a pod next to the pod's own annotations and labels, which replace them. After a
        # restart it believes the notes: it mounts the folders of the node that `ShmPath` and `ResolvPath` name (cri-o
        # server/sandbox_run_linux.go, internal/lib/container_server.go)
        "io.kubernetes.cri-o.*",
        "io.container.manager",
        "pod-linux-overhead.crio.io*",
        "pod-linux-resources.crio.io*",
        "spoofed.crio.io*",
        # CRI-O's note of the program by which it runs a container
        "platform-runtime-path.crio.io*",
        # cri-o internal/linklogs: mounts the pod's folder of /var/log/pods, writable, into an emptyDir of the pod
        "link-logs.crio.io*",
    ),
    other_than=(
        *(f"io.katacontainers.{name}" for name in _FOR_USERS_OF_KATA),
        "run.oci.handler",  # the choice between crun's own ways to run WebAssembly and virtual machines
        *(f"dev.gvisor.{name}" for name in _FOR_USERS_OF_GVISOR),
        "io.kubernetes.cri.rdt-class*",  # the class of cache and memory bandwidth
        *(f"io.kubernetes.cri-o.{name}*" for name in _FOR_USERS_OF_CRI_O),
        "io.kubernetes.cri-o.Devices*",  # among DEVICE_ANNOTATIONS
    ),
)
"""Annotations by which a container runtime, which runs as root, acts on its node.

CRI-O writes a pod's labels among the annotations of its sandbox (cri-o server/sandbox_run_linux.go), so labels with
these names count too.

CRI-O passes them on where `allowed_annotations` has their prefix, and has no smaller choice than `run.oci.` as a whole
(cri-o pkg/annotations/v2). It passes on all of Kata's. containerd passes on what matches `pod_annotations`, and
kata-deploy writes `io.katacontainers.*` there. gVisor's guide for containerd writes `dev.gvisor.*` there.
"""


def harmless_devices(key: str, value: object) -> bool:
    """Return whether an annotation adds only devices that lead to no GPU, such as `/dev/fuse:/dev/fuse:rw`.

    Only listed paths are harmless: a container that may write its node's data can make a device file there. A list of
    more than MAX_DEVICES is not walked, and counts as one that leads to a GPU.
    """
    domain = key.partition("/")[0]
    if not isinstance(value, str) or not (domain in DEVICE_LISTS or domain.startswith(DOTTED)):
        return False
    if value.count(",") >= MAX_DEVICES:
        return False
    paths = (normal(device.partition(":")[0].strip(WHITE_SPACE)) for device in value.split(","))
    return all(path in HARMLESS_DEVICES or within(path, DEVICE_FOLDERS) for path in paths)


MAX_DEVICES = 64
"""Maximum number of devices of an annotation that are examined: far more than any container needs."""

VENDOR_DOMAINS = (
    "birentech.com",
    "cambricon.com",
    "enflame.com",  # Enflame's gcushare-scheduler-plugin pkg/consts; HAMi pkg/device/enflame: `gcu-assigned…`
    "hygon.com",  # koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go: `container-index`
    "iluvatar.ai",  # HAMi pkg/device/iluvatar before 2.7.1: `predicate-gpu-idx-…`
    "iluvatar.com",  # Deep-Spark/ix-device-plugin pkg/kube/const.go: `DevVolcano`
    "kunlunxin.com",
    "metax-tech.com",  # HAMi pkg/device/metax/protocol.go; koordinator as above: `gpu-devices-allocated`
    "mthreads.com",  # HAMi pkg/device/mthreads/device.go: `gpu-index`, `predicate-…`
    "vastaitech.com",
)
"""Domains of makers of GPUs in which schedulers write annotations for their device plugins.

Most of these device plugins are closed. So every annotation there counts as a choice, except those for users.
"""

_FOR_USERS_OF_VENDORS = (
    # Cards to use and to avoid, which the scheduler obeys: HAMi pkg/device/*/device.go, such as `hygon.com/use-dcutype`
    *(f"{domain}/{name}" for domain in VENDOR_DOMAINS for name in ("use-*", "nouse-*")),
    # HAMi pkg/device/metax/protocol.go, examples/metax/sgpu
    *(f"metax-tech.com/sgpu-{name}" for name in ("app-class", "qos-policy", "topology-aware")),
    "mthreads.com/request-gpu-num",  # HAMi's webhook writes it into a new pod: pkg/device/mthreads/device.go
)

PLACEMENT_ANNOTATIONS = Names(
    (
        "hami.io/*",  # HAMi pkg/util/types.go; before 2.4 with the prefix of 4paradigm's scheduler
        "4pd.io/*",
        "ALIYUN_COM_GPU_*",  # gpushare-scheduler-extender pkg/utils/const.go
        "scheduler.framework.gpushare.allocation",
        "elasticgpu.io/assumed",  # elastic-gpu-agent pkg/plugins/gpushare.go: a container's card, by its number
        "elasticgpu.io/container-*",
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
        # koordinator pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go: device plugins of others find the pod
        # by its time
        "scheduling.koordinator.sh/bind-timestamp",
        "scheduling.koordinator.sh/gpu-minors",
        "predicate-time",  # as Ascend's and Iluvatar's do
        *(f"{domain}/*" for domain in VENDOR_DOMAINS),
        # A summary for each container: `NAME-hygon.com/dcumem` (koordinator as above; Hygon's later names begin `hcu`)
        *(f"*-hygon.com/{kind}{part}" for kind in ("dcu", "hcu") for part in ("num", "mem", "cores")),
        "assigned-containers",  # HAMi pkg/device/enflame/device.go, Enflame's gcushare-scheduler-plugin pkg/consts
        "BAIDU_COM_*",  # HAMi pkg/device/kunlun/device.go (`…_DEVICE_IDX`); Baidu's cGPU (`…_GPU_IDX`)
        "CAMBRICON_*",  # HAMi pkg/device/cambricon/device.go; koordinator as above (`…_DSMLU_PROFILE`)
        "amd.com/gpu-index",  # HAMi pkg/device/amd/device.go
        "amd.com/predicate-*",
        "gas-container-*",  # intel/platform-aware-scheduling gpu-aware-scheduling/pkg/gpuscheduler/scheduler.go
        "gas-ts",
        # Ascend mind-cluster docs, api/k8s: Ascend's device plugin uses these to hand out cards and to record which it
        # gave
        "huawei.com/Ascend*",
        "huawei.com/ascend*",
        "huawei.com/npu*",
        "huawei.com/kltDev*",
        "runai-gpu-group",  # KAI-Scheduler pkg/common/constants
        "runai-gpu",
        "runai/shared-gpu-configmap",
        "received-resource-type",
        *ASSIGNED,
        "tensor-fusion.ai/gpu-ids",  # tensor-fusion pkg/constants
        "tensor-fusion.ai/container-gpus",
        "tensor-fusion.ai/effective-hard-sm-percent",
        "tensor-fusion.ai/index",
        "tensor-fusion.ai/partition-*",
    ),
    # Written by HAMi's users: pkg/util/types.go, pkg/device/*/device.go and its documents
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
        *_FOR_USERS_OF_VENDORS,
        # tensor-fusion docs: the user names a partition by its template
        "tensor-fusion.ai/partition-id",
    ),
)
"""Annotations in which other schedulers write their choice of a GPU, and which their node agents trust.

Annotations for users are left out, such as `hami.io/gpu-scheduler-policy` (binpack or spread), `gas-allow` and
`volcano.sh/vgpu-use-gpuuuid`. HAMi writes annotations under `hami.io/`, whose names have the vendor's in them, and
others in the form that a vendor's own device plugin reads. So all of `hami.io/` and of VENDOR_DOMAINS count except
those meant for users.
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
