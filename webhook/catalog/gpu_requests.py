"""Tables of the names with which a pod requests a GPU: resources, annotations, labels and classes.

A trailing `*` in a name matches any suffix. Sources are given as repository and file.
"""

from webhook.catalog.names import Names

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
    "amd.com/tpx_*",
    # intel/intel-device-plugins-for-kubernetes cmd/gpu_plugin
    "gpu.intel.com/*",
    "aliyun.com/gpu*",
    # Alibaba's own cards, whole and in parts: gpustack/gpustack-operator README.md, TensorFusion's documents
    "alibabacloud.com/ppu*",
    "aliyun.com/ppu*",
    "microsoft.com/directx",  # cards of any vendor on Windows: aarnaud/k8s-directx-device-plugin README.md
    "nvshare.com/gpu",
    "elasticgpu.io/*",  # elastic-ai/elastic-gpu-agent pkg/common
    "tencent.com/vcuda-*",
    "volcano.sh/gpu*",
    "volcano.sh/vgpu*",
    "koordinator.sh/gpu*",
    # awslabs/aws-virtual-gpu-device-plugin, Tencent's qGPU, Volcengine's mGPU
    "k8s.amazonaws.com/vgpu*",
    "tke.cloud.tencent.com/qgpu-*",
    "vke.volcengine.com/mgpu-*",
    # Baidu's cGPU: NAME_cgpu, NAME_cgpu_core, NAME_cgpu_memory for each model of card (intl.cloud.baidu.com, CCE,
    # "Description of GPU Exclusive and Shared Instances")
    "baidu.com/*",
    # smarter-project/smarter-device-manager README.md: a resource for each file of /dev that its configuration matches
    "smarter-devices/dri*",
    "smarter-devices/kfd*",
    "smarter-devices/nvidia*",
    "tensor-fusion.ai/index*",  # NexusGPU/tensor-fusion pkg/constants
    # Project-HAMi/HAMi pkg/device and charts/hami values.yaml; whole cards by the vendors' own device plugins
    "birentech.com/*",
    "cambricon.com/*",
    "enflame.com/*",
    "huawei.com/Ascend*",
    # Huawei's cloud, and parts of a card: volcano-sh deviceplugin-mock, ascend-for-volcano, npu-exporter's documents
    "huawei.com/ascend*",
    "huawei.com/npu*",
    "hygon.com/*",  # `dcu…`, and `hcu…` in later releases
    "dcu.com/*",  # koordinator apis/extension/device_share.go: Hygon's too
    "iluvatar.ai/*",
    "iluvatar.com/*",  # Deep-Spark/ix-device-plugin pkg/config/const.go
    "kunlunxin.com/*",
    "metax-tech.com/*",
    "mthreads.com/*",
    "vastaitech.com/*",
    "xdxct.com/*",  # chen-mao/xdxct-device-plugin server.go
)
"""Extended resources of other vendors and schedulers that are GPUs or parts of one."""

SHARES_OF_MEMORY = ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage")
"""Parts of a card's memory, which HAMi-core enforces (Project-HAMi/HAMi pkg/device/nvidia/device.go)."""

LIMITED_BY_LIBRARIES = Names((*SHARES_OF_MEMORY, "nvidia.com/gpucores", "nvidia.com/vgpu-*", *RESOURCES))
"""Resources whose device plugins put a library into containers, or may do so; NVIDIA's own device plugin has none.

The second and third are those of HAMi and vgpu-manager (pkg/util/consts.go).
"""

ALL_CARDS = ("gpu.intel.com/monitoring", "gpu.intel.com/i915_monitoring", "gpu.intel.com/xe_monitoring")
"""Monitoring resources: one unit gives a container access to every card of its node.

intel/intel-device-plugins-for-kubernetes cmd/gpu_plugin (`-enable-monitoring`): the first since it has one for both
kernel drivers, the others before that and with `-monitoring-mode=split`.
"""

SHARE_OF_COMPUTE = ".gpu-compute.portion"
"""The end of the annotation that limits a container's share of the compute of its GPUs."""

MEMORY = ("*.gpu-memory.request", "*.gpu-memory.limit")
"""Annotations from which `fractiond` writes the driver's limits of a container, whatever they were before."""

