"""Lists the ways to a GPU, one row each: those of a new pod, and those that change an existing pod.

docs/prove.md, the tests and the probes use these tables. docs/evidence/ways-to-a-gpu.md has the source of each way.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from webhook.catalog.device_variables import VISIBLE
from webhook.model import Object

NODE = "$(NODE)"
"""Stands for a node of the pool. Without a known node, the way is not tried."""

TRUST = "$(TRUST)"
"""Stands for the annotation of trust, and for the level that is tried."""

TAINT = "$(TAINT)"
"""Stands for the tolerations that get a pod past the taint of the policy's guard. Without one, the way is not tried."""

IMAGE = "registry.k8s.io/pause:3.10"
"""The image of a probe. A dry run pulls none."""

NOTHING: Object = {}


class ChangeCall(StrEnum):
    """The call that changes an existing pod, by the resource of the API to which it is sent."""

    UPDATE = "pods"
    DEBUG = "pods/ephemeralcontainers"
    BIND = "pods/binding"


class GPUWay(NamedTuple):
    """A change of a pod by which it may reach a GPU that it did not get, and the rule that prevents it.

    `spec`, `container`, `annotations` and `labels` are added to a probe, which requests this number of `gpus`. A way
    that is `patched` is shut by the patch of `/mutate`, and any other by a denial. A way that is only tried in `shared`
    pools is harmless in others. An `unearned` way is tried without a grant, in pools that require trust: if it requests
    a GPU it does not ask for trust, and otherwise it does.

    A way with a `change` adds the same to an existing pod, which may run on the same nodes as the honest one. If the
    way is `bare`, the pod may not: it has neither trust nor tolerations.
    """

    name: str
    says: str
    rule: str
    spec: Object = NOTHING
    container: Object = NOTHING
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    gpus: int = 0
    patched: bool = False
    shared: bool = False
    unearned: bool = False
    change: ChangeCall | None = None
    bare: bool = False


def _env(name: str, value: str = "all") -> Object:
    return {"env": [{"name": name, "value": value}]}


def _inside(**more: str) -> Object:
    return {"initContainers": [{"name": "before", "image": IMAGE, **more, **_env(VISIBLE)}]}


def _volume(source: Object) -> Object:
    return {"volumes": [{"name": "way", **source}]}


def _path(path: str) -> Object:
    return _volume({"hostPath": {"path": path}})


def _security(**settings: object) -> Object:
    return {"securityContext": settings}


def _mount(below: str) -> Object:
    return {"volumeMounts": [{"name": "way", "mountPath": f"/var/run/nvidia-container-devices{below}"}]}


def _limits(resource: str) -> Object:
    return {"resources": {"limits": {resource: 1}}}


_FROM_CONFIG_MAP: Object = {"valueFrom": {"configMapKeyRef": {"name": "probe", "key": "devices"}}}
_ALL_OF_IT: Object = {"envFrom": [{"configMapRef": {"name": "probe"}}]}
_EMPTY: Object = {"emptyDir": {}}

