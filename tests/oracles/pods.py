"""Pods to ask the container toolkit about: what is harmless beside what is not, and much that is odd."""

import copy
from typing import Any

from hypothesis import strategies as st

VALUES: tuple[str, ...] = (
    *("all", "ALL", "none", "void", " void", "VOID", "", "0", "0,1", "all,void", "none,all", "void,0", ",", " "),
    *("enabled", "disabled", "Enabled", "/var/run/nvidia-container-devices", "GPU-0815", "nvidia.com/gpu=all"),
    "runtime.nvidia.com/gpu=0",
)
VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_NVSWITCH",
    "NVIDIA_GDS",
    "NVIDIA_GDRCOPY",
    "NVIDIA_MOFED",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "CUDA_VERSION",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICE",
    "nvidia_visible_devices",
    "APP_MODE",
)
ROOTS = (
    "/var/run",
    "/run",
    "var/run",
    "/var//run/.",
    "/var/run/../run",
    "/var/lib/../run",
    "/run/../var/run",
    "/VAR/run",
    "/var",
)
FOLDERS = (
    "nvidia-container-devices",
    "nvidia-container-devices",
    "nvidia-container-device",
    "nvidia-containers",
    "nvidia",
)
TAILS = (
    "",
    "/",
    "/all",
    "all",
    "/0",
    "s/all",
    "/imex/0",
    "imex/1",
    "/cdi/nvidia.com/gpu/all",
    "/cdi/x",
    "/../all",
    "/..",
    "-of-mine",
)
PATHS = st.builds("{}/{}{}".format, st.sampled_from(ROOTS), st.sampled_from(FOLDERS), st.sampled_from(TAILS))
VOLUMES = (
    {"name": "null", "hostPath": {"path": "/dev/null"}},
    {"name": "odd", "hostPath": {"path": "/dev//./null/"}},
    {"name": "claimed", "persistentVolumeClaim": {"claimName": "null"}},
    {"name": "empty", "emptyDir": {}},
    {"name": "srv", "hostPath": {"path": "/srv/null"}},
)
ANNOTATIONS = (
    "cdi.k8s.io/a",
    "cdi.k8s.io/",
    "cdi.k8s.io/nvidia-device-plugin_1",
    "cdi.k8s.io",
    "CDI.k8s.io/a",
    "acdi.k8s.io/a",
    "x.cdi.k8s.io/a",
    "example.com/cdi.k8s.io",
    "cdi.k8s.io.example.com/a",
    "app",
)
SECURITY: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {},
    {"privileged": True},
    {"capabilities": {"add": ["SYS_ADMIN"]}},
    {"capabilities": {"add": ["CAP_SYS_ADMIN"]}},
    {"capabilities": {"add": ["NET_ADMIN"]}},
)

VARIABLE = st.fixed_dictionaries({"name": st.sampled_from(VARIABLES), "value": st.sampled_from(VALUES)})
MOUNT = st.fixed_dictionaries({"name": st.sampled_from([each["name"] for each in VOLUMES]), "mountPath": PATHS})


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod that may run on a node with GPUs, whatever it asks for."""
    count = draw(st.integers(1, 2))
    each = [_container(draw, f"c{number}") for number in range(count)]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "any", "namespace": "vision"},
        "spec": {"containers": each, "tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]},
    }
    named = {mount["name"] for container in each for mount in container.get("volumeMounts", ())}
    if named:
        pod["spec"]["volumes"] = [volume for volume in VOLUMES if volume["name"] in named]
    if draw(st.integers(0, 4)) == 0:
        keys = draw(st.lists(st.sampled_from(ANNOTATIONS), min_size=1, max_size=2, unique=True))
        pod["metadata"]["annotations"] = {key: draw(st.sampled_from(VALUES)) for key in keys}
    return pod


SOME = st.sampled_from((0, 0, 1, 1, 2))
"""How many of a kind: a pod that is refused for one thing says nothing of the next."""


def _container(draw: st.DrawFn, name: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": name, "image": "registry.example/any"}
    if draw(st.booleans()):
        container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    for part, what in (("env", VARIABLE), ("volumeMounts", MOUNT)):
        entries = [draw(what) for _ in range(draw(SOME))]
        if entries:
            container[part] = entries
    security = draw(st.sampled_from(SECURITY)) if draw(st.integers(0, 3)) == 0 else {}
    if security:
        container["securityContext"] = copy.deepcopy(security)
    return container
