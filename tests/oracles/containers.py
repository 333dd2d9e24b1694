"""Ask what NVIDIA's container toolkit gives to the containers of a pod, on nodes and with images of each kind.

A container comes to the toolkit as kubelet and runtime make it: the image's environment, what the device plugin says
of a GPU that was asked for, then the pod's own (kubernetes pkg/kubelet/kubelet_pods.go; of two with one name the last
counts). A mount has its source from its volume.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.oracles.programs import Oracle
from webhook.api import admission
from webhook.api.jsonpatch import apply
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Path
from webhook.policy.model import Policy
from webhook.rules import walk

RULES = (
    "device-annotation",
    "device-mount",
    "privileged-container",
    "unguarded-container",
    "unread-variables",
    "visible-devices",
)
"""The rules that speak of what the toolkit reads."""

GPU = "GPU-4711"
"""The device that the plugin gives to a container which asks for one."""
FOLDER = "/var/run/nvidia-container-devices"


class Node(NamedTuple):
    """How a node's toolkit is told to read, and how its device plugin says which device it gave."""

    settings: Mapping[str, Any]
    env: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}


NODES = {
    "defaults": Node({"acceptEnv": True}, (f"NVIDIA_VISIBLE_DEVICES={GPU}",)),
    "both": Node({"acceptEnv": True, "acceptMounts": True}, (f"NVIDIA_VISIBLE_DEVICES={GPU}",)),
    "mounts alone": Node({"acceptMounts": True}, (f"NVIDIA_VISIBLE_DEVICES={FOLDER}",), (f"{FOLDER}/{GPU}",)),
    "annotations": Node(
        {"acceptEnv": True, "acceptMounts": True, "annotationPrefixes": ["cdi.k8s.io/"]},
        annotations={"cdi.k8s.io/nvidia-device-plugin_1": GPU},
    ),
}
"""The settings that are in use: accept-nvidia-visible-devices-as-volume-mounts and -envvar-when-unprivileged."""

IMAGES = {
    "plain": (),
    "CUDA": ("NVIDIA_VISIBLE_DEVICES=all", "CUDA_VERSION=12.8.1", "NVIDIA_REQUIRE_CUDA=cuda>=12.8"),
    "of old": ("CUDA_VERSION=9.0.176",),
    "IMEX": ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_IMEX_CHANNELS=0"),
    "switches": ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_NVSWITCH=enabled"),
    "faster": ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_GDS=enabled", "NVIDIA_GDRCOPY=enabled", "NVIDIA_MOFED=enabled"),
}
"""The environments of images, which nobody sees at admission."""

HARMLESS_BESIDE_ONE = frozenset(("NVIDIA_GDS", "NVIDIA_GDRCOPY", "NVIDIA_MOFED"))
"""What a container that was given a GPU may have too: faster ways to that GPU's data."""


class Given(NamedTuple):
    """A device that a container got past its request: on which node, with which image, and what."""

    node: str
    image: str
    devices: frozenset[str]


def engine(policy: Policy) -> Engine:
    """These rules alone."""
    return Engine(policy, [rule for rule in walk() if rule.id in RULES])


def mutated(judge: Engine, pod: dict[str, Any], facts: Facts) -> dict[str, Any]:
    """The pod as /mutate leaves it."""
    patched = apply(pod, judge.mutate(admission.decode(admission.wrap(pod)), facts).patch)
    assert isinstance(patched, dict)
    return patched


def findings(judge: Engine, pod: dict[str, Any], facts: Facts) -> dict[Path, str]:
    """Return what the rules refuse of a pod as it stands: the rule by the place."""
    verdict = judge.validate(admission.decode(admission.wrap(pod)), facts)
    assert verdict.malformed is None, verdict.malformed
    return {result.finding.path: result.rule for result in verdict.results}


def containers(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Its containers of every list."""
    for part in ("initContainers", "containers"):
        yield from pod["spec"].get(part, ())


def past_requests(oracle: Oracle, pod: dict[str, Any]) -> frozenset[Given]:
    """All that its containers get and did not ask for, wherever it runs and whatever its images say."""
    return frozenset(
        Given(node, image, extra)
        for container in containers(pod)
        for node in NODES
        for image in IMAGES
        if (extra := _extra(oracle, pod, container, node, image))
    )


def _extra(oracle: Oracle, pod: dict[str, Any], container: dict[str, Any], node: str, image: str) -> frozenset[str]:
    asks = "nvidia.com/gpu" in container.get("resources", {}).get("limits", {})
    given = oracle.ask(question(pod, container, NODES[node], IMAGES[image], asks=asks))
    devices = [*given["devices"], *(f"imex {channel}" for channel in given["imex"]), *given["gated"]]
    allowed = {GPU, *HARMLESS_BESIDE_ONE} if asks else frozenset[str]()
    return frozenset(devices) - allowed - {""}  # the driver's libraries, and no device


def question(
    pod: dict[str, Any], container: dict[str, Any], node: Node, image: tuple[str, ...], *, asks: bool
) -> dict[str, Any]:
    """A container as the toolkit of a node sees it; no more of its environment than the toolkit reads."""
    own = [f"{entry['name']}={entry.get('value', '')}" for entry in container.get("env", ())]
    env = [*image, *(node.env if asks else ()), *own]
    last = dict(entry.split("=", 1) for entry in env if entry.startswith(("NVIDIA_", "CUDA_VERSION=")))
    sources = {volume["name"]: _source(volume) for volume in pod["spec"].get("volumes", ())}
    mounts = [
        # A path that is relative begins at the root (kubelet_pods.go, makeMounts).
        {"destination": f"/{mount['mountPath']}" if mount["mountPath"][:1] != "/" else mount["mountPath"], **source}
        for mount in container.get("volumeMounts", ())
        if (source := {"source": sources[mount["name"]]})
    ]
    if asks:
        mounts += [{"source": "/dev/null", "destination": path} for path in node.mounts]
    capabilities = container.get("securityContext", {}).get("capabilities", {}).get("add", ())
    privileged = container.get("securityContext", {}).get("privileged")
    named = [f"CAP_{name.upper().removeprefix('CAP_')}" for name in capabilities]
    asked = {
        **node.settings,
        "env": [f"{name}={value}" for name, value in sorted(last.items())],
        "mounts": mounts,
        "bounding": ["CAP_SYS_ADMIN"] if privileged or "CAP_ALL" in named else named,
    }
    if "annotationPrefixes" in node.settings:
        asked["annotations"] = {**pod["metadata"].get("annotations", {}), **(node.annotations if asks else {})}
    return {key: value for key, value in asked.items() if value}


def _source(volume: dict[str, Any]) -> str:
    if "persistentVolumeClaim" in volume:  # its volume may be any path of the node
        return "/dev/null"
    path = volume.get("hostPath", {}).get("path", f"/var/lib/kubelet/pods/0/volumes/{volume['name']}")
    assert isinstance(path, str)
    return path