WAYS = (
    GPUWay("image", "an image that sees GPUs by itself", "unguarded-container", patched=True),
    GPUWay(
        "cuda-version",
        "CUDA_VERSION, with which an image without variables gets all GPUs",
        "unguarded-container",
        container=_env("CUDA_VERSION", "12.8"),
        patched=True,
    ),
    GPUWay("variables", "variables of a ConfigMap", "unguarded-container", container=_ALL_OF_IT, patched=True),
    GPUWay("variable", f"{VISIBLE}=all", "visible-devices", container=_env(VISIBLE)),
    GPUWay("variable-init", f"{VISIBLE}=all in an init container", "visible-devices", spec=_inside()),
    GPUWay("variable-sidecar", f"{VISIBLE}=all in a sidecar", "visible-devices", spec=_inside(restartPolicy="Always")),
    GPUWay(
        "variable-reference",
        f"{VISIBLE} by a reference",
        "visible-devices",
        container={"env": [{"name": "DEVICES", "value": "all"}, {"name": VISIBLE, "value": "$(DEVICES)"}]},
    ),
    GPUWay(
        "variable-source",
        f"{VISIBLE} from a ConfigMap",
        "visible-devices",
        container={"env": [{"name": VISIBLE, **_FROM_CONFIG_MAP}]},
    ),
    GPUWay("variable-amd", "AMD_VISIBLE_DEVICES=all", "visible-devices", container=_env("AMD_VISIBLE_DEVICES")),
    GPUWay(
        "variable-ascend", "ASCEND_VISIBLE_DEVICES=0", "visible-devices", container=_env("ASCEND_VISIBLE_DEVICES", "0")
    ),
    GPUWay("variable-imex", "NVIDIA_IMEX_CHANNELS=0", "visible-devices", container=_env("NVIDIA_IMEX_CHANNELS", "0")),
    GPUWay("variable-switch", "NVIDIA_NVSWITCH=all", "visible-devices", container=_env("NVIDIA_NVSWITCH")),
    GPUWay(
        "variable-mig", "NVIDIA_MIG_CONFIG_DEVICES=all", "visible-devices", container=_env("NVIDIA_MIG_CONFIG_DEVICES")
    ),
    GPUWay(
        "variable-mthreads",
        "MTHREADS_VISIBLE_DEVICES=all",
        "visible-devices",
        container=_env("MTHREADS_VISIBLE_DEVICES"),
    ),
    GPUWay("mount", "a mount that names all GPUs", "device-mount", spec=_volume(_EMPTY), container=_mount("/all")),
    GPUWay(
        "mount-cdi",
        "a mount that names a CDI device",
        "device-mount",
        spec=_volume(_EMPTY),
        container=_mount("/cdi/nvidia.com/gpu/all"),
    ),
    GPUWay(
        "mount-slashless",
        "a mount like it without a slash",
        "device-mount",
        spec=_volume(_EMPTY),
        container=_mount("all"),
    ),
    GPUWay(
        "mount-imex",
        "a mount that names an IMEX channel",
        "device-mount",
        spec=_volume(_EMPTY),
        container=_mount("/imex/0"),
    ),
    GPUWay(
        "annotation-cdi",
        "an annotation of CDI",
        "device-annotation",
        annotations={"cdi.k8s.io/probe": "nvidia.com/gpu=all"},
    ),
    GPUWay(
        "annotation-nri",
        "an annotation of NRI's device injector",
        "device-annotation",
        annotations={"devices.nri.io/container.probe": "- path: /dev/nvidia0"},
    ),
    GPUWay(
        "annotation-toolkit",
        "an annotation of the container toolkit's NRI plugin",
        "device-annotation",
        annotations={"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"},
    ),
    GPUWay(
        "annotation-crio",
        "an annotation of CRI-O",
        "device-annotation",
        annotations={"io.kubernetes.cri-o.Devices": "/dev/nvidia0"},
    ),
    GPUWay(
        "annotation-gke",
        "an annotation of GKE's device injector",
        "device-annotation",
        annotations={"devices.gke.io/container.probe": "- path: /dev/nvidia0"},
    ),
    GPUWay("path-device", "hostPath /dev/nvidia0", "device-path", spec=_path("/dev/nvidia0")),
    GPUWay("path-root", "hostPath /", "device-path", spec=_path("/")),
    GPUWay(
        "path-plugins",
        "hostPath to the sockets of device plugins",
        "device-path",
        spec=_path("/var/lib/kubelet/device-plugins"),
    ),
    GPUWay(
        "path-runtime",
        "hostPath to the socket of containerd",
        "device-path",
        spec=_path("/run/containerd/containerd.sock"),
    ),
    GPUWay("path-cgroups", "hostPath to control groups", "device-path", spec=_path("/sys/fs/cgroup")),
    GPUWay("path-started", "hostPath to what the node starts", "device-path", spec=_path("/opt/cni/bin")),
    GPUWay(
        "path-daemons",
        "hostPath to the socket of a daemon of NVIDIA",
        "device-path",
        spec=_path("/run/nvidia-persistenced"),
    ),
    GPUWay("path-keys", "hostPath to the keys of the node", "device-path", spec=_path("/etc/ssh")),
    GPUWay("path-kernel", "hostPath to the kernel's files", "device-path", spec=_path("/sys")),
    GPUWay("privileged", "a privileged container", "privileged-container", container=_security(privileged=True)),
    GPUWay(
        "capability",
        "the capability SYS_ADMIN",
        "privileged-container",
        container=_security(capabilities={"add": ["SYS_ADMIN"]}),
    ),
    GPUWay(
        "capability-read",
        "the capability DAC_READ_SEARCH",
        "privileged-container",
        container=_security(capabilities={"add": ["DAC_READ_SEARCH"]}),
    ),
    GPUWay("node", "nodeName of a node with GPUs", "chosen-node", spec={"nodeName": NODE}),
    GPUWay(
        "toleration", "a toleration without a key", "broad-toleration", spec={"tolerations": [{"operator": "Exists"}]}
    ),
    GPUWay(
        "claim",
        "a claim (DRA)",
        "unlisted-claim",
        spec={"resourceClaims": [{"name": "way", "resourceClaimName": "probe"}]},
        container={"resources": {"claims": [{"name": "way"}]}},
    ),
    GPUWay(
        "placement-hami",
        "a placement that HAMi's scheduler writes",
        "forged-placement",
        annotations={"hami.io/vgpu-node": "probe"},
    ),
    GPUWay(
        "placement-kai",
        "devices that KAI's plugin gives",
        "forged-placement",
        annotations={"nvidia.com/container.probe.gpus.devices": "all"},
    ),
    GPUWay(
        "placement-gpushare",
        "a card that Alibaba's gpushare assigns",
        "forged-placement",
        annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"},
    ),
    GPUWay(
        "placement-ascend",
        "an NPU that Ascend's device plugin assigns",
        "forged-placement",
        annotations={"huawei.com/Ascend910": "Ascend910-0"},
    ),
    GPUWay(
        "placement-label",
        "a label by which KAI's scheduler groups pods on a card",
        "forged-placement",
        labels={"runai-gpu-group": "probe"},
    ),
    GPUWay(
        "fraction",
        "a request in an annotation of KAI and run:ai",
        "unsteered-pod",
        annotations={"gpu-fraction": "0.5"},
    ),
    GPUWay(
        "resource",
        "a GPU of KubeVirt's device plugin",
        "unsteered-pod",
        container=_limits("nvidia.com/GA102GL_A10"),
    ),
    GPUWay("trust", "trust that the namespace was not granted", "unearned-trust", unearned=True),
    GPUWay("pool", "a GPU of a pool that demands trust", "unsteered-pod", gpus=1, unearned=True),
    GPUWay("slices", "two slices", "multiple-slices", gpus=2, shared=True),
    GPUWay(
        "variable-requested", f"{VISIBLE}=all next to a request", "visible-devices", container=_env(VISIBLE), gpus=1
    ),
    GPUWay(
        "variables-requested",
        "variables of a ConfigMap next to a request",
        "unread-variables",
        container=_ALL_OF_IT,
        gpus=1,
    ),
    GPUWay(
        "privileged-requested",
        "a privileged container with a request",
        "privileged-container",
        container=_security(privileged=True),
        gpus=1,
    ),
    GPUWay(
        "processes",
        "the node's processes (hostPID) next to a request",
        "host-namespaces",
        spec={"hostPID": True},
        gpus=1,
    ),
)
"""The ways of a new pod, those without a request first."""