ASSIGNED = ("*.gpus.devices", f"*{SHARE_OF_COMPUTE}")
"""Annotations in which KAI writes the GPUs of a container, and its share of their compute.

`fractiond`, the NRI plugin of kai-gpu-fractioning, makes the first NVIDIA_VISIBLE_DEVICES, whatever was there before,
and the second a percentage for MPS (kai-gpu-fractioning fractioning-manager/fractiond/internal/annotations, plugin.go).
The prefix before a container's name in such a key is a setting of the plugin (`nvidia.com/container.` by default), so
only the ends of the keys are compared, here and in MEMORY.
"""

ANNOTATIONS = Names(
    (
        # KAI-Scheduler pkg/common/constants, pkg/binder/plugins/gpusharing/gpu-request, and run:ai, its origin
        "gpu-fraction",
        "gpu-fraction.limit",
        "gpu-fraction-num-devices",
        "gpu-fraction-container-name",
        "gpu-memory",
        "gpu-memory.limit",
        # NAME.gpu-memory.request, .gpu-memory.limit, .gpu-compute.mode and .gpu-compute.request of a container: KAI
        # reads all of them (pkg/common/resources), and fractiond reads them in every pod
        "nvidia.com/container.*",
        "kai.scheduler/container.*",  # NAME.gpu-memory.portion.limit
        *MEMORY,
        "runai/gpu-fraction",
        "runai/gpu-memory",
        # NexusGPU/tensor-fusion pkg/constants, internal/webhook/v1/tf_parser.go: about forty keys, all for GPUs
        "tensor-fusion.ai/*",
    ),
    other_than=ASSIGNED,
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
        "compute-domain-default-channel.nvidia.com",  # dra-driver-nvidia-gpu: channels between nodes
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

DAEMON_CLASSES = Names(("compute-domain-daemon.nvidia.com",))
"""Device classes for daemons of a driver, of which a node has one device. A claim keeps it from the daemon.

Source: dra-driver-nvidia-gpu templates/compute-domain-daemon-claim-template.tmpl.yaml. The driver's controller writes
these claims in the namespace of the driver.
"""

DEVICE_CLASSES = Names(("*",), other_than=OTHER_CLASSES.patterns)
"""The device classes that count as GPUs unless a policy names them: all except those known to be for other devices.

An administrator may choose any name, so an unknown class may be one of GPUs.
"""

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
"""The label of namespaces that may use `adminAccess` (kubernetes pkg/registry/resource/utils.go)."""

RUNTIME_CLASSES = Names(("nvidia*", "kata-qemu-nvidia*"))
"""Runtime classes that give GPUs to containers by their environment (gpu-operator assets/pre-requisites)."""

SANDBOXES = Names(("gvisor*", "runsc*"))
"""Runtime classes of gVisor, by their usual names (gvisor g3doc/user_guide/containerd, GKE Sandbox)."""


VENDORS = {
    "amd.com": "AMD",
    "gpu.amd.com": "AMD",
    "gpu.intel.com": "Intel",
    "gpu-vfio.intel.com": "Intel",
    "birentech.com": "Biren",
    "cambricon.com": "Cambricon",
    "enflame.com": "Enflame",
    "huawei.com": "Huawei",
    "hygon.com": "Hygon",
    "dcu.com": "Hygon",
    "iluvatar.ai": "Iluvatar",
    "iluvatar.com": "Iluvatar",
    "kunlunxin.com": "Kunlunxin",
    "metax-tech.com": "MetaX",
    "mthreads.com": "Moore Threads",
    "vastaitech.com": "Vastai",
    "alibabacloud.com": "T-Head",
    "xdxct.com": "XDXCT",
    "nvidia.com": "NVIDIA",
    "gpu.nvidia.com": "NVIDIA",
    "mig.nvidia.com": "NVIDIA",
    "vfio.gpu.nvidia.com": "NVIDIA",
}
"""The makers of GPUs, by the domain of their resources' names, or by their device class."""


def vendor(name: str) -> str:
    """Return the vendor of a GPU by the name of its resource or device class; empty if the name does not show it."""
    return VENDORS.get(name.removeprefix(IMPLICIT).partition("/")[0], "")