CHANGES = (
    GPUWay("debug", "a debug container", "unguarded-container", patched=True, change=ChangeCall.DEBUG),
    GPUWay(
        "debug-variable",
        f"a debug container with {VISIBLE}=all",
        "visible-devices",
        container=_env(VISIBLE),
        change=ChangeCall.DEBUG,
    ),
    GPUWay(
        "debug-privileged",
        "a privileged debug container",
        "privileged-container",
        container=_security(privileged=True),
        change=ChangeCall.DEBUG,
    ),
    GPUWay(
        "toleration-later",
        "a toleration without a key that is added later",
        "broad-toleration",
        spec={"tolerations": [{"operator": "Exists"}]},
        change=ChangeCall.UPDATE,
    ),
    GPUWay(
        "taint-later",
        "a toleration of the taint of nodes with GPUs that is added later",
        "unguarded-container",
        spec={"tolerations": TAINT},
        change=ChangeCall.UPDATE,
        bare=True,
    ),
    GPUWay(
        "trust-later",
        "trust that is added later",
        "changed-trust",
        annotations={TRUST: TRUST},
        change=ChangeCall.UPDATE,
        bare=True,
    ),
    GPUWay(
        "annotation-later",
        "an annotation of CDI that is added later",
        "device-annotation",
        annotations={"cdi.k8s.io/probe": "nvidia.com/gpu=all"},
        change=ChangeCall.UPDATE,
    ),
    GPUWay(
        "placement-later",
        "a label that is added later, by which KAI's scheduler groups pods on a card",
        "forged-placement",
        labels={"runai-gpu-group": "probe"},
        change=ChangeCall.UPDATE,
    ),
    GPUWay("binding", "a binding to a node with GPUs", "foreign-binding", change=ChangeCall.BIND),
)
"""The ways of a pod that exists. They need a pod, and so only a run tries them."""
